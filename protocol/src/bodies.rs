//! Which messages carry bodies that are worth sending without a copy (see [`parcel`](crate::parcel)).

use bytes::Bytes;

use crate::{
    message::{Data, FromAgent, Task, ToAgent, ToMaster, ToWorker},
    parcel::Carry,
};

impl Carry for Data {
    fn each_body(&mut self, visit: &mut dyn FnMut(&mut Bytes)) {
        match self {
            Self::Inline(body) => visit(body),
            Self::Window(_) | Self::Private => {}
        }
    }
}

impl Carry for Task {
    fn each_body(&mut self, visit: &mut dyn FnMut(&mut Bytes)) {
        self.sources.iter_mut().for_each(|source| source.data.each_body(visit));
    }
}

impl Carry for ToMaster {
    fn each_body(&mut self, visit: &mut dyn FnMut(&mut Bytes)) {
        match self {
            Self::Contribute(contribution) => contribution.data.each_body(visit),
            Self::PartialReady(partial) => partial.data.each_body(visit),
            _ => {}
        }
    }
}

impl Carry for ToWorker {
    fn each_body(&mut self, visit: &mut dyn FnMut(&mut Bytes)) {
        match self {
            Self::Task(task) => task.each_body(visit),
            Self::Finished(finished) => {
                finished.result.iter_mut().for_each(|piece| piece.data.each_body(visit));
                finished.last.iter_mut().for_each(|task| task.each_body(visit));
            }
            _ => {}
        }
    }
}

impl Carry for ToAgent {
    fn each_body(&mut self, _: &mut dyn FnMut(&mut Bytes)) {}
}

impl Carry for FromAgent {
    fn each_body(&mut self, _: &mut dyn FnMut(&mut Bytes)) {}
}
