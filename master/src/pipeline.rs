//! How a long piece goes from host to host, so that each link carries it about once.
//!
//! The piece is cut into parts. The owner's link carries each part to one host alone, which lends it to the others:
//! so each host receives every part once, and sends each to the others at most once. On each host one rank reads a
//! part from abroad, and its neighbours read it there. Hosts are given parts as they finish others, so a slow one
//! is given few.
//!
//! It knows processes, parts, and which process has which part. Deaths are in `reduction::pipelined`: the
//! pipeline is given up, and all ranks read the parts that they lack from the owner.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use everfold_protocol::{ProcessId, message::ByteRange};

/// Parts that a host has on their way from the owner at a time: one is read while the next is asked for.
const UNDER_WAY: usize = 2;

/// Whose reads are under way.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    bytes: u64,
    part_bytes: u64,
    /// The processes that receive, by host.
    hosts: Vec<Vec<ProcessId>>,
    /// The host that has read each part from the owner, or reads it: of the first parts so far.
    entries: Vec<usize>,
    /// The process that reads each part, and the lender that it reads from, if not the owner.
    reads: BTreeMap<(ProcessId, u64), Option<ProcessId>>,
    receivers: BTreeMap<ProcessId, Receiver>,
    /// Receivers that have the whole, and are to keep it as others still read from them.
    kept: BTreeSet<ProcessId>,
    /// Whether no process is told of parts any more.
    is_over: bool,
    /// Whether a read has ended since [`stands_still`](Self::stands_still) was asked last.
    moves: bool,
}

#[derive(Clone, Debug)]
struct Receiver {
    host: usize,
    /// How many parts it has been told of.
    told: u64,
    /// How many reads are under way from it.
    readers: usize,
}

/// A part is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    /// By whom.
    pub reader: ProcessId,
    /// The part.
    pub range: ByteRange,
    /// Where: at this receiver, or at the owner.
    pub from: Option<ProcessId>,
}

impl Pipeline {
    /// A pipeline for a piece of `bytes` bytes to the processes of these hosts, in parts of `part_bytes`.
    /// `None` if that is no better than each process reading all of it from the owner.
    pub fn new(bytes: u64, part_bytes: u64, hosts: Vec<Vec<ProcessId>>) -> Option<Self> {
        let on = |(host, processes): (usize, &Vec<ProcessId>)| {
            processes
                .iter()
                .map(move |process| (*process, Receiver { host, told: 0, readers: 0 }))
                .collect::<Vec<_>>()
        };
        let receivers: BTreeMap<_, _> = hosts.iter().enumerate().flat_map(on).collect();
        (receivers.len() > 1 && part_bytes > 0 && part_bytes < bytes).then(|| Self {
            bytes,
            part_bytes,
            hosts,
            entries: Vec::new(),
            reads: BTreeMap::new(),
            receivers,
            kept: BTreeSet::new(),
            is_over: false,
            moves: true,
        })
    }

    /// The reads that it begins with.
    pub fn begin(&mut self) -> Vec<Read> {
        let mut reads = Vec::new();
        for _ in 0..UNDER_WAY {
            (0..self.hosts.len()).for_each(|host| self.enter(host, &mut reads));
        }
        reads
    }

    /// Takes in that `reader` has the part that begins at `start`. Returns the reads that this allows.
    pub fn advance(&mut self, reader: ProcessId, start: u64) -> Vec<Read> {
        let mut reads = Vec::new();
        let Some(from) = self.finish((reader, start)) else { return reads };
        self.moves = true;
        if self.is_over {
            return reads;
        }
        let part = start / self.part_bytes;
        let host = self.receivers[&reader].host;
        if from.is_none() {
            let others = (0..self.hosts.len()).filter(|other| *other != host);
            let readers: Vec<_> = others.map(|other| self.reader(other, part)).collect();
            readers.into_iter().for_each(|other| reads.push(self.read(other, part, Some(reader))));
            self.enter(host, &mut reads);
        }
        if reader == self.reader(host, part) {
            let neighbours: Vec<_> = self.hosts[host].iter().copied().filter(|it| *it != reader).collect();
            neighbours.into_iter().for_each(|other| reads.push(self.read(other, part, Some(reader))));
        }
        reads
    }

    /// Whether this receiver has been told of all parts.
    pub fn has_told(&self, receiver: ProcessId) -> bool {
        self.receivers.get(&receiver).is_none_or(|receiver| receiver.told == self.parts())
    }

    /// Whether `process` receives from it.
    pub fn contains(&self, process: ProcessId) -> bool {
        self.receivers.contains_key(&process)
    }

