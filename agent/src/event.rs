//! What goes into an agent's machine, and what comes out.

use everfold_protocol::{
    ProcessId,
    message::{Ending, FromAgent, Lodging, Origin, ToAgent},
    spec::Limits,
};
use serde::Serialize;

/// A connection of a process to its agent. Late events of an earlier connection are not taken for events of
/// the present one: a process may have come again in the meantime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// Whose it is.
    pub process: ProcessId,
    /// Tells it from all others of this agent.
    pub number: u64,
}

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Event {
    /// A process of this host wants its memory held.
    Hailed(Connection),
    /// The master that this process has brought along runs here.
    MasterStarted(Connection),
    /// It cannot run here; the process was told.
    MasterFailed,
    /// A process that was welcomed has closed its connection. It may live on.
    HungUp(Connection),
    /// The process behind a connection has ended, and it was not seen how.
    Vanished(Connection),
    /// A process that was started here has ended.
    Ended(ProcessId, Ending),
    /// The master is looked for: [`MasterFound`](Self::MasterFound) or [`MasterLost`](Self::MasterLost)
    /// follows.
    MasterSought,
    /// The way to the master is open. This host offers that to ranks of others.
    MasterFound(Lodging),
    /// The master said something.
    Master(ToAgent),
    /// The master says nothing more.
    MasterLost,
    /// No more processes come.
    Alone,
    /// The first process of a rank of this host was started.
    Started(ProcessId),
}

/// Something is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Become the host of the master, which this process brings along.
    HostMaster(Connection),
    /// Hold the memory of this process, and say so.
    Welcome(ProcessId),
    /// Another process has this place, or is to have it as a later process of its rank, or this one was seen
    /// to end: refuse this one.
    Refuse(ProcessId),
    /// There is no master any more, and will be none: refuse this process.
    TurnAway(ProcessId),
    /// Tell the master.
    Tell(FromAgent),
    /// Hang up on all processes here: the master is lost, which some of them may look for.
    HangUp,
    /// Hold the memory of this process no longer, but for its kept state.
    Release(ProcessId),
    /// It was [released](Self::Release), and has ended: give its memory back to the system, but for its kept
    /// state.
    Thin(ProcessId),
    /// Start this process; its [end](Event::Ended) is told in any case, also if it cannot be started.
    Start {
        /// Which.
        process: ProcessId,
        /// Where its vault comes from, if that is not the one on this host.
        origin: Option<Origin>,
        /// Whether it stands by: it follows the process at that origin, and sends nothing.
        stands_by: bool,
    },
    /// This process, which stands by, takes the place of the one that it has followed: it has all that it can
    /// have of that one.
    Promote(ProcessId),
    /// End this process, which was started here and is not needed; its [end](Event::Ended) is told in any
    /// case.
    End(ProcessId),
    /// The rank of this process goes on on another host: how it has ended here does not count.
    Forgive(ProcessId),
    /// The master has taken this agent in: that holds in the job.
    Hold(Limits),
    /// Hold the replica of this process's vault no longer.
    DropReplica(ProcessId),
    /// The process that was to bring the master along has ended before it came, and another one has come:
    /// there will be no job.
    Masterless,
    /// The process that was to bring the master along has ended before it came, and other hosts wait for that:
    /// become the host of a master that tells them.
    CallOff,
    /// Look for the master, however long that takes, unless that is under way.
    /// [`MasterFound`](Event::MasterFound) or [`MasterLost`](Event::MasterLost) follows.
    SeekMaster,
    /// The same, but from now on only for a while: nobody is left here that needs it.
    SeekMasterBriefly,
    /// Nothing is left to do.
    Done,
}
