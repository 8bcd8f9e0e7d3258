//! What everfold does with bytes that somebody else wrote, checked for any bytes.
//!
//! Each module checks one place where such bytes come in, with one function `check`. It takes any bytes and
//! panics if a promise does not hold: that what is refused is refused with an error, that what is accepted
//! means the same when it is written again, that no length is believed before that many bytes are there, and
//! that an honest party is served as if the liar had not been there. `samples` gives inputs that reach far, made
//! by the real encoders.
//!
//! | module | who has written the bytes |
//! |---|---|
//! | [`frame`] | a peer, or a stranger on the way: frames |
//! | [`messages`] | a peer that belongs to the job: what frames carry |
//! | [`mod@line`] | the same, as a connection hears them piece by piece |
//! | [`handshake`] | a stranger who connects or is connected to, or sits on the way |
//! | [`requests`] | a reader of this process's windows |
//! | [`answers`] | the owner of windows that are read |
//! | [`remains`] | a process whose region its agent holds, and a reader of it |
//! | [`board`] | other processes that share a board |
//! | [`agent`] | a process that hails an agent |
//! | [`hail`] | an agent that is hailed |
//! | [`environment`] | the launcher of a process |
//! | [`question`] | a user: questions to `everfold sim what-if` |
//! | [`schedule`] | a user: schedules for `everfold sim check --replay` |
//! | [`profile`] | a user: profiles for `everfold plan` |
//! | [`plan`] | a user: plans that a program is to follow |
//! | [`recovery`] | a user: files that choose recoveries |
//! | [`rules`] | a user: rules that locate faults |
//! | [`symptoms`] | a user: records of symptoms, from which rules are learnt |
//! | [`record`] | a disk |
//! | [`output`] | a process of the job: what it prints |
//! | [`vault`] | an earlier process of a rank, killed at any moment |
//!
//! `tests/replay.rs` runs all of them over the corpus and over mutations of it. `fuzz/` lets a fuzzer search
//! for more.
//!
//! Deliberately absent: machines. What they make of a message that decodes well is the simulator's to find
//! out.

// Everything here is a check: what should not fail is a promise that is broken if it does.
#![allow(clippy::unwrap_used, missing_docs)]

pub mod agent;
pub mod answers;
pub mod board;
pub mod environment;
pub mod frame;
pub mod hail;
pub mod handshake;
pub mod line;
pub mod messages;
pub mod output;
pub mod plan;
pub mod profile;
pub mod question;
pub mod record;
pub mod recovery;
pub mod remains;
pub mod requests;
pub mod rules;
pub mod schedule;
pub mod symptoms;
pub mod vault;

pub mod input;
pub mod memory;
pub mod mutate;
pub mod talk;

/// A place where bytes come in.
pub struct Target {
    /// Also that of its folder in the corpus.
    pub name: &'static str,
    /// Panics if a promise does not hold for these bytes.
    pub check: fn(&[u8]),
    /// Bytes that reach far.
    pub samples: fn() -> Vec<Vec<u8>>,
}

macro_rules! targets {
    ($($name:ident)*) => {
        /// All of them.
        pub const TARGETS: &[Target] =
            &[$(Target { name: stringify!($name), check: $name::check, samples: $name::samples }),*];
    };
}

targets! {
    frame messages line handshake requests answers remains board agent hail environment question schedule record
    profile plan recovery rules symptoms vault output
}
