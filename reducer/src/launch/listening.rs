//! The program, and what hears the master, as one future.
//!
//! If a task of its own heard the master, the runtime would look for further events between an outcome and the program
//! that waits for it: a system call for each. Here the program goes on at once.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::task::AtomicWaker;

/// Does what `program` does, and polls `listening` beside it, always first.
pub(super) async fn beside<P: Future>(listening: impl Future, program: P) -> P::Output {
    let (mut listening, mut program) = (pin!(listening), pin!(program));
    let bell = Arc::new(Bell { rung: AtomicBool::new(true), ..Bell::default() });
    let waker = Waker::from(bell.clone());
    let mut listens = true;
    std::future::poll_fn(|context| {
        bell.both.register(context.waker());
        bell.is_heard.store(true, SeqCst);
        listens = listens && listening.as_mut().poll(context).is_pending();
        if let Poll::Ready(output) = bell.answer(program.as_mut(), &waker) {
            return Poll::Ready(output);
        }
        bell.is_heard.store(false, SeqCst);
        // Whoever has rung just now may have seen that it is heard. The runtime has its turn first: the program may
        // have used up its share of time.
        if bell.rung.load(SeqCst) {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// What the program is woken up by.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    /// Whether the thread that polls looks at the bell before it sleeps.
    is_heard: AtomicBool,
    both: AtomicWaker,
}

impl Bell {
    /// Polls the program, if the bell was rung for it.
    fn answer<P: Future>(&self, program: Pin<&mut P>, waker: &Waker) -> Poll<P::Output> {
        match self.rung.swap(false, SeqCst) {
            true => program.poll(&mut Context::from_waker(waker)),
            false => Poll::Pending,
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, SeqCst);
        if !self.is_heard.load(SeqCst) {
            self.both.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, poll_fn},
        task::Poll,
        thread,
    };

    use futures::{FutureExt, channel::oneshot, executor::block_on};

    use super::*;

    #[test]
    fn the_program_goes_on_whoever_wakes_it_up() {
        // Something else than the listener, at any moment.
        for _ in 0..200 {
            let (answer, answered) = oneshot::channel();
            let other = thread::spawn(move || answer.send(7));
            assert_eq!(block_on(beside(pending::<()>(), answered)), Ok(7));
            assert_eq!(other.join().unwrap(), Ok(()));
        }
        // The listener, and in the same poll.
        let (answer, answered) = oneshot::channel();
        let mut answer = Some(answer);
        let listening = poll_fn(move |_| {
            answer.take().into_iter().for_each(|answer| answer.send(8).unwrap());
            Poll::<()>::Pending
        });
        assert_eq!(beside(listening, answered).now_or_never(), Some(Ok(8)));
    }

    #[test]
    fn a_program_that_nobody_wakes_up_is_not_polled() {
        let (mut polled, mut heard) = (0, 0);
        let program = poll_fn(|_| {
            polled += 1;
            Poll::<()>::Pending
        });
        let listening = poll_fn(|_| {
            heard += 1;
            Poll::<()>::Pending
        });
        let mut both = Box::pin(beside(listening, program));
        (0..3).for_each(|_| assert!((&mut both).now_or_never().is_none()));
        drop(both);
        assert_eq!((polled, heard), (1, 3));
    }

    #[test]
    fn a_program_that_wakes_itself_up_leaves_the_runtime_its_turn() {
        let mut left = 3;
        let program = poll_fn(|context| {
            left -= 1;
            context.waker().wake_by_ref();
            if left == 0 { Poll::Ready(()) } else { Poll::Pending }
        });
        let mut both = Box::pin(beside(async {}, program));
        assert!((&mut both).now_or_never().is_none(), "it is polled once");
        block_on(both);
    }
}
