//! How a rank of the built-in program fails when it is asked to: by a signal for each way.

use std::{
    io,
    time::{Duration, Instant},
};

use everfold::prelude::*;
use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

use super::schedule::Failing;

/// How long a program lives on that has abandoned its session: longer than others need to read what it left
/// behind.
const LIVES_ON: Duration = Duration::from_millis(300);

/// What asks a rank to fail this way.
pub fn signal(way: Failing) -> Signal {
    match way {
        Failing::Error => Signal::SIGUSR1,
        Failing::Panic => Signal::SIGUSR2,
        Failing::Abandon => Signal::SIGALRM,
    }
}

/// Listens for what asks this rank to fail.
pub struct Asked([(Failing, unix::Signal); 3]);

impl Asked {
    /// Listens from now on.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen() -> io::Result<Self> {
        let [error, panic, abandon] = Failing::ALL
            .map(|way| unix::signal(SignalKind::from_raw(signal(way) as i32)).map(|signals| (way, signals)));
        Ok(Self([error?, panic?, abandon?]))
    }

    /// Waits until this rank is to fail, and tells how.
    pub async fn wait(self) -> Failing {
        let asked = self.0.map(|(way, mut signals)| {
            Box::pin(async move {
                signals.recv().await;
                way
            })
        });
        futures::future::select_all(asked).await.0
    }
}

impl Failing {
    /// Fails. What is abandoned is followed by something else of `bytes` bytes, in the same memory if that
    /// was given back.
    pub fn fail(self, session: &Session, bytes: u64) -> everfold::Result<()> {
        match self {
            Self::Error => Err(everfold::Error::application("this rank was asked to fail")),
            Self::Panic => panic!("this rank was asked to panic"),
            Self::Abandon => {
                session.abandon();
                let abandoned = Instant::now();
                while abandoned.elapsed() < LIVES_ON {
                    let mut private = vec![0xa5; bytes as usize];
                    let mut shared = session.array::<u8>(bytes as usize);
                    shared.fill(0x5a);
                    std::hint::black_box((&mut private, &mut shared));
                }
                Ok(())
            }
        }
    }
}
