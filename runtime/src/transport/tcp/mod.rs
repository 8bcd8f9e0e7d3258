//! One-sided reads from anywhere: a client that asks, and a server that answers from its windows.
//!
//! The server runs on the worker's I/O thread; the application computes on. There is one connection per
//! reader and owner. Requests are sent without waiting for answers, and answered in the order in which they
//! came: what was asked for first is complete first, however much is under way. Only what has to be read from
//! a disk comes when it is there.
//!
//! | module | holds |
//! |---|---|
//! | `words` | requests and answers |
//! | `client` | one reader's connections |
//! | `conversation` | asking and hearing over one of them |
//! | `pending` | the reads under way over one of them |
//! | `patience` | when a connection that brings nothing is given up |
//! | `server` | answers from the owner's windows |

mod client;
mod conversation;
mod patience;
mod pending;
mod server;
mod words;

pub use self::{client::Tcp, server::serve};
