//! Detectors of your own: what they are told, and what they answer.
//!
//! A [`Detector`] is asked about each death before the built-in detectors. It chooses among recoveries, or
//! hands the death over. It runs in the master of the job, which is in the process that has started the ranks
//! of the first host.
//!
//! | the job is started by | where its detectors are added |
//! |---|---|
//! | the program itself | [`Launch::detector`](crate::Launch::detector) |
//! | a command of your own in place of `everfold run` | `everfold_cli::main_with` |
//! | [`Local`](crate::launch::Local) | [`Local::components`](crate::launch::Local::components) |
//!
//! The recovery file chooses which of them are asked: `detectors = ["cautious"]`.
//!
//! ```
//! use std::time::Duration;
//! use everfold::recovery::{
//!     Chain, Detector, Recovery,
//!     detector::{Death, Seen, Sign, Timestamp},
//! };
//!
//! /// For a minute after a host was lost, ranks whose processes end leave their hosts: more may be lost.
//! #[derive(Debug, Default)]
//! struct Cautious {
//!     lost: Option<Timestamp>,
//! }
//!
//! impl Detector for Cautious {
//!     fn see(&mut self, now: Timestamp, seen: Seen<'_>) {
//!         if let Seen::HostLost { .. } = seen {
//!             self.lost = Some(now);
//!         }
//!     }
//!
//!     fn judge(&mut self, now: Timestamp, death: &Death) -> Option<Chain> {
//!         let is_soon = self.lost.is_some_and(|lost| now.since(lost) < Duration::from_secs(60));
//!         match death.sign {
//!             Sign::Process(_) if is_soon => Some(Chain::then(Recovery::Migrate, Recovery::Restart)),
//!             // The next detector is asked, at last the built-in ones.
//!             _ => None,
//!         }
//!     }
//! }
//!
//! let launch = everfold::Launch::from_env_or_local(4).detector("cautious", Cautious::default);
//! ```

pub use everfold_master::recovery::{Candidate, Death, Detector, Elsewhere, Seen, Sign};
pub use everfold_protocol::{
    AgentId, Incarnation, ProcessId, Rank, Timestamp,
    message::{Comeback, Ending, Evidence, FromAgent, NoReturn, ToMaster},
};
