//! One rank's process: its machine, and the data behind it.

mod lent;
mod outbox;
mod replicas;
mod share;
mod shown;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use everfold_master as master;
use everfold_protocol::{
    ProcessId, Rank, ReductionId, ReductionSpec, RegionOffset, SegmentId, Timestamp,
    board::{Board, Round, Tickets},
    message::{Data, Evidence, Peer, Place, WindowRef},
};
use everfold_worker::{
    machine::Worker, participant::Participant, readers::Readers, window_table::WindowTable,
};

pub use self::share::Ended;
pub(crate) use self::share::Outcome;
use self::{lent::Lent, outbox::Outbox, replicas::Replicas};
pub(crate) use self::{
    lent::Thing,
    share::Share,
    shown::{COPIES, Shown, is_copy, is_in_region, shows_copy},
};
use crate::{
    board::Words,
    events::Happening,
    evidence::{NONSENSE, inlined, ranks_in},
    faults::Damage,
    segments::Kept,
    settings::Settings,
};

/// Windows that a process has at a time.
const WINDOWS_MAX: usize = 1 << 16;

/// A process, alive or dead: what lies in its memory may outlive it.
#[derive(Debug)]
pub(crate) struct Process {
    pub id: ProcessId,
    /// Where it runs.
    pub host: u64,
    /// Its machine and its calls on the board, while it lives.
    pub worker: Option<Participant<Words, Data>>,
    /// The deputy that it hosts, while it lives, and when that is woken up next.
    pub deputy: Option<Deputy>,
    /// Whether it went with its host, without a word.
    pub vanished: bool,
    /// Whether it left its job without a word and lives on: what it has given back is something else now.
    pub lives_on: bool,
    /// Whether its bodies lie in memory of its own rather than in its region.
    pub is_private: bool,
    /// Whether its region has no room: its partials lie in memory of its own.
    pub is_full: bool,
    /// Whether it can open no windows but those on its bodies.
    pub is_windowless: bool,
    /// What it has sent to the master.
    pub outbox: Outbox,
    /// What it shows of its bodies, and of which of its calls.
    pub windows: WindowTable<(ReductionId, Shown)>,
    /// How many reads from other hosts of what it holds in its memory arrive damaged.
    pub garbled: u32,
    /// What of its bytes arrives damaged, however often it is read.
    pub damage: Vec<Damage>,
    /// Whether some of its bytes were damaged when they were read.
    pub was_garbled: bool,
    /// Whether some were that would have been damaged again.
    pub stayed_damaged: bool,
    /// Whether its disk takes no copies.
    pub disk_full: bool,
    /// What waits until it thaws, if it is frozen.
    pub frozen: Option<Vec<Happening>>,
    /// When it is woken up next.
    pub due: Option<Timestamp>,
    /// Its calls.
    pub shares: BTreeMap<ReductionId, Share>,
    /// What its partials hold, in order of folding, where that is more than its own original.
    pub partials: BTreeMap<SegmentId, Vec<Rank>>,
    /// What it has shown of objects, in order.
    pub encoded: Vec<Vec<Rank>>,
    /// Partials that are being written, or were when it died.
    pub writing: BTreeSet<SegmentId>,
    /// What the master does not count on any more: it has told this process to begin afresh, or to hand the
    /// result over.
    pub given_up: BTreeSet<SegmentId>,
    /// Attempts whose reads it waits for no longer.
    pub given_back: BTreeSet<ReductionId>,
    /// Partials that were spoilt.
    pub torn: BTreeSet<SegmentId>,
    /// What it keeps of others.
    pub replicas: Replicas,
    /// Reductions whose windows are closed.
    pub released: BTreeSet<ReductionId>,
    /// Whom it knows to be failed, and what spoke for that.
    pub departed: BTreeMap<ProcessId, Evidence>,
    /// Hosts whose agents it knows to be gone.
    pub hosts_lost: BTreeSet<u64>,
    /// Whose memory it has unmapped.
    pub forgotten: BTreeSet<ProcessId>,
    /// What others read of its bodies.
    pub readers: Readers<Lent>,
    /// Whether its program makes its calls at their times: of one that comes back, once it has made again
    /// what it missed.
    pub plays: bool,
    /// Whether it has got so far that it joins.
    pub joins: bool,
    /// Who is to have the replica of its vault.
    pub keeper: Option<u64>,
    /// Rounds that it leaves once their outcomes are noted.
    pub rounds: BTreeMap<ReductionId, Round<Words>>,
    /// How calls end that it is noting.
    pub noting: BTreeMap<ReductionId, Outcome>,
    /// What it keeps for others to read after its death.
    pub kept: Kept,
    /// Calls whose answers from the log wait until what is noted of them counts.
    pub held_answers: BTreeSet<ReductionId>,
}

