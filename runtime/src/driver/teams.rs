//! Messages to deputies, and from the deputy here (see [`crate::deputies`]).

use std::sync::Arc;

use everfold_protocol::{ProcessId, message::ToMaster, spec::Limits};
use everfold_worker::machine::Event;
use tokio::sync::mpsc as tokio_mpsc;

use super::Driver;
use crate::transport::{control::BoxStream, handshake::Seals};

impl Driver {
    /// Tells a deputy something.
    pub(super) fn say(self: &Arc<Self>, deputy: ProcessId, message: ToMaster, limits: Limits) {
        let Some(messages) = self.deputies.say(deputy, message) else { return };
        let driver = self.clone();
        self.runtime.spawn(async move {
            if let Some(peer) = driver.peers.find(deputy) {
                let each = |task| driver.take(Event::Deputy(deputy, task));
                driver.deputies.talk(peer, messages, limits, each).await;
            }
            driver.take(Event::DeputyLost(deputy));
        });
    }

    /// Lets members of the team here talk with its deputy. They may know of each other before this process
    /// knows of the job.
    pub(super) async fn host(
        self: Arc<Self>,
        mut members: tokio_mpsc::UnboundedReceiver<(ProcessId, BoxStream, Seals)>,
    ) {
        self.met.notified().await;
        while let Some((member, stream, seals)) = members.recv().await {
            let (driver, limits) = (self.clone(), self.lock().limits);
            tokio::spawn(async move {
                let (now, report) = (|| driver.now(), |reports| driver.report(reports));
                driver.deputies.host(member, (stream, seals), limits, now, report).await;
            });
        }
    }

    /// Passes the reports of the deputy here on to the master, and wakes up for its next timer.
    pub(super) fn report(self: &Arc<Self>, reports: Vec<ToMaster>) {
        let mut inner = self.lock();
        reports.into_iter().for_each(|report| inner.outlet.push(report));
        self.send(&mut inner);
        self.wake.notify_one();
    }
}
