//! A job from its beginning to its end, and again when all ranks go back to a checkpoint.

use std::{collections::BTreeMap, time::Duration};

use everfold_protocol::{JobId, ProcessId, message::Ending, units::Times};
use nix::sys::signal::Signal;
use tokio::{
    net::TcpSocket,
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    Local, LocalError, OUTPUT_LOST,
    failures::Failures,
    process::{Process, Stops},
    signals::{Signals, outlast},
};
use crate::{
    agent::{AgentConfig, AgentThread, Ends, ToParent},
    descriptors,
    launch::{
        JobEvent,
        environment::{DOMAIN, Environment},
        output::{Output, Sink},
        rollback::{Next, Rollbacks},
    },
    locating::{self, Told},
    transport::handshake::Key,
};

/// How many located faults are told when the job has ended.
const SUMMARY_MAX: usize = 10;

impl Local {
    pub(super) async fn supervise(self) -> Result<u8, LocalError> {
        let signals = Signals::listen()?;
        // The processes inherit it, as rank 0 has to talk to them all.
        descriptors::raise_limit();
        let size = self.hosts.as_ref().map_or(1, |hosts| hosts.count).saturating_mul(self.ranks);
        let output = Output::start(size, self.prefix, self.quiet)?;
        let notices = (!self.quiet).then(|| output.stderr.sink());
        let (orders, orders_seen) = watch::channel(None);
        let failures = Failures::default();
        let mut rollbacks = self.rollback.clone().map(Rollbacks::new);
        let mut run = self.begin(0, &output).await?;

        let all_ended = async {
            loop {
                let attending = Attending {
                    orders: orders_seen.clone(),
                    failures: failures.clone(),
                    notices: notices.clone(),
                };
                let has_failed = self.attend(run, attending, &output).await;
                let is_ordered = orders_seen.borrow().is_some();
                let Some(rollbacks) = rollbacks.as_mut().filter(|_| has_failed && !is_ordered) else { break };
                let Some(pause) = self.go_back(rollbacks, &notices) else { break };
                let mut orders = orders_seen.clone();
                tokio::select! {
                    _ = orders.wait_for(Option::is_some) => break,
                    () = tokio::time::sleep(pause) => {}
                }
                match self.begin(rollbacks.all(), &output).await {
                    Ok(next) => run = next,
                    Err(error) => {
                        let notice = format!("everfold: the ranks cannot be started again: {error}\n");
                        notices.iter().for_each(|notices| notices.try_send(notice.clone()));
                        break;
                    }
                }
                failures.forget();
            }
            if output.finish().await {
                // After all failures of processes, which count first.
                failures.note(ProcessId::first(u32::MAX), OUTPUT_LOST);
            }
        };

        let ended_by = outlast(all_ended, signals, orders, notices.clone()).await;
        Ok(match ended_by {
            Some(signal) => 128 + signal as u8,
            // Those who survive may be on other hosts.
            None if self.hosts.is_some() => failures.first().unwrap_or(0),
            None => failures.first().or(failures.first_death()).unwrap_or(0),
        })
    }

