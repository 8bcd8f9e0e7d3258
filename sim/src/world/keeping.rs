//! How replicas are made and damaged.

use everfold_protocol::{
    ProcessId, Rank, RegionOffset, SegmentId, SegmentIndex, WindowId,
    message::{Data, Keep, Kept, NotKept, Place, Task, WindowRef, Writing},
};
use everfold_worker::machine::Event;
use rand::Rng;

use super::World;
use crate::{
    faults::{Gap, Reach},
    process::{COPIES, is_copy},
    work::{Spent, Work},
};

impl World {
    /// Makes a copy of an original, or fails to.
    pub(super) fn keep(&mut self, process: ProcessId, keep: Keep, mut spent: Spent) {
        let (rank, owner) = (process.rank, keep.source.process);
        let full = self.process(rank).disk_full && keep.how.writing != Writing::Never;
        let full = full || self.process(rank).is_windowless;
        let fails = full || self.courier.random().random_ratio(self.settings.keep_failures, 100);
        let reach = self.reaches(rank, owner, &keep.source.data, keep.reduction);
        let reach = self.with_patience(reach, &mut spent);
        let gap = self.outages.gap(self.home(rank), self.host_of(owner)).filter(|_| reach == Reach::Never);
        if let Some(Gap { at_once, .. }) = gap {
            let met =
                if at_once { "reads for copies that failed" } else { "reads for copies that got no answer" };
            self.copying.meet(met);
        }
        let result = match reach {
            Reach::Later => return self.try_again(process, Work::Keep(keep), spent),
            Reach::Never => Err(NotKept::Unreachable),
            Reach::Gone => {
                self.copying.meet("originals that were gone when they were to be copied");
                Err(NotKept::Gone)
            }
            Reach::Now if self.stays_damaged(rank, owner, &keep.source.data) => {
                self.copying.meet("originals that were damaged when they were to be copied");
                Err(NotKept::Impossible("it is damaged".to_owned()))
            }
            Reach::Now if fails => Err(NotKept::Impossible("the disk is full".to_owned())),
            Reach::Now => {
                let segment = |index| SegmentId { reduction: keep.reduction, index: SegmentIndex(index) };
                let keeper = self.process_mut(rank);
                let in_region = keep.how.writing == Writing::Never;
                let replicas = &mut keeper.replicas;
                let keeps = |index| replicas.keep(owner.rank, segment(index), in_region);
                keep.segments.clone().for_each(keeps);
                let window = WindowId(COPIES + u64::from(owner.rank));
                let Data::Window(original) = &keep.source.data else {
                    unreachable!("only windows are copied")
                };
                let place = if in_region { Place::Region(RegionOffset(0)) } else { Place::Served };
                Ok(Data::Window(WindowRef { window, place, ..original.clone() }))
            }
        };
        let Keep { reduction, segments, .. } = keep;
        self.tell_worker(rank, Event::Kept(Kept { reduction, owner, segments, result }));
    }

    /// Damages what a rank keeps of others by now; the next who reads it sees that.
    pub(super) fn damage_copies(&mut self, rank: Rank) {
        self.process_mut(rank).replicas.damage_all();
    }

    /// Notes that copies which `task` reads from one keeper have arrived damaged, or what was read beside
    /// them.
    pub(super) fn doubt_sources(&mut self, keeper: ProcessId, task: &Task) {
        let of_keeper = task.sources.iter().filter(|source| source.process == keeper && is_copy(source));
        let owners = of_keeper.filter_map(|source| source.path.first());
        let replicas = &mut self.of_mut(keeper).replicas;
        owners.for_each(|owner| replicas.doubt(owner, task.segment));
    }

    /// Damages all copies that `task` reads from one keeper: it is told who has damaged ones, not which.
    pub(super) fn damage_sources(&mut self, keeper: ProcessId, task: &Task) {
        let of_keeper = task.sources.iter().filter(|source| source.process == keeper && is_copy(source));
        let owners = of_keeper.filter_map(|source| source.path.first());
        let replicas = &mut self.of_mut(keeper).replicas;
        owners.for_each(|owner| replicas.damage(owner, task.segment));
    }
}
