//! `everfold bench`: measures reductions on this machine.

mod bound;
mod compare;
mod detect;
mod open;
mod rank;
mod reduce;

pub use self::{
    compare::{Compare, CompareRank, SocketsRank},
    detect::{Detect, DetectRank},
    open::{Open, OpenRank},
    rank::RankArguments,
    reduce::Reduce,
};
