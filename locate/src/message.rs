//! What localisation nodes say to each other.

use serde::{Deserialize, Serialize};

use crate::{
    place::Place,
    probe::{Answer, Probe},
    symptom::Symptom,
    tfa::{Question, Verdict},
    tfd::Ticket,
};

/// A message from one host's localisation node to another's. Each may come twice, and but for a verdict each may be lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// A symptom for the host that collects those of its suspect.
    Symptom {
        /// What to acknowledge.
        ticket: Ticket,
        /// What was observed.
        symptom: Symptom,
    },
    /// A symptom has arrived.
    Received(Ticket),
    /// A question about a place of the receiver.
    Ask {
        /// What to answer to.
        question: Question,
        /// What is asked.
        probe: Probe,
        /// About what.
        place: Place,
    },
    /// Answers a question.
    Answer {
        /// Which.
        question: Question,
        /// What was found.
        answer: Answer,
    },
    /// A verdict has arrived.
    Noted(Ticket),
    /// What has become of a candidate: for the root. It is said again until it is acknowledged.
    Verdict {
        /// What to acknowledge.
        ticket: Ticket,
        /// The verdict.
        verdict: Verdict,
    },
}
