//! A choice of recoveries in plain words.

use std::{fmt, time::Duration};

use everfold_protocol::units::Times;

use super::{Chain, LocatedFaults, Network, Recoveries, Recovery, RecoveryFile, Repeated, Restart};
use crate::checkpoint::Interval;

impl fmt::Display for RecoveryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recoveries = self.recoveries();
        let Recoveries { process, repeated, physical, network, ref located, .. } = recoveries;
        if !self.detectors().is_empty() {
            writeln!(f, "A process ends, or a host is lost:")?;
            writeln!(f, "  detectors of your own are asked, in this order: {}", names(self.detectors()))?;
            writeln!(f, "  if none of them chooses, and for what it chooses in vain, this holds:")?;
        }
        let about_process = if self.rolls_back() { ROLLBACK.to_owned() } else { told(process) };
        writeln!(f, "A process ends, and its host is well:{about_process}")?;
        if let Some(Repeated { faults, within, recovery }) = repeated {
            writeln!(
                f,
                "That happens although {faults} processes of that host have ended within {}:{}",
                time(within),
                told(recovery)
            )?;
        }
        if let Some(LocatedFaults { faults, recovery }) = located {
            writeln!(
                f,
                "A process ends, and its host has one of these faults, which was located and is not over: {}:{}",
                names(faults),
                told(*recovery)
            )?;
        }
        let about_silent = match self.rolls_back() || recoveries.ranks_return() {
            true => "the same is done as if it had ended; where its rank comes back, it is ended first",
            false => "the job goes on without its rank: it may live on",
        };
        writeln!(f, "A process is silent, and its host is not:\n  {about_silent}")?;
        writeln!(f, "A host is lost, or is silent:{}", told(physical))?;
        if let Some(Network { share_percent, recovery }) = network {
            writeln!(
                f,
                "More than {share_percent} % of the hosts of a domain, and more than one, are lost then:{}{}",
                told(recovery),
                if recovery.contains(Recovery::Migrate) || recovery.contains(Recovery::Promote) {
                    ", in another domain"
                } else {
                    ""
                },
            )?;
        }
        self.tell_checkpoints(f)?;
        if recoveries.ranks_migrate() {
            writeln!(f, "Replicas of checkpoints and outcomes, with an agent of another host:")?;
            writeln!(f, "  take up to {} there", bytes(recoveries.replica_bytes_max))?;
        }
        if recoveries.ranks_stand_by() {
            writeln!(f, "Standbys, where those replicas are:")?;
            writeln!(
                f,
                "  each rank has a second process, which does the same as the first, and takes as much memory"
            )?;
            writeln!(f, "  on one host alone there is none: what stands behind \"promote\" is done then")?;
        }
        Ok(())
    }
}

impl RecoveryFile {
    fn tell_checkpoints(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let restart = self.recoveries().restart;
        match self.recoveries().ranks_return() {
            true => {
                restarts(f, &restart, self.recoveries().ranks_migrate())?;
                self.tell_due(f)?;
                let noted = bytes(self.result_log_bytes_max());
                writeln!(f, "  and when half of {noted} of outcomes are noted since the last one")
            }
            false if self.rolls_back() => {
                rollbacks(f, &restart)?;
                self.tell_due(f)
            }
            false if self.checkpoint_directory().is_some() => self.tell_due(f),
            false => writeln!(f, "Checkpoints:\n  none are saved, as no rank comes back"),
        }?;
        match self.checkpoint_directory() {
            Some(directory) => writeln!(
                f,
                "  and are saved by all ranks at the same call, also in {}, from where a later job goes on",
                directory.display()
            ),
            None if self.rolls_back() => {
                writeln!(
                    f,
                    "  in the directory that --checkpoints or EVERFOLD_CHECKPOINTS names, which is needed"
                )
            }
            None => Ok(()),
        }
    }

    fn tell_due(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let optimum = |law: &str, mtbf| {
            format!("after {law}'s optimum for a death of each process every {}", time(mtbf))
        };
        let due = match (self.checkpoint_pace(), self.checkpoint_interval()) {
            (Some(name), _) => format!("when a pace of your own says so: `{name}`"),
            (None, Interval::Fixed(Duration::ZERO)) => "wherever the program offers one".to_owned(),
            (None, Interval::Fixed(interval)) => format!("every {}", time(interval)),
            (None, Interval::Young { mtbf }) => optimum("Young", mtbf),
            (None, Interval::Daly { mtbf }) => optimum("Daly", mtbf),
        };
        writeln!(f, "Checkpoints:\n  are due {due}")
    }
}

