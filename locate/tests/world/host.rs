//! A host: its two machines.

use everfold_locate::{place::Host, rules::RuleBase, tfa::Tfa, tfd::Tfd, tree::Tree};
use everfold_protocol::time::Timestamp;

pub struct Node {
    pub tfd: Tfd,
    pub tfa: Tfa,
    pub messages: u64,
}

impl Node {
    pub fn new(me: u32, tree: Tree, rules: &RuleBase) -> Self {
        let tfd = Tfd::new(Host(me), tree, Default::default());
        Self { tfd, tfa: Tfa::new(rules.clone()), messages: 0 }
    }

    pub fn tick(&mut self, now: Timestamp) {
        let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= now);
        if due(self.tfd.next_timeout()) {
            self.tfd.handle_timeout(now);
        }
        if due(self.tfa.next_timeout()) {
            self.tfa.handle_timeout(now);
        }
    }
}
