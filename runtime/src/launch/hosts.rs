//! Which of a job's hosts this one is, if a launcher has started one `everfold run` on each.
//!
//! Without an option, each value is taken from the variables of the launcher:
//!
//! | | is found in |
//! |---|---|
//! | number of hosts | `EVERFOLD_HOSTS`, `SLURM_STEP_NUM_NODES`, `SLURM_NNODES`, `OMPI_COMM_WORLD_SIZE`, `PMI_SIZE` |
//! | this host's index | `EVERFOLD_HOST_INDEX`, `SLURM_NODEID`, `OMPI_COMM_WORLD_RANK`, `PMIX_RANK`, `PMI_RANK`, `JOB_COMPLETION_INDEX` (Kubernetes) |
//! | where they meet | `EVERFOLD_RENDEZVOUS`, or the first node of `SLURM_STEP_NODELIST` or `SLURM_JOB_NODELIST` |
//! | number of the job | `EVERFOLD_JOB` (hexadecimal), `SLURM_JOB_ID` with `SLURM_STEP_ID`, or else 0 |
//! | secret | `EVERFOLD_SECRET`, `EVERFOLD_SECRET_FILE` |
//!
//! Inside of a job of Slurm, Open MPI's `mpirun` starts its daemons by `srun`, and not on all hosts. So what
//! Slurm says of its steps and of their nodes is about the daemons: beside variables of Open MPI it does not
//! count.
//!
//! Deliberately absent: nothing here reads the environment of the process. [`Hosts::find`] is told what to
//! look at.

use std::str::FromStr;

use everfold_protocol::JobId;

use super::environment::{EnvironmentError, Secret, secret};

/// The port at which the hosts of a Slurm job meet, if none is given.
pub const PORT: u16 = 7077;

/// The hosts of a job, and which of them this one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// On how many of them ranks are started: the first ones.
    pub count: u32,
    /// How many more there are, ready to take ranks whose hosts are lost.
    pub spares: u32,
    /// This one, from 0.
    pub index: u32,
    /// Where they meet, on host 0: `tcp:HOST:PORT`.
    pub rendezvous: String,
    /// The job.
    pub job: JobId,
    /// What only the processes of this job know.
    pub secret: Secret,
}

/// The options of the command line.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Number of hosts.
    pub count: Option<HostCount>,
    /// This host's index.
    pub index: Option<u32>,
    /// `HOST:PORT`, or an address with `tcp:` before it.
    pub rendezvous: Option<String>,
}

/// A number of hosts with ranks, and of spare ones: `4`, or `4:6` for two spare ones besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCount {
    /// On how many ranks are started.
    pub count: u32,
    /// How many more there are.
    pub spares: u32,
}

impl FromStr for HostCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is no number of hosts: write 4, or 4:6 for 4 hosts with ranks of 6 in all");
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0).ok_or_else(wrong);
        match text.split_once(':') {
            None => Ok(Self { count: number(text)?, spares: 0 }),
            Some((count, all)) => {
                let (count, all) = (number(count)?, number(all)?);
                Ok(Self { count, spares: all.checked_sub(count).ok_or_else(wrong)? })
            }
        }
    }
}

/// Why it is not known which of the hosts this one is.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// Neither an option nor a variable says it.
    #[error("nothing says {what}: give {flag}, or set {variable}")]
    Unknown {
        /// What.
        what: &'static str,
        /// How to say it.
        flag: &'static str,
        /// Where it is looked for first.
        variable: &'static str,
    },
    /// There is no such host.
    #[error("this is host {index}, but there are {count}, counted from 0; correct --host-index or --hosts")]
    IndexTooLarge {
        /// This host's index.
        index: u32,
        /// Number of hosts.
        count: u32,
    },
    /// See [`EnvironmentError`].
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

