//! A piece that goes from host to host in a [pipeline](crate::pipeline).
//!
//! Parts are copied *beforehand*: once a receiver was told of all parts, it is told where the result lies,
//! and then copies the parts that it lacks. So a pipeline only saves time. If a process in it dies, a part
//! cannot be had, or no part comes for a while, it is given up, and all ranks go on as if there had been
//! none.

use alloc::{collections::BTreeMap, vec::Vec};

use everfold_protocol::{
    Path, ProcessId, ReductionId, SegmentIndex, Timestamp,
    message::{Data, Piece, Prefetch, Prefetched, ToWorker},
    pieces::Pattern,
};

use super::Reduction;
use crate::{
    desk::Desk,
    pipeline::{Pipeline, Read},
    queue::Ready,
    timers::Timer,
};

/// A pipeline, and where its parts are read.
#[derive(Clone, Debug)]
pub(super) struct Pipelined {
    pipeline: Pipeline,
    /// The owner's piece.
    source: Ready,
    /// What each receiver shows of it.
    shown: BTreeMap<ProcessId, Data>,
    /// When it is looked whether anything comes of it.
    due: Timestamp,
}

impl Reduction {
    /// Lets the result go to `ranks` in a pipeline, if that saves their links anything.
    pub(crate) fn begin_pipeline(&mut self, id: ReductionId, ranks: &Path, desk: &mut Desk) {
        let Some(source) = self.source_of_pipeline() else { return };
        let (members, policy) = (&desk.members, &desk.policy);
        if !members.lives(source.process) {
            return;
        }
        let home = members.host(source.process.rank);
        let mut hosts: BTreeMap<_, Vec<ProcessId>> = BTreeMap::new();
        for process in members.processes_of(ranks) {
            let host = members.host(process.rank);
            if host != home && self.has_caller(process.rank) {
                hosts.entry(host).or_default().push(process);
            }
        }
        let bytes = source.data.len();
        let pipeline =
            Pipeline::new(bytes, policy.part_bytes(bytes, ranks.len()), hosts.into_values().collect());
        let Some(mut pipeline) = pipeline else { return };
        let reads = pipeline.begin();
        let due = desk.now + policy.pipeline_patience();
        desk.timers.set(due, Timer::Pipeline(id));
        self.pipelined = Some(Pipelined { pipeline, source, shown: BTreeMap::new(), due });
        self.order_reads(id, reads, desk);
    }

    /// The only piece that all receive, if it is read from a window, and nothing has gone wrong so far.
    fn source_of_pipeline(&self) -> Option<Ready> {
        let pattern = self.spec.kind.pattern().filter(|pattern| matches!(pattern, Pattern::Broadcast(_)))?;
        let is_quiet =
            self.missing.is_empty() && self.account.is_quiet() && self.handout.have_it().is_empty();
        let results = &self.segments[SegmentIndex(0)].result;
        let piece = results.iter().find(|piece| piece.path.first() == pattern.source())?;
        (is_quiet && matches!(piece.data, Data::Window(_))).then(|| (**piece).clone())
    }

    /// Whether `process` is told where the result lies when it was told of all parts.
    pub(crate) fn is_in_pipeline(&self, process: ProcessId) -> bool {
        self.pipelined.as_ref().is_some_and(|it| it.pipeline.contains(process))
    }

    /// When it is looked whether anything comes of the pipeline.
    pub(super) fn pipeline_due(&self) -> Option<Timestamp> {
        self.pipelined.as_ref().filter(|it| !it.pipeline.is_over()).map(|it| it.due)
    }

    /// Takes in what became of a part that `sender` was to copy. Returns false if it could not have it.
    pub(crate) fn advance(&mut self, sender: ProcessId, part: Prefetched, desk: &mut Desk) -> bool {
        let Prefetched { reduction: id, start, body } = part;
        let Some(Pipelined { pipeline, shown, .. }) = &mut self.pipelined else { return true };
        let is_had = body.is_some();
        match body {
            None => pipeline.miss(sender, start),
            Some(body) => {
                shown.insert(sender, body);
                let reads = pipeline.advance(sender, start);
                self.order_reads(id, reads, desk);
            }
        }
        self.hand_over_idle(id, desk);
        is_had
    }

