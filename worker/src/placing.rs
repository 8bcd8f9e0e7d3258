//! What a rank does with the board of its job.

use std::{io, sync::Arc};

use everfold_protocol::{
    Rank,
    message::{Contribution, Finished, Peer},
};

use crate::{
    board::{Tickets, can_have},
    memory::board::{self, Bells, OwnBoard, SharedWords, now},
};

/// The board, and the way to wake the others up.
pub(crate) struct Placing {
    me: Rank,
    tickets: Tickets<SharedWords>,
    bells: Arc<Bells>,
}

impl Placing {
    /// The board of the job of these processes, if they can have one; `own` in the process that has made it.
    pub fn open(me: Rank, own: Option<&OwnBoard>, peers: &[Peer]) -> Option<Self> {
        let open = || {
            let bells = Arc::new(Bells::open(peers)?);
            own.iter().for_each(|own| own.meet(&bells));
            let board = own.map_or_else(|| board::open(peers), |own| Ok(own.board().clone()))?;
            Ok(Self { me, tickets: Tickets::new(me, board), bells })
        };
        let opened: io::Result<Self> = can_have(peers).then(open)?;
        // Without it everything still works with messages.
        opened.inspect_err(|error| tracing::warn!(%error, "no board")).ok()
    }

    /// Puts a contribution on the board. Returns what is complete with it, or `None` if the master is to be told.
    pub fn place(&mut self, contribution: &Contribution) -> Option<Vec<Finished>> {
        let completes = self.tickets.place(now(), contribution)?;
        if !completes {
            return Some(Vec::new());
        }
        self.bells.ring_all_but(self.me);
        Some(self.look())
    }

    /// Takes what is complete.
    pub fn look(&mut self) -> Vec<Finished> {
        self.tickets.look(now())
    }
}