    /// Whether it was given up.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Keeps `lender`, which has the whole, if others read from it. Returns whether it did.
    pub fn keep(&mut self, lender: ProcessId) -> bool {
        let is_read = self.is_read(lender);
        is_read && self.kept.insert(lender)
    }

    /// Takes the lenders that were kept and from which no process reads any more.
    pub fn take_idle(&mut self) -> Vec<ProcessId> {
        let idle: Vec<_> = self.kept.iter().copied().filter(|lender| !self.is_read(*lender)).collect();
        self.kept.retain(|lender| !idle.contains(lender));
        idle
    }

    /// Takes in that `reader` reads no parts any more: those that it was told of have come, or it is dead.
    pub fn stop(&mut self, reader: ProcessId) {
        let reads: Vec<_> =
            self.reads.range((reader, 0)..=(reader, u64::MAX)).map(|(read, _)| *read).collect();
        for read in reads {
            self.finish(read);
        }
        self.kept.remove(&reader);
    }

    /// Takes in that `reader` could not have the part that begins at `start`.
    pub fn miss(&mut self, reader: ProcessId, start: u64) {
        self.finish((reader, start));
    }

    /// Tells no process of parts any more. Returns the receivers that were not told of all parts. Reads under
    /// way go on.
    pub fn give_up(&mut self) -> Vec<ProcessId> {
        let untold =
            self.receivers.keys().copied().filter(|receiver| !self.is_over && !self.has_told(*receiver));
        let untold = untold.collect();
        self.is_over = true;
        untold
    }

    /// Whether no read has ended since this was asked last.
    pub fn stands_still(&mut self) -> bool {
        !core::mem::take(&mut self.moves)
    }

    fn parts(&self) -> u64 {
        self.bytes.div_ceil(self.part_bytes)
    }

    fn is_read(&self, lender: ProcessId) -> bool {
        self.receivers.get(&lender).is_some_and(|lender| lender.readers > 0)
    }

    /// Takes in that a read is over. Returns from whom it was, if it was under way.
    fn finish(&mut self, read: (ProcessId, u64)) -> Option<Option<ProcessId>> {
        let from = self.reads.remove(&read)?;
        if let Some(lender) = from.and_then(|from| self.receivers.get_mut(&from)) {
            lender.readers -= 1;
        }
        Some(from)
    }

    /// The rank of a host that reads a part from abroad: they take turns.
    fn reader(&self, host: usize, part: u64) -> ProcessId {
        let ranks = &self.hosts[host];
        let turn = part / self.hosts.len() as u64;
        ranks[(turn % ranks.len() as u64) as usize]
    }

    /// Lets a host read the next part from the owner, if there is one.
    fn enter(&mut self, host: usize, reads: &mut Vec<Read>) {
        let part = self.entries.len() as u64;
        if part < self.parts() {
            self.entries.push(host);
            reads.push(self.read(self.reader(host, part), part, None));
        }
    }

