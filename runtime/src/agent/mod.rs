//! The agent of a host: what holds the memory of the host's processes, hears how they end, and on one host
//! runs the master.
//!
//! The agent's process is the one that starts the ranks, or one that the first rank on a host
//! [starts](start) for all of them. Its machine is [`everfold_agent::Agent`].
//!
//! | module | holds |
//! |---|---|
//! | `host` | the agent's thread |
//! | `hail` | how a rank finds its agent and hands its memory over |
//! | `line` | the messages between the two |
//! | `remains` | the memory that processes have handed over, served to other hosts |
//! | [`start`] | how a rank starts an agent where there is none |

mod hail;
mod host;
mod line;
#[doc(hidden)]
pub mod remains;
pub mod start;

#[doc(hidden)]
pub use self::hail::{About, OwnAgent, hail};
pub use self::{
    hail::HailError,
    host::{AgentConfig, AgentThread, Ends, ToParent},
    line::NoAgent,
};
