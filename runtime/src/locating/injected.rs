//! Symptoms without a cause, which a node observes if the environment asks for them: to see what symptoms
//! cost a job.

use std::time::Duration;

use everfold_locate::{
    place::{Host, Place},
    symptom::{Kind, Symptom},
};
use everfold_protocol::locating::HostRef;
use tokio::time::{Interval, MissedTickBehavior};

use super::INJECT_SYMPTOMS;

/// When a node observes something that is not there.
pub(super) struct Injected {
    every: Option<Interval>,
    count: usize,
}

impl Injected {
    /// As often as the environment says, in milliseconds; never if it says nothing.
    pub fn from_env() -> Self {
        let ms = std::env::var(INJECT_SYMPTOMS).ok().and_then(|ms| ms.parse().ok()).filter(|ms| *ms > 0);
        let every = ms.map(|ms| {
            let mut every = tokio::time::interval(Duration::from_millis(ms));
            every.set_missed_tick_behavior(MissedTickBehavior::Delay);
            every
        });
        Self { every, count: 0 }
    }

    /// Returns when it is time for the next one.
    pub async fn due(&mut self) {
        match &mut self.every {
            Some(every) => drop(every.tick().await),
            None => std::future::pending().await,
        }
    }

    /// The next one: of each kind that has probes of its own in turn, about host `me` of these.
    pub fn symptom(&mut self, me: Host, hosts: &[HostRef]) -> Option<Symptom> {
        let host = Place::Host(me);
        let next = Host((me.0 + 1) % u32::try_from(hosts.len().max(1)).unwrap_or(u32::MAX));
        let rank = hosts.get(me.0 as usize)?.ranks.iter().next()?;
        let kinds = [
            (Kind::SlowRead, Place::Link { from: me, to: next }),
            (Kind::Late, Place::Rank { rank, host: me }),
            (Kind::MemoryPressure, host),
            (Kind::DiskSlow, host),
            (Kind::Silence, host),
        ];
        let (kind, suspect) = kinds[self.count % kinds.len()];
        self.count += 1;
        Some(Symptom { kind, suspect, witness: me, ago: Duration::ZERO, value: 2.0, threshold: 1.0 })
    }
}