    /// Starts an agent and all processes, or none.
    async fn begin(&self, rollbacks: u32, output: &Output) -> Result<Run, LocalError> {
        let (mut job, port) = self.found_job()?;
        job.job = JobId(job.job.0 ^ u64::from(rollbacks).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (agent, asked) = self.start_agent(&job)?;
        let ends = agent.ends();
        let processes = self.start_all(rollbacks, &job, output).await?;
        Ok(Run { rollbacks, job, _port: port, agent, ends, asked, processes })
    }

    /// The agent of the ranks that are about to be started, and what it asks for.
    fn start_agent(
        &self,
        job: &Environment,
    ) -> Result<(AgentThread, mpsc::UnboundedReceiver<ToParent>), LocalError> {
        let (parent, asked) = mpsc::unbounded_channel();
        let config = AgentConfig {
            name: job.agent.clone().unwrap_or_default(),
            job: job.job,
            key: Key(*job.secret.bytes()),
            size: job.size,
            rendezvous: job.rendezvous.parse()?,
            parent: Some(parent),
            has_others: self.hosts.is_some(),
            is_first: self.hosts.as_ref().is_some_and(|hosts| hosts.index == 0),
            is_spare: self.is_spare(),
            domain: domain(),
            rules: locating::rules(self.rules.as_deref(), self.is_nested)?,
            symptoms: locating::symptoms(self.symptoms.as_deref(), self.is_nested),
            components: self.components.clone(),
        };
        Ok((AgentThread::start(config)?, asked))
    }

    /// Stays until all processes of a run have ended. Says whether one has failed, if that ends the run.
    async fn attend(&self, run: Run, attending: Attending, output: &Output) -> bool {
        let Run { rollbacks, job, _port, agent, ends, mut asked, processes } = run;
        let Attending { orders, failures, notices } = attending;
        let mut is_over = false;
        let mut ranks = JoinSet::new();
        let mut attended: BTreeMap<ProcessId, Attended> = BTreeMap::new();
        let attend = |process: Process, stops: Stops| {
            process.attend(stops, failures.clone(), notices.clone(), ends.clone())
        };
        for process in processes {
            ends.started(process.id());
            let (of_this, stops) = Attended::new(orders.clone(), false);
            attended.insert(process.id(), of_this);
            ranks.spawn(attend(process, stops));
        }
        let starting = Starting { rollbacks, job: &job, ends: &ends, notices: &notices, output };
        while !ranks.is_empty() || agent.may_ask() || self.is_spare() {
            tokio::select! {
                Some(ended) = ranks.join_next() => {
                    let has_failed = ended.expect("attending to a rank neither panics nor is aborted");
                    // Processes that were asked to end have their time for it.
                    if has_failed && self.rollback.is_some() && orders.borrow().is_none() {
                        is_over = true;
                        attended.values().for_each(Attended::end);
                    }
                    if ranks.is_empty() && !self.is_spare() {
                        agent.expect_nobody();
                    }
                }
                // The agent ends when no process is to come back any more.
                Some(asked) = asked.recv() => match asked {
                    ToParent::Start(process) => {
                        if let Some(started) = self.start_again(process, false, &starting) {
                            failures.forgive_before(process);
                            let (of_this, stops) = Attended::new(orders.clone(), false);
                            attended.insert(process, of_this);
                            ranks.spawn(attend(started, stops));
                        }
                    }
                    ToParent::StandBy(process) => {
                        if let Some(started) = self.start_again(process, true, &starting) {
                            failures.forgive(process);
                            let (of_this, stops) = Attended::new(orders.clone(), true);
                            attended.insert(process, of_this);
                            ranks.spawn(attend(started, stops));
                        }
                    }
                    ToParent::Promoted(process) => {
                        failures.forgive_before(process);
                        attended.get(&process).into_iter().for_each(Attended::promote);
                    }
                    ToParent::End(process) => {
                        let of_this = attended.remove(&process);
                        // Of another one the agent says so when its rank goes on.
                        if of_this.as_ref().is_none_or(|it| it.stood_by) {
                            failures.forgive(process);
                        }
                        of_this.iter().for_each(Attended::end);
                    }
                    ToParent::Forgive(process) => failures.forgive(process),
                    ToParent::Masterless => {
                        let notice = "everfold: rank 0 has ended before it joined, so the job cannot begin\n";
                        notices.iter().for_each(|notices| notices.try_send(notice.to_owned()));
                        // However well it has ended.
                        failures.note(ProcessId::first(0), 1);
                        is_over = true;
                        attended.values().for_each(Attended::end);
                    }
                    ToParent::Begun => self.tell(JobEvent::Begun),
                    ToParent::News(news) => self.tell(JobEvent::News(news)),
                },
                else => break,
            }
        }
        // Other hosts may need what its processes have left.
        let (outlasts, faults) = (self.hosts.is_some(), agent.faults());
        let end = move || if outlasts { agent.outlast() } else { drop(agent) };
        tokio::task::spawn_blocking(end).await.ok();
        while let Ok(asked) = asked.try_recv() {
            if let ToParent::News(news) = asked {
                self.tell(JobEvent::News(news));
            }
        }
        let is_root = self.hosts.as_ref().is_none_or(|hosts| hosts.index == 0);
        if let Some(notices) = notices.filter(|_| is_root && orders.borrow().is_none()) {
            notices.send(summary(&faults.list())).await;
        }
        is_over
    }

    /// Starts a process in place of an earlier one of its rank, or one that stands by. If it cannot be
    /// started, the agent hears that it has ended.
    fn start_again(&self, process: ProcessId, stands_by: bool, starting: &Starting) -> Option<Process> {
        let Starting { rollbacks, job, ends, notices, output } = *starting;
        let ProcessId { rank, incarnation } = process;
        let environment = Environment { rank, incarnation, ..job.clone() };
        match self.start(rollbacks, &environment, stands_by, output) {
            Ok(started) => Some(started),
            Err(error) => {
                let what = if stands_by { "a standby of " } else { "" };
                let again = if stands_by { "" } else { " again" };
                let notice = format!("everfold: {what}rank {rank} cannot be started{again}: {error}\n");
                notices.iter().for_each(|notices| notices.try_send(notice.clone()));
                ends.ended(process, Ending::Unknown);
                None
            }
        }
    }

    /// Says what follows from a failure. Gives the pause before all ranks are started again, if they are.
    fn go_back(&self, rollbacks: &mut Rollbacks, notices: &Option<Sink>) -> Option<Duration> {
        let (pause, what) = match rollbacks.next() {
            Next::Back(to, pause) => {
                let event = JobEvent::RolledBack { to };
                let what = event.to_string();
                self.tell(event);
                (Some(pause), what)
            }
            Next::Enough(times) => {
                (None, format!("the ranks have gone back {}, the most that is allowed", Times(times)))
            }
            Next::Fruitless(times) => {
                (None, format!("the ranks have gone back {} in a row without a new checkpoint", Times(times)))
            }
        };
        notices.iter().for_each(|notices| notices.try_send(format!("everfold: {what}\n")));
        pause
    }
}

/// The processes of a job, from when they are started until they have ended or go back to a checkpoint.
struct Run {
    /// How often all ranks had gone back before.
    rollbacks: u32,
    job: Environment,
    /// Keeps the rendezvous free for rank 0.
    _port: Option<TcpSocket>,
    agent: AgentThread,
    /// Where to say how processes end.
    ends: Ends,
    /// The orders of the agent.
    asked: mpsc::UnboundedReceiver<ToParent>,
    processes: Vec<Process>,
}

/// A process that was started, and may have ended.
struct Attended {
    /// Ends it by itself.
    is_over: watch::Sender<bool>,
    /// Whether it stands by, and has not taken a place yet.
    stands_by: watch::Sender<bool>,
    /// Whether it was started to stand by.
    stood_by: bool,
}

impl Attended {
    /// With what ends it.
    fn new(orders: watch::Receiver<Option<Signal>>, stands_by: bool) -> (Self, Stops) {
        let ((is_over, until), (stands_by, how)) = (watch::channel(false), watch::channel(stands_by));
        let stood_by = *stands_by.borrow();
        (Self { is_over, stands_by, stood_by }, Stops { orders, is_over: until, stands_by: how })
    }