    fn read(&mut self, reader: ProcessId, part: u64, from: Option<ProcessId>) -> Read {
        let start = part * self.part_bytes;
        self.reads.insert((reader, start), from);
        self.receivers.get_mut(&reader).expect("only receivers read").told += 1;
        if let Some(from) = from {
            self.receivers.get_mut(&from).expect("only receivers lend").readers += 1;
        }
        Read { reader, range: ByteRange { start, len: self.part_bytes.min(self.bytes - start) }, from }
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::VecDeque;

    use everfold_protocol::Rank;

    use super::*;

    /// Hosts with these numbers of receivers; the owner is on another host.
    fn hosts(receivers: &[u32]) -> Vec<Vec<ProcessId>> {
        let mut ranks = (1..).map(|rank| ProcessId::first(Rank(rank)));
        receivers.iter().map(|count| ranks.by_ref().take(*count as usize).collect()).collect()
    }

    /// What goes over the link of each host, in and out, and over the owner's, if reads end in turn.
    #[derive(Debug, PartialEq)]
    struct Traffic {
        owner: u64,
        links: Vec<(u64, u64)>,
    }

    fn run(pipeline: &mut Pipeline, hosts: &[Vec<ProcessId>]) -> Traffic {
        let host = |process: ProcessId| hosts.iter().position(|host| host.contains(&process)).unwrap();
        let mut traffic = Traffic { owner: 0, links: vec![(0, 0); hosts.len()] };
        let mut has: BTreeSet<(ProcessId, u64)> = BTreeSet::new();
        let mut under_way: VecDeque<Read> = pipeline.begin().into();
        while let Some(Read { reader, range, from }) = under_way.pop_front() {
            match from {
                None => traffic.owner += range.len,
                Some(lender) => {
                    assert!(has.contains(&(lender, range.start)), "only what is there is read");
                    if host(lender) != host(reader) {
                        traffic.links[host(lender)].1 += range.len;
                    }
                }
            }
            if from.is_none_or(|lender| host(lender) != host(reader)) {
                traffic.links[host(reader)].0 += range.len;
            }
            assert!(has.insert((reader, range.start)), "nothing is read twice");
            under_way.extend(pipeline.advance(reader, range.start));
        }
        for process in hosts.iter().flatten() {
            assert!(pipeline.has_told(*process));
            assert_eq!(has.iter().filter(|(it, _)| it == process).count() as u64, pipeline.parts());
        }
        traffic
    }

    #[test]
    fn each_link_carries_the_piece_once() {
        for receivers in [&[1, 1, 1][..], &[4, 4, 4], &[2], &[1, 3]] {
            let hosts = hosts(receivers);
            let mut pipeline = Pipeline::new(1000, 30, hosts.clone()).unwrap();
            let Traffic { owner, links } = run(&mut pipeline, &hosts);
            assert_eq!(owner, 1000, "{receivers:?}");
            for (received, sent) in links {
                assert_eq!(received, 1000);
                assert!(sent <= 1000);
            }
        }
    }

    #[test]
    fn a_slow_host_is_given_few_parts() {
        let hosts = hosts(&[1, 1]);
        let mut pipeline = Pipeline::new(100, 10, hosts.clone()).unwrap();
        let (slow, quick) = (hosts[0][0], hosts[1][0]);
        let (given, mut under_way): (Vec<_>, Vec<_>) =
            pipeline.begin().into_iter().partition(|read| read.reader == slow);
        while let Some(read) = under_way.pop() {
            under_way.extend(
                pipeline.advance(quick, read.range.start).into_iter().filter(|it| it.reader == quick),
            );
        }
        let from_owner =
            |reader| pipeline.reads.iter().filter(|((it, _), from)| *it == reader && from.is_none()).count();
        assert_eq!((given.len(), from_owner(slow)), (UNDER_WAY, UNDER_WAY));
    }

    #[test]
    fn a_lender_is_kept_until_nobody_reads_from_it() {
        let hosts = hosts(&[1, 1]);
        let mut pipeline = Pipeline::new(20, 10, hosts.clone()).unwrap();
        let [a, b] = [hosts[0][0], hosts[1][0]];
        let lent = pipeline
            .begin()
            .into_iter()
            .filter(|read| read.reader == a)
            .flat_map(|read| pipeline.clone().advance(a, read.range.start));
        assert!(lent.count() > 0);
        pipeline.advance(a, 0);
        assert!(pipeline.keep(a), "b reads the first part there");
        assert_eq!(pipeline.take_idle(), []);
        pipeline.advance(b, 0);
        assert_eq!(pipeline.take_idle(), [a]);
        assert!(!pipeline.keep(a));
    }

    #[test]
    fn a_lender_is_kept_for_reads_that_were_under_way_when_all_was_given_up() {
        let hosts = hosts(&[1, 1]);
        let mut pipeline = Pipeline::new(100, 10, hosts.clone()).unwrap();
        let [a, b] = [hosts[0][0], hosts[1][0]];
        pipeline.begin();
        pipeline.advance(a, 0);
        assert_eq!(pipeline.give_up(), [a, b]);
        assert_eq!(pipeline.give_up(), []);
        assert!(pipeline.keep(a), "b reads the first part there");
        assert_eq!(pipeline.advance(b, 10), []);
        assert_eq!(pipeline.take_idle(), []);
        pipeline.stop(b);
        assert_eq!(pipeline.take_idle(), [a]);
    }

    #[test]
    fn what_one_rank_alone_receives_goes_there_at_once() {
        assert!(Pipeline::new(1000, 30, hosts(&[1])).is_none());
        assert!(Pipeline::new(1000, 1000, hosts(&[1, 1])).is_none());
        assert!(Pipeline::new(1000, 30, Vec::new()).is_none());
    }

    #[test]
    fn what_is_said_twice_changes_nothing() {
        let hosts = hosts(&[1, 1]);
        let mut pipeline = Pipeline::new(100, 10, hosts.clone()).unwrap();
        pipeline.begin();
        assert!(!pipeline.stands_still() && pipeline.stands_still());
        assert!(!pipeline.advance(hosts[0][0], 0).is_empty());
        assert!(pipeline.advance(hosts[0][0], 0).is_empty());
        assert!(!pipeline.stands_still());
    }
}