    /// Takes in that `reader` reads no parts any more.
    pub(crate) fn stop_prefetching(&mut self, id: ReductionId, reader: ProcessId, desk: &mut Desk) {
        if let Some(Pipelined { pipeline, .. }) = &mut self.pipelined {
            pipeline.stop(reader);
            self.hand_over_idle(id, desk);
        }
    }

    /// Hands the result over at ranks that have it, and were kept for others that read from them.
    fn hand_over_idle(&mut self, id: ReductionId, desk: &mut Desk) {
        let Some(Pipelined { pipeline, .. }) = &mut self.pipelined else { return };
        for lender in pipeline.take_idle() {
            desk.outbox.send(lender, ToWorker::HandOver { reduction: id });
        }
    }

    /// Has parts read, and tells those where the result lies that were told of all parts.
    fn order_reads(&mut self, id: ReductionId, reads: Vec<Read>, desk: &mut Desk) {
        let Some(Pipelined { pipeline, source, shown, .. }) = &self.pipelined else { return };
        let bytes = source.data.len();
        let mut orders: BTreeMap<ProcessId, Vec<Piece>> = BTreeMap::new();
        for Read { reader, range, from } in reads {
            let process = from.unwrap_or(source.process);
            let data = from.map_or(&source.data, |lender| &shown[&lender]).clone();
            orders.entry(reader).or_default().push(Piece { range, process, data });
        }
        let is_told = orders.keys().copied().filter(|reader| pipeline.has_told(*reader)).collect::<Vec<_>>();
        for (reader, parts) in orders {
            desk.outbox.send(reader, ToWorker::Prefetch(Prefetch { reduction: id, bytes, parts }));
        }
        for reader in is_told {
            self.tell_result(id, reader, desk);
        }
    }

    /// Whether others still read from `lender`, which has the whole result and is to keep it until they have done.
    pub(crate) fn keeps_for_pipeline(&mut self, lender: ProcessId) -> bool {
        self.pipelined.as_mut().is_some_and(|it| it.pipeline.keep(lender))
    }

    /// Looks whether anything has come of the pipeline. Returns false if not.
    pub(crate) fn look_after_pipeline(&mut self, id: ReductionId, desk: &mut Desk) -> bool {
        let Some(Pipelined { pipeline, due, .. }) = &mut self.pipelined else { return true };
        if pipeline.stands_still() {
            return false;
        }
        *due = desk.now + desk.policy.pipeline_patience();
        desk.timers.set(*due, Timer::Pipeline(id));
        true
    }

    /// Whether a pipeline needs one of these.
    pub(crate) fn has_in_pipeline(&self, processes: &[ProcessId]) -> bool {
        let needs = |it: &Pipelined, process| it.pipeline.contains(process) || it.source.process == process;
        self.pipelined.as_ref().is_some_and(|it| processes.iter().any(|process| needs(it, *process)))
    }

    /// Gives the pipeline up. Receivers that were not told where the result lies wait to hear it, and those that
    /// lend parts keep them as long as they are read. Returns whether there was one.
    pub(crate) fn give_up_pipeline(&mut self, id: ReductionId, desk: &mut Desk) -> bool {
        let Some(Pipelined { pipeline, due, .. }) = &mut self.pipelined else { return false };
        let was_over = pipeline.is_over();
        desk.timers.call_off(*due, Timer::Pipeline(id));
        for receiver in pipeline.give_up().into_iter().filter(|receiver| desk.members.lives(*receiver)) {
            self.handout.ask_again(receiver.rank);
        }
        !was_over
    }

    /// Forgets the pipeline: another result takes the place of this one. A rank that has this one keeps it
    /// until the end.
    pub(crate) fn forget_pipeline(&mut self, id: ReductionId, desk: &mut Desk) {
        self.give_up_pipeline(id, desk);
        self.pipelined = None;
    }
}