/// The master of a team.
#[derive(Debug)]
pub(crate) struct Deputy {
    pub machine: master::Deputy,
    pub due: Option<Timestamp>,
}

impl Process {
    /// A process that is about to join.
    pub fn new(id: ProcessId, settings: &Settings, board: Option<&Arc<Board<Words>>>) -> Self {
        Self::at(settings.host(id.rank), id, settings, board)
    }

    /// A process that is about to join from this host.
    pub fn at(host: u64, id: ProcessId, settings: &Settings, board: Option<&Arc<Board<Words>>>) -> Self {
        let rank = id.rank;
        let peer = Peer {
            process: id,
            host,
            pid: rank.0 + 1,
            region: None,
            bell: settings.board.then_some(0),
            board: settings.board.then_some(0),
            address: String::new(),
            domain: settings.domain(host),
            agent: settings.agent_at(host),
        };
        let mut worker = Participant::new(Worker::new(peer, settings.ranks));
        if let Some(board) = board.filter(|_| !settings.boardless.contains(&rank)) {
            worker.share_board(Tickets::new(rank, board.clone(), settings.policy.limits.board_bytes_max));
        }
        Self {
            id,
            host,
            worker: Some(worker),
            deputy: None,
            vanished: false,
            lives_on: false,
            is_private: settings.private.contains(&rank),
            is_full: settings.full.contains(&rank),
            is_windowless: settings.windowless.contains(&rank),
            outbox: Outbox::default(),
            windows: WindowTable::new(WINDOWS_MAX),
            garbled: 0,
            damage: Vec::new(),
            was_garbled: false,
            stayed_damaged: false,
            disk_full: false,
            frozen: None,
            due: None,
            shares: BTreeMap::new(),
            partials: BTreeMap::new(),
            encoded: Vec::new(),
            writing: BTreeSet::new(),
            given_up: BTreeSet::new(),
            given_back: BTreeSet::new(),
            torn: BTreeSet::new(),
            replicas: Replicas::default(),
            released: BTreeSet::new(),
            departed: BTreeMap::new(),
            hosts_lost: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            readers: Readers::default(),
            plays: id == ProcessId::first(rank),
            joins: id == ProcessId::first(rank),
            keeper: None,
            rounds: BTreeMap::new(),
            noting: BTreeMap::new(),
            kept: Kept::default(),
            held_answers: BTreeSet::new(),
        }
    }

    /// What its partial holds, in order of folding.
    pub fn partial(&self, segment: SegmentId) -> Vec<Rank> {
        self.partials.get(&segment).cloned().unwrap_or_else(|| vec![self.id.rank])
    }

    /// Whether it has a partial of an array, and a window on it.
    pub fn has_partial(&self, reduction: ReductionId) -> bool {
        self.windows.position(|window| *window == (reduction.called(), Shown::Partial)).is_some()
    }

    /// Whether its partial is what it is said to be.
    pub fn is_whole(&self, segment: SegmentId) -> bool {
        !self.writing.contains(&segment) && !self.torn.contains(&segment)
    }

    /// Notes that a task has ended, in whichever way.
    pub fn end_task(&mut self, segment: SegmentId) {
        self.writing.remove(&segment);
        self.given_up.remove(&segment);
    }