    fn promote(&self) {
        self.stands_by.send_replace(false);
    }

    fn end(&self) {
        self.is_over.send_replace(true);
    }
}

/// With what processes are started while a run lasts.
struct Starting<'a> {
    rollbacks: u32,
    job: &'a Environment,
    ends: &'a Ends,
    notices: &'a Option<Sink>,
    output: &'a Output,
}

/// The channels by which the processes of a run are attended to.
struct Attending {
    orders: watch::Receiver<Option<Signal>>,
    failures: Failures,
    notices: Option<Sink>,
}

/// The label of this host's domain.
fn domain() -> Option<String> {
    std::env::var(DOMAIN).ok().filter(|label| !label.is_empty())
}

/// The faults that were located while the job ran, a line each.
fn summary(faults: &[Told]) -> String {
    let line = |Told { located, over, .. }: &Told| {
        let over = if over.is_some() { " [over]" } else { "" };
        match located.harmless {
            true => format!("everfold: no fault, but {located}{over}\n"),
            false => format!("everfold: located: {located}{over}\n"),
        }
    };
    let mut lines: String = faults.iter().take(SUMMARY_MAX).map(line).collect();
    if faults.len() > SUMMARY_MAX {
        lines += &format!("everfold: and {} more\n", faults.len() - SUMMARY_MAX);
    }
    lines
}
