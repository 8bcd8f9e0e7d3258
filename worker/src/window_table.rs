//! Which windows of a process are open, and under which generation. Pure.
//!
//! The table owns what its windows show: nothing of that is given back before the window is closed, or stays
//! as it is for good. So a reader that finds the generation it was told has found the bytes it was told of.

use alloc::vec::Vec;

use everfold_protocol::{Generation, WindowId, message::Place};

/// The windows of a process, which show `C`.
#[derive(Debug)]
pub struct WindowTable<C> {
    slots: Vec<Option<Open<C>>>,
    /// Slots that were used before.
    free: Vec<usize>,
    slots_max: usize,
    /// The last one that was given. Each is given once.
    generation: u64,
    /// Whether this process takes part in its job no more.
    left: bool,
}

#[derive(Debug)]
struct Open<C> {
    generation: Generation,
    place: Place,
    content: C,
}

impl<C> WindowTable<C> {
    /// A table with room for this number of open windows.
    pub fn new(slots_max: usize) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), slots_max, generation: 0, left: false }
    }

    /// Opens a window on `content`, which lies at `place`. `None` if too many are open, or if this process
    /// has left.
    pub fn publish(&mut self, place: Place, content: C) -> Option<(WindowId, Generation)> {
        if self.left {
            return None;
        }
        let slot = self.free.pop().or_else(|| {
            let is_room = self.slots.len() < self.slots_max;
            is_room.then(|| self.slots.push(None)).map(|()| self.slots.len() - 1)
        })?;
        self.generation += 1;
        let generation = Generation(self.generation);
        self.slots[slot] = Some(Open { generation, place, content });
        Some((WindowId(slot as u64), generation))
    }

    /// The content that a window shows, if it is open.
    pub fn find(&self, window: WindowId, generation: Generation) -> Option<&C> {
        let open = self.slots.get(usize::try_from(window.0).ok()?)?.as_ref()?;
        (open.generation == generation).then_some(&open.content)
    }

    /// An open window on content that `which` accepts.
    pub fn position(&self, which: impl Fn(&C) -> bool) -> Option<(WindowId, Generation)> {
        let mut open = (0..).zip(&self.slots).filter_map(|(slot, open)| Some((slot, open.as_ref()?)));
        let (slot, open) = open.find(|(_, open)| which(&open.content))?;
        Some((WindowId(slot), open.generation))
    }

    /// Closes a window. `close` tells peers, before the content may change or go.
    pub fn release(
        &mut self,
        window: WindowId,
        generation: Generation,
        close: impl FnOnce(WindowId),
    ) -> Option<C> {
        self.find(window, generation)?;
        close(window);
        let slot = usize::try_from(window.0).ok()?;
        self.free.push(slot);
        self.slots[slot].take().map(|open| open.content)
    }

    /// This process takes part no more, and its memory may be given back: closes the windows on memory that
    /// does not [outlive](Place::outlives_its_process) it, and opens no more. Returns the contents of those
    /// windows.
    pub fn leave(&mut self, mut close: impl FnMut(WindowId)) -> Vec<C> {
        self.left = true;
        let mut closed = Vec::new();
        for (slot, open) in self.slots.iter_mut().enumerate() {
            if let Some(open) = open.take_if(|open| !open.place.outlives_its_process()) {
                close(WindowId(slot as u64));
                closed.push(open.content);
            }
        }
        closed
    }

    /// Number of open windows.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether no window is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use everfold_protocol::RegionOffset;

    use super::*;

    const SHARED: Place = Place::Region(RegionOffset(0));
    const PRIVATE: Place = Place::Memory(0);

    #[test]
    fn slots_are_used_again_and_generations_are_not() {
        let mut table = WindowTable::new(1);
        let (window, first) = table.publish(SHARED, "one").unwrap();
        assert_eq!(table.publish(SHARED, "two"), None, "there is room for one");
        assert_eq!(table.release(window, Generation(first.0 + 1), |_| panic!("it is another one")), None);
        let mut closed = None;
        assert_eq!(table.release(window, first, |window| closed = Some(window)), Some("one"));
        assert_eq!(closed, Some(window));
        let (again, second) = table.publish(SHARED, "two").unwrap();
        assert!(again == window && second != first);
        assert_eq!((table.find(window, first), table.find(window, second)), (None, Some(&"two")));
    }

    #[test]
    fn who_leaves_closes_what_goes_with_it() {
        let mut table = WindowTable::new(9);
        let places = [SHARED, PRIVATE, Place::Served, SHARED];
        let open = places.map(|place| table.publish(place, place).unwrap());
        let mut closed = Vec::new();
        assert_eq!(table.leave(|window| closed.push(window)), [PRIVATE, Place::Served]);
        assert_eq!(closed, [open[1].0, open[2].0]);
        let left = open.map(|(window, generation)| table.find(window, generation).is_some());
        assert_eq!(left, [true, false, false, true]);
        assert_eq!(table.publish(SHARED, SHARED), None);
    }
}