    /// What a reader finds behind `data`, which this process has announced: the ranks folded into it, with a
    /// nonsense rank among them where bytes are not what they should be.
    pub fn read(&self, data: &Data, segment: SegmentId) -> Vec<Rank> {
        let window = match data {
            Data::Inline(bytes) => return ranks_in(bytes),
            Data::Window(window) => window,
            Data::Private => return vec![NONSENSE],
        };
        if shows_copy(window) {
            let owner = Rank((window.window.0 - COPIES) as u32);
            let there = self.replicas.has(owner, segment);
            return vec![if there { owner } else { NONSENSE }];
        }
        if self.lives_on && !is_in_region(window) {
            return vec![NONSENSE];
        }
        let Some((_, shown)) = self.windows.find(window.window, window.generation) else {
            return vec![NONSENSE];
        };
        if let Shown::Encoded(number) = shown {
            return self.encoded[*number].clone();
        }
        if *shown == Shown::Original {
            // The result is copied over an array, and goes to the application with it.
            let share = self.shares.get(&segment.reduction.called());
            let array = share.filter(|share| share.spec.kind.array_bytes().is_some());
            let in_place = array.filter(|share| !share.how.beside);
            let result = in_place.and_then(|share| share.collected.get(segment.index.0 as usize));
            let is_half =
                |share: &&Share| share.touched > 0 && share.collected.len() == segment.index.0 as usize;
            return match array {
                Some(share) if share.ended.is_some() => vec![NONSENSE],
                Some(_) if in_place.is_some_and(|share| is_half(&share)) => vec![NONSENSE],
                _ => result.cloned().unwrap_or_else(|| vec![self.id.rank]),
            };
        }
        if *shown == Shown::Result {
            let share = self.shares.get(&segment.reduction).filter(|share| share.is_lent());
            let result = share.and_then(|share| share.collected.get(segment.index.0 as usize));
            return result.cloned().unwrap_or_else(|| vec![NONSENSE]);
        }
        self.partials
            .get(&segment)
            .filter(|_| self.is_whole(segment))
            .cloned()
            .unwrap_or_else(|| vec![NONSENSE])
    }

    /// What it contributes with the call `reduction`.
    pub fn original(&mut self, reduction: ReductionId, spec: &ReductionSpec, inline: bool) -> Data {
        if spec.delivery.root() == Some(self.id.rank) {
            Data::Private
        } else if inline {
            inlined(&[self.id.rank])
        } else {
            let bytes = spec.kind.array_bytes().map_or(100_000, |(bytes, _)| bytes);
            self.window(reduction, Shown::Original, bytes)
        }
    }

    /// The window that shows a body of this length, opened at its first use.
    pub fn window(&mut self, reduction: ReductionId, shown: Shown, bytes: u64) -> Data {
        let key = (reduction.called(), shown);
        let place = match self.is_outside(shown) {
            true => Place::Memory(0),
            false => Place::Region(RegionOffset(u64::from(self.id.rank))),
        };
        let (window, generation) = self.windows.position(|shown| *shown == key).unwrap_or_else(|| {
            self.windows.publish(place, key).expect("it takes part, and has windows enough")
        });
        Data::Window(WindowRef { window, generation, bytes, checksum: None, place })
    }

    /// Whether what it shows lies outside of its region. Partials of arrays lie there if there is room,
    /// wherever bodies do.
    pub fn is_outside(&self, shown: Shown) -> bool {
        if shown == Shown::Partial { self.is_full } else { self.is_private }
    }

    /// Whether what it shows of a call can still be read although it has ended.
    pub fn remains(&self, reduction: ReductionId, shown: Shown) -> bool {
        let is_open = self.windows.position(|window| *window == (reduction, shown)).is_some();
        is_open && !self.is_outside(shown) && !self.released.contains(&reduction)
    }

    /// Whether a copy that it has made of `owner`'s segment can still be read although it has ended.
    pub fn has_left_copy(&self, owner: Rank, segment: SegmentId) -> bool {
        self.replicas.outlives(owner, segment) && !self.released.contains(&segment.reduction)
    }

    /// A window on the object of a call as it is now, which holds `ranks`.
    pub fn encode(&mut self, reduction: ReductionId, ranks: &[Rank]) -> Data {
        self.encoded.push(ranks.to_vec());
        self.window(reduction, Shown::Encoded(self.encoded.len() - 1), 100_000)
    }

    /// Which of its own bodies or partials a window shows, if it is open.
    pub fn shown(&self, window: &WindowRef) -> Option<Shown> {
        self.windows.find(window.window, window.generation).map(|(_, shown)| *shown)
    }

    /// Closes the windows of a call.
    pub fn release(&mut self, reduction: ReductionId) {
        self.released.insert(reduction);
        while let Some((window, generation)) = self.windows.position(|(of, _)| *of == reduction.called()) {
            self.windows.release(window, generation, |_| {});
        }
    }
}