const COUNTS: [&str; 5] =
    ["EVERFOLD_HOSTS", "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];
const INDICES: [&str; 6] =
    ["EVERFOLD_HOST_INDEX", "SLURM_NODEID", MPIRUN_RANK, "PMIX_RANK", "PMI_RANK", "JOB_COMPLETION_INDEX"];
/// Set by Open MPI's `mpirun`.
const MPIRUN_RANK: &str = "OMPI_COMM_WORLD_RANK";
/// The beginnings of the names of variables that `srun` sets for each of its steps.
const OF_STEPS: [&str; 3] = ["SLURM_STEP_", "SLURM_NODEID", "SLURM_NNODES"];

impl Hosts {
    /// Puts together the options and the variables that `lookup` finds; `None` if the job is on this host
    /// alone.
    ///
    /// # Errors
    /// Something is missing or malformed. Nothing is guessed then.
    pub fn find(said: Said, lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, HostsError> {
        let lookup = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let by_mpirun = lookup(MPIRUN_RANK).is_some();
        let is_of_step = |name: &str| OF_STEPS.iter().any(|of_step| name.starts_with(of_step));
        let lookup = |name: &str| lookup(name).filter(|_| !by_mpirun || !is_of_step(name));
        // A launcher's variables count only if several hosts are asked for.
        let asked = said.count.is_some() || said.index.is_some() || said.rendezvous.is_some();
        let asked = asked || lookup(COUNTS[0]).is_some();
        let expected = "a number of hosts such as 4, or 4:6 with two spare ones";
        let count = first(said.count, &COUNTS, expected, &lookup)?;
        match count {
            _ if !asked => return Ok(None),
            Some(HostCount { count: 1, spares: 0 }) => return Ok(None),
            _ => {}
        }
        let unknown = |what, flag, variable| HostsError::Unknown { what, flag, variable };
        let count = count.ok_or(unknown("how many hosts there are", "--hosts", COUNTS[0]))?;
        let HostCount { count, spares } = count;
        let index = first(said.index, &INDICES, "a whole number from 0", &lookup)?;
        let index = index.ok_or(unknown("which of the hosts this one is", "--host-index", INDICES[0]))?;
        let all = count.saturating_add(spares);
        if index >= all {
            return Err(HostsError::IndexTooLarge { index, count: all });
        }
        let place =
            said.rendezvous.or_else(|| lookup("EVERFOLD_RENDEZVOUS")).or_else(|| slurm_place(&lookup));
        let place = place.ok_or(unknown("where the hosts meet", "--rendezvous", "EVERFOLD_RENDEZVOUS"))?;
        let rendezvous = if place.starts_with("tcp:") { place } else { format!("tcp:{place}") };
        let (job, secret) = (job(&lookup)?, secret(&lookup)?);
        Ok(Some(Self { count, spares, index, rendezvous, job, secret }))
    }

    /// Whether this one is spare: no rank runs here until another host is lost.
    pub fn is_spare(&self) -> bool {
        self.index >= self.count
    }
}

/// The option, or else the first of these variables.
fn first<T: FromStr>(
    said: Option<T>,
    names: &[&'static str],
    expected: &'static str,
    lookup: &impl Fn(&str) -> Option<String>,
) -> Result<Option<T>, EnvironmentError> {
    let found = || names.iter().find_map(|name| Some((*name, lookup(name)?)));
    match (said, found()) {
        (Some(said), _) => Ok(Some(said)),
        (None, Some((variable, value))) => match value.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(EnvironmentError::Malformed { variable, value, expected }),
        },
        (None, None) => Ok(None),
    }
}

fn job(lookup: &impl Fn(&str) -> Option<String>) -> Result<JobId, EnvironmentError> {
    if let Some(value) = lookup("EVERFOLD_JOB") {
        let expected = "up to 16 hexadecimal digits, alike on all hosts";
        let malformed = |value| EnvironmentError::Malformed { variable: "EVERFOLD_JOB", value, expected };
        return u64::from_str_radix(&value, 16).map(JobId).map_err(|_| malformed(value));
    }
    let slurm = |name: &str| lookup(name).and_then(|value| value.parse::<u32>().ok());
    let step = slurm("SLURM_STEP_ID").unwrap_or_default();
    Ok(JobId(slurm("SLURM_JOB_ID").map_or(0, |job| u64::from(job) << 32 | u64::from(step))))
}

/// The first node of a Slurm job.
fn slurm_place(lookup: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let list = lookup("SLURM_STEP_NODELIST").or_else(|| lookup("SLURM_JOB_NODELIST"))?;
    Some(format!("{}:{PORT}", first_node(&list)?))
}

/// The first of a list such as `node[003-7,12],other`: `node003`.
fn first_node(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let Some(inside) = rest.strip_prefix('[') else {
        return (!name.is_empty()).then(|| name.to_owned());
    };
    let (numbers, after) = inside.split_once(']')?;
    let first = numbers.split([',', '-']).next()?;
    let suffix = after.split(',').next().unwrap_or_default();
    Some(format!("{name}{first}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: (&str, &str) =
        ("EVERFOLD_SECRET", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");

    fn find(said: Said, variables: &[(&str, &str)]) -> Result<Option<Hosts>, HostsError> {
        let lookup = |name: &str| {
            let all = variables.iter().chain([&SECRET]);
            all.rev().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        Hosts::find(said, lookup)
    }

    #[test]
    fn the_first_node_of_a_list_is_found() {
        for (list, first) in [
            ("alone", "alone"),
            ("a,b", "a"),
            ("node[003-7,12],other", "node003"),
            ("rack1-[2,4]-ib", "rack1-2-ib"),
        ] {
            assert_eq!(first_node(list).as_deref(), Some(first), "{list}");
        }
        assert_eq!(first_node(""), None);
        assert_eq!(first_node("node[1"), None);
    }

    #[test]
    fn slurm_says_all_but_that_there_are_to_be_several() {
        let slurm = [
            ("SLURM_STEP_NUM_NODES", "4"),
            ("SLURM_NODEID", "2"),
            ("SLURM_JOB_NODELIST", "n[1-4]"),
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "1"),
        ];
        assert!(find(Said::default(), &slurm).unwrap().is_none());
        let hosts = find(Said { count: Some(HostCount { count: 4, spares: 0 }), ..Said::default() }, &slurm)
            .unwrap()
            .unwrap();
        assert_eq!((hosts.count, hosts.index, hosts.job), (4, 2, JobId(7 << 32 | 1)));
        assert_eq!(hosts.rendezvous, "tcp:n1:7077");
    }

    #[test]
    fn inside_of_a_slurm_job_mpirun_says_which_host_this_is() {
        let job = [("SLURM_NNODES", "4"), ("SLURM_JOB_NODELIST", "n[1-4]"), ("SLURM_JOB_ID", "7")];
        // The second host: the first of those where a step has started a daemon.
        let step = [
            ("SLURM_STEP_NUM_NODES", "3"),
            ("SLURM_STEP_NODELIST", "n[2-4]"),
            ("SLURM_STEP_ID", "5"),
            ("SLURM_NODEID", "0"),
        ];
        let mpirun = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let said = Said { rendezvous: None, index: None, count: Some(HostCount { count: 4, spares: 0 }) };
        let second = find(said.clone(), &[&job[..], &step, &mpirun].concat()).unwrap().unwrap();
        assert_eq!((second.count, second.index, second.rendezvous.as_str()), (4, 1, "tcp:n1:7077"));
        let first = [("SLURM_NODEID", "0"), ("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let first = find(said, &[&job[..], &first].concat()).unwrap().unwrap();
        assert_eq!((first.index, first.job), (0, second.job));
    }

    #[test]
    fn what_is_said_counts_before_what_is_found() {
        let found = [("EVERFOLD_HOSTS", "3"), ("PMI_RANK", "2"), ("EVERFOLD_RENDEZVOUS", "tcp:x:1")];
        let said = Said { count: None, index: Some(1), rendezvous: Some("y:2".to_owned()) };
        let hosts = find(said, &found).unwrap().unwrap();
        assert_eq!((hosts.count, hosts.index, hosts.rendezvous.as_str()), (3, 1, "tcp:y:2"));
        assert!(
            find(Said { count: Some(HostCount { count: 1, spares: 0 }), ..Said::default() }, &found)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn hosts_behind_those_with_ranks_are_spare() {
        let said = |index| Said { index: Some(index), rendezvous: Some("y:2".to_owned()), count: None };
        let found = |index| find(said(index), &[("EVERFOLD_HOSTS", "4:6")]).unwrap().unwrap();
        assert_eq!((found(3).count, found(3).spares, found(3).is_spare()), (4, 2, false));
        assert!(found(4).is_spare() && found(5).is_spare());
        assert!(find(said(6), &[("EVERFOLD_HOSTS", "4:6")]).unwrap_err().to_string().contains("there are 6"));
        for wrong in ["", "0", "4:", "4:3", "4:4:4", "four"] {
            assert!(wrong.parse::<HostCount>().unwrap_err().contains("4:6"), "{wrong}");
        }
        assert_eq!("4:4".parse(), Ok(HostCount { count: 4, spares: 0 }));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let error = |said, variables: &[_]| find(said, variables).unwrap_err().to_string();
        let two = Said { count: Some(HostCount { count: 2, spares: 0 }), ..Said::default() };
        assert!(error(two.clone(), &[]).contains("--host-index"));
        assert!(error(two.clone(), &[("PMI_RANK", "0")]).contains("--rendezvous"));
        assert!(error(two.clone(), &[("PMI_RANK", "2")]).contains("this is host 2"));
        assert!(error(two.clone(), &[("PMI_RANK", "x")]).contains("PMI_RANK"));
        let rendezvous = Said { rendezvous: Some("a:1".to_owned()), ..Said::default() };
        assert!(error(rendezvous, &[]).contains("--hosts"));
    }
}