/// Names as they stand in the file.
fn names(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

const ROLLBACK: &str = "\n  all ranks are started again, and go back to the last checkpoint that is complete";

/// What is done, one line for each recovery in the list.
fn told(chain: Chain) -> String {
    let mut told = String::new();
    for (index, recovery) in chain.iter().enumerate() {
        told += if index == 0 { "\n  " } else { "\n  if that cannot be done, " };
        told += match recovery {
            Recovery::Restart => {
                "its rank is started again on its host, and goes on from its last checkpoint"
            }
            Recovery::Migrate => {
                "its rank is started on the host with the fewest ranks, and goes on from the replica of its last checkpoint"
            }
            Recovery::Promote => "the standby of its rank takes its place, on another host",
            Recovery::Ignore => "the job goes on without its rank",
        };
    }
    if !chain.contains(Recovery::Ignore) {
        told += "\n  if that cannot be done, the job goes on without its rank";
    }
    told
}

fn restarts(f: &mut fmt::Formatter<'_>, restart: &Restart, elsewhere: bool) -> fmt::Result {
    let Restart { starts_max, fruitless_max, pause, pause_max, join_timeout } = restart;
    writeln!(f, "A rank is started again:")?;
    writeln!(f, "  at once, if it has contributed to a new reduction since its last start")?;
    if !pause.is_zero() {
        let most = time(*pause_max);
        writeln!(f, "  if not, after {}, twice as long each time, up to {most}", time(*pause))?;
    }
    let over_all = if elsewhere { " on one host, twice as many over all hosts" } else { "" };
    writeln!(
        f,
        "  up to {} in a row without that{over_all}, and {} in all",
        Times(*fruitless_max),
        Times(*starts_max),
    )?;
    writeln!(f, "  and is given up if its process has not joined within {}", time(*join_timeout))
}

fn rollbacks(f: &mut fmt::Formatter<'_>, restart: &Restart) -> fmt::Result {
    let Restart { starts_max, fruitless_max, pause, pause_max, .. } = restart;
    writeln!(f, "All ranks go back:")?;
    writeln!(f, "  at once, if a checkpoint was complete since the last time")?;
    if !pause.is_zero() {
        let most = time(*pause_max);
        writeln!(f, "  if not, after {}, twice as long each time, up to {most}", time(*pause))?;
    }
    let (in_a_row, in_all) = (Times(*fruitless_max), Times(*starts_max));
    writeln!(f, "  up to {in_a_row} in a row without that, and {in_all} in all")
}

/// A size as people write it.
fn bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS.iter().find(|(unit, _)| bytes.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// A time as people write it.
fn time(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let whole = |(unit, _): &&(u64, &str)| time.subsec_nanos() == 0 && time.as_secs().is_multiple_of(*unit);
    match UNITS.iter().filter(|_| !time.is_zero()).find(whole) {
        Some((unit, name)) => format!("{} {name}", time.as_secs() / unit),
        None => format!("{time:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_line() {
        let text = "[repeated]\nfaults = 5\nwithin = \"10 min\"\nrecovery = \"ignore\"";
        let told = RecoveryFile::parse(text).unwrap().to_string();
        for line in [
            "its rank is started again on its host",
            "although 5 processes of that host have ended within 10 min:\n  the job goes on without its rank\n",
            "A host is lost, or is silent:\n  the job goes on without its rank\n",
            "after 100ms, twice as long each time, up to 10 s",
            "up to 8 times in a row without that, and 100 times in all",
            "half of 1 GiB of outcomes",
            "Daly's optimum for a death of each process every 1 d",
        ] {
            assert!(told.contains(line), "{told}");
        }
        let text =
            "physical = [\"migrate\", \"ignore\"]\n[network]\nshare_percent = 50\nrecovery = \"migrate\"";
        let told = RecoveryFile::parse(text).unwrap().to_string();
        for line in [
            "silent:\n  its rank is started on the host with the fewest ranks",
            "\n  if that cannot be done, the job goes on without its rank\nMore than 50 % of the hosts",
            "take up to 4 GiB there",
            "up to 8 times in a row without that on one host, twice as many over all hosts, and 100 times in all",
        ] {
            assert!(told.contains(line), "{told}");
        }
        let told = RecoveryFile::parse("process = [\"promote\", \"restart\"]").unwrap().to_string();
        for line in [
            "well:\n  the standby of its rank takes its place, on another host\n  if that cannot be done, its rank is started",
            "Standbys, where those replicas are:",
            "on one host alone there is none",
        ] {
            assert!(told.contains(line), "{told}");
        }
        let text = "[located]\nfaults = [\"host_overloaded\", \"disk_failing\"]\nrecovery = \"migrate\"";
        let told = RecoveryFile::parse(text).unwrap().to_string();
        let line = "located and is not over: `host_overloaded`, `disk_failing`:\n  its rank is started on the host with";
        assert!(told.contains(line), "{told}");
        let told = RecoveryFile::parse("detectors = [\"cautious\", \"brave\"]").unwrap().to_string();
        assert!(told.contains("asked, in this order: `cautious`, `brave`\n"), "{told}");
        let told = RecoveryFile::parse("[checkpoint]\npace = \"wary\"").unwrap().to_string();
        assert!(told.contains("are due when a pace of your own says so: `wary`\n  and when half"), "{told}");
        let told = RecoveryFile::parse("process = \"ignore\"").unwrap().to_string();
        assert!(told.contains("none are saved") && !told.contains("started again"), "{told}");
    }
}
