//! What a process has sent to the master.

/// Counts the messages of a process, and those that go with it when it crashes.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    sent: u64,
    /// Messages that have reached the master, or would have, and how many do at most.
    arrived: u64,
    arrive_max: Option<u64>,
    lost: u64,
}

impl Outbox {
    /// Takes in that a message is sent.
    pub fn send(&mut self) {
        self.sent += 1;
    }

    /// Lets only the first `arrive` messages that are under way still arrive.
    pub fn cut_off(&mut self, arrive: u64) {
        let arrive_max = self.arrived + arrive;
        self.arrive_max = Some(arrive_max);
        self.lost = self.sent.saturating_sub(arrive_max);
    }

    /// Lets everything still arrive that is under way, and nothing that is sent from now on.
    pub fn hang_up(&mut self) {
        self.arrive_max.get_or_insert(self.sent);
    }

    /// Takes in that a message is about to reach the master. Returns whether it went with its process
    /// instead.
    pub fn loses(&mut self) -> bool {
        self.arrived += 1;
        self.arrive_max.is_some_and(|most| self.arrived > most)
    }

    /// Messages that went with the process.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}
