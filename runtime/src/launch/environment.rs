//! What a process finds in its environment about the job it belongs to.
//!
//! | variable | holds | if it is not set |
//! |---|---|---|
//! | `EVERFOLD_RENDEZVOUS` | where the master listens, on the host of rank 0: `tcp:HOST:PORT`, or `unix:@NAME` on one machine | started alone |
//! | `EVERFOLD_RANK` | this process, from 0 | the launcher's variable |
//! | `EVERFOLD_SIZE` | number of processes | the launcher's variable |
//! | `EVERFOLD_JOB` | number of the job, hexadecimal | 0, if a foreign launcher gave the rank |
//! | `EVERFOLD_SECRET` | 64 hexadecimal digits that only this job knows | `EVERFOLD_SECRET_FILE` |
//! | `EVERFOLD_SECRET_FILE` | path of a file that holds the secret | an error |
//! | `EVERFOLD_TRANSPORT` | `auto`, `shm` or `tcp` | `auto` |
//! | `EVERFOLD_AGENT` | name of the Unix socket, in the abstract namespace, of the agent of this host | the first rank on a host starts one |
//! | `EVERFOLD_INCARNATION` | how often the rank was started again | 0 |
//! | `EVERFOLD_RECOVERY` | path of the file that chooses recoveries | what the program says |
//! | `EVERFOLD_PLAN` | path of the plan of checkpoints | what the program says |
//! | `EVERFOLD_RECORD` | path to which a profile for plans is written | what the program says |
//! | `EVERFOLD_RULES` | path of the rules that locate faults | those that everfold comes with |
//! | `EVERFOLD_RECORD_SYMPTOMS` | path to which each agent adds the symptoms that it sees | they are not recorded |
//! | `EVERFOLD_INJECT_SYMPTOMS` | after how many milliseconds each agent observes another symptom without a cause, to see what they cost | it does not |
//! | `EVERFOLD_CHECKPOINTS` | directory of checkpoints | what the file or the program says |
//! | `EVERFOLD_RESUME` | the same, to go on from what an earlier job has saved there | the job begins anew |
//! | `EVERFOLD_ROLLBACKS` | how often all ranks of the job have gone back to a checkpoint, if their launcher starts them again | it does not |
//! | `EVERFOLD_TERMINAL` | inode of the pipe on stderr, if the launcher shows on a terminal what comes through it | it does not |
//!
//! Variables are inherited: a program that a process of the job starts finds them, too. They do not mean that
//! program, see `everfold::launch`.
//!
//! An empty variable counts as one that is not set. Rank and size of Open MPI, PMIx, PMI and Slurm count only
//! beside a rendezvous. Without one, a process of several would start a whole job of its own, and so would
//! each of its siblings: that is an error here and never a guess.
//!
//! Deliberately absent: nothing here reads the environment of the process. [`detect`] is told what to look
//! at.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

use everfold_protocol::{Incarnation, JobId, Rank};

const RENDEZVOUS: &str = "EVERFOLD_RENDEZVOUS";
const RANK: &str = "EVERFOLD_RANK";
const SIZE: &str = "EVERFOLD_SIZE";
const JOB: &str = "EVERFOLD_JOB";
const SECRET: &str = "EVERFOLD_SECRET";
pub(super) const SECRET_FILE: &str = "EVERFOLD_SECRET_FILE";
const TRANSPORT: &str = "EVERFOLD_TRANSPORT";
const AGENT: &str = "EVERFOLD_AGENT";
const INCARNATION: &str = "EVERFOLD_INCARNATION";
/// Names the file that chooses recoveries.
pub const RECOVERY: &str = "EVERFOLD_RECOVERY";
/// Label of what a host shares with others that may fail together.
pub const DOMAIN: &str = "EVERFOLD_DOMAIN";
/// Names the plan of checkpoints.
pub const PLAN: &str = "EVERFOLD_PLAN";
/// Names the file to which a profile is written.
pub const RECORD: &str = "EVERFOLD_RECORD";
/// Names the directory of checkpoints.
pub const CHECKPOINTS: &str = "EVERFOLD_CHECKPOINTS";
/// Names the directory of checkpoints that the job goes on from.
pub const RESUME: &str = "EVERFOLD_RESUME";
/// How often all ranks have gone back to a checkpoint.
pub const ROLLBACKS: &str = "EVERFOLD_ROLLBACKS";

/// How a launcher tells a process its place.
struct Launcher {
    name: &'static str,
    /// Set in every process that it starts, and nowhere else.
    mark: &'static str,
    rank: &'static str,
    /// The first that is set counts.
    sizes: &'static [&'static str],
}

const OURS: Launcher = Launcher { name: "everfold", mark: RANK, rank: RANK, sizes: &[SIZE] };

/// The first that fits is meant: a process of Open MPI under Slurm, for one, has the variables of both.
const FOREIGN: [Launcher; 4] = [
    Launcher {
        name: "Open MPI",
        mark: "OMPI_COMM_WORLD_RANK",
        rank: "OMPI_COMM_WORLD_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
    },
    // PMIx has no variable for the size.
    Launcher {
        name: "PMIx",
        mark: "PMIX_RANK",
        rank: "PMIX_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", SLURM_STEP, "SLURM_NTASKS"],
    },
    Launcher { name: "PMI", mark: "PMI_RANK", rank: "PMI_RANK", sizes: &["PMI_SIZE"] },
    // A batch script has SLURM_PROCID and SLURM_NTASKS too, yet it runs once. Only srun sets the third one.
    Launcher { name: "Slurm", mark: SLURM_STEP, rank: "SLURM_PROCID", sizes: &[SLURM_STEP, "SLURM_NTASKS"] },
];
const SLURM_STEP: &str = "SLURM_STEP_NUM_TASKS";

/// The job that a process was started for, and its place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// This process.
    pub rank: Rank,
    /// How often this rank was started again.
    pub incarnation: Incarnation,
    /// Number of processes in the job.
    pub size: u32,
    /// The job.
    pub job: JobId,
    /// What only the processes of this job know.
    pub secret: Secret,
    /// Where the master listens, on the host of rank 0. Not yet checked for being an address.
    pub rendezvous: String,
    /// How the processes are to reach each other.
    pub transport: Transport,
    /// Name of the socket of this host's agent. Without it the first rank on a host starts one.
    pub agent: Option<String>,
}

/// How the processes of a job reach each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Shared memory with peers on the same machine, TCP with all others.
    #[default]
    Auto,
    /// As `Auto`, said by a job whose processes are all on one machine.
    Shm,
    /// TCP, also on the same machine.
    Tcp,
}

/// What only the processes of a job know. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

/// Why the environment describes no job. Each message names the variable and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// A variable is needed because another one is set.
    #[error("{because} is set, but {variable} is not: set both, or neither to start alone")]
    Missing {
        /// What is not set.
        variable: &'static str,
        /// What makes it necessary.
        because: &'static str,
    },
    /// A variable holds something else than it should.
    #[error("{variable} is {value:?}; set it to {expected}")]
    Malformed {
        /// The variable.
        variable: &'static str,
        /// What it holds.
        value: String,
        /// What it should hold.
        expected: &'static str,
    },
    /// The rank does not exist in a job of that size.
    #[error("{variable} is {rank}, but a job of {size} has ranks 0 to {}; correct the rank or the size", size - 1)]
    RankTooLarge {
        /// The variable that holds the rank.
        variable: &'static str,
        /// The rank.
        rank: u32,
        /// Number of processes in the job.
        size: u32,
    },
    /// Neither the secret nor a file with it is given.
    #[error(
        "neither {SECRET} nor {SECRET_FILE} is set: give all processes of the job the same 64 hexadecimal digits, for \
         instance in a file that `openssl rand -hex 32` has written"
    )]
    NoSecret,
    /// The secret has another form than it should. It is not shown.
    #[error("{variable} gives {characters} characters; the secret has to be 64 hexadecimal digits")]
    MalformedSecret {
        /// Where the secret comes from.
        variable: &'static str,
        /// Its length.
        characters: usize,
    },
    /// The file with the secret cannot be read.
    #[error(
        "{SECRET_FILE} names {path}, which cannot be read: {source}; give all processes a file they can read"
    )]
    UnreadableSecret {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A launcher started several processes and nothing tells them where to meet.
    #[error(
        "{launcher} started {size} of these processes ({variable}={size}), but they do not know where to meet, and \
         each of them would start a job of its own. Set {RENDEZVOUS} to tcp:HOST:PORT with the host of rank 0, and \
         {SECRET} or {SECRET_FILE} to the same 64 hexadecimal digits for all of them"
    )]
    NoRendezvous {
        /// Name of the launcher.
        launcher: &'static str,
        /// The variable that holds the number of processes.
        variable: &'static str,
        /// Number of processes.
        size: u32,
    },
}

/// Finds the job that this process was started for; `None` if it was started alone.
///
/// `lookup` gives the value of a variable: `detect(|name| std::env::var(name).ok())`.
///
/// # Errors
/// The variables contradict each other, lack one, or one of them is malformed. Nothing is guessed then.
pub fn detect(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Environment>, EnvironmentError> {
    let variables = Variables(lookup);
    match variables.text(RENDEZVOUS) {
        Some(rendezvous) => variables.job_at(rendezvous).map(Some),
        None => variables.refuse_half_a_job().map(|()| None),
    }
}

/// The variables as [`detect`] was told them.
struct Variables<F>(F);

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn number(&self, name: &'static str) -> Result<Option<u32>, EnvironmentError> {
        let parse =
            |value: String| value.parse().map_err(|_| malformed(name, value, "a whole number from 0"));
        self.text(name).map(parse).transpose()
    }

    fn first_set(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.text(name).is_some())
    }

    /// A process without a rendezvous is alone only if nothing says that it has siblings.
    fn refuse_half_a_job(&self) -> Result<(), EnvironmentError> {
        if let Some(because) = self.first_set(&[RANK, SIZE]) {
            return Err(missing(RENDEZVOUS, because));
        }
        if let Some(Launcher { name, sizes, .. }) =
            FOREIGN.iter().find(|launcher| self.text(launcher.mark).is_some())
            && let Some(variable) = self.first_set(sizes)
            && let Some(size @ 2..) = self.number(variable)?
        {
            return Err(EnvironmentError::NoRendezvous { launcher: name, variable, size });
        }
        Ok(())
    }

    fn job_at(&self, rendezvous: String) -> Result<Environment, EnvironmentError> {
        let mut launchers = [&OURS].into_iter().chain(&FOREIGN);
        let launcher = launchers.find(|launcher| self.text(launcher.rank).is_some()).unwrap_or(&OURS);
        let (rank, size) = self.place(launcher)?;
        let job = match self.text(JOB) {
            Some(value) => u64::from_str_radix(&value, 16)
                .map_err(|_| malformed(JOB, value, "up to 16 hexadecimal digits, alike for all processes"))?,
            None if launcher.rank == RANK => return Err(missing(JOB, RANK)),
            None => 0,
        };
        Ok(Environment {
            rank,
            incarnation: Incarnation(self.number(INCARNATION)?.unwrap_or(0)),
            size,
            job: JobId(job),
            secret: self.secret()?,
            rendezvous,
            transport: self.transport()?,
            agent: self.text(AGENT),
        })
    }

    fn place(&self, launcher: &Launcher) -> Result<(Rank, u32), EnvironmentError> {
        let variable = launcher.rank;
        let rank = self.number(variable)?.ok_or(missing(RANK, RENDEZVOUS))?;
        // A size that was set for us alone is meant for us, even if another launcher gave the rank.
        let size_variable = self.first_set(&[SIZE]).or_else(|| self.first_set(launcher.sizes));
        let size_variable = size_variable.ok_or(missing(SIZE, variable))?;
        match self.number(size_variable)?.unwrap_or(0) {
            0 => Err(malformed(size_variable, "0".to_owned(), "a whole number from 1")),
            size if rank < size => Ok((Rank(rank), size)),
            size => Err(EnvironmentError::RankTooLarge { variable, rank, size }),
        }
    }

    fn transport(&self) -> Result<Transport, EnvironmentError> {
        match self.text(TRANSPORT).as_deref() {
            None | Some("auto") => Ok(Transport::Auto),
            Some("shm") => Ok(Transport::Shm),
            Some("tcp") => Ok(Transport::Tcp),
            Some(other) => Err(malformed(TRANSPORT, other.to_owned(), "auto, shm or tcp")),
        }
    }

    fn secret(&self) -> Result<Secret, EnvironmentError> {
        secret(&|name| self.text(name))
    }
}

/// The secret that the environment holds or names.
pub(super) fn secret(lookup: &impl Fn(&str) -> Option<String>) -> Result<Secret, EnvironmentError> {
    let (variable, text) = match (lookup(SECRET), lookup(SECRET_FILE)) {
        (Some(text), _) => (SECRET, text),
        (None, Some(path)) => match read_short(&path) {
            Ok(text) => (SECRET_FILE, text),
            Err(source) => {
                return Err(EnvironmentError::UnreadableSecret { path: path.into(), source });
            }
        },
        (None, None) => return Err(EnvironmentError::NoSecret),
    };
    let text = text.trim();
    let characters = text.chars().count();
    Secret::from_hex(text).ok_or(EnvironmentError::MalformedSecret { variable, characters })
}

/// Longest file that is read for the secret: what is longer holds something else, and may have no end.
const SECRET_FILE_BYTES_MAX: u64 = 4 << 10;

fn read_short(path: &str) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(SECRET_FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn missing(variable: &'static str, because: &'static str) -> EnvironmentError {
    EnvironmentError::Missing { variable, because }
}

fn malformed(variable: &'static str, value: String, expected: &'static str) -> EnvironmentError {
    EnvironmentError::Malformed { variable, value, expected }
}

impl Environment {
    /// The variables from which [`detect`] reads this again. One of them holds the secret.
    pub fn variables(&self) -> [(&'static str, String); 8] {
        [
            (RENDEZVOUS, self.rendezvous.clone()),
            (RANK, self.rank.to_string()),
            (SIZE, self.size.to_string()),
            (JOB, format!("{:016x}", self.job.0)),
            (SECRET, self.secret.to_hex()),
            (TRANSPORT, self.transport.to_string()),
            (INCARNATION, self.incarnation.to_string()),
            (AGENT, self.agent.clone().unwrap_or_default()),
        ]
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Tcp => "tcp",
        })
    }
}

impl Secret {
    /// A new secret from the system's randomness.
    ///
    /// # Errors
    /// The system has none to give.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Reads 64 hexadecimal digits; anything else is `None`.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let byte = |pair: &[u8]| u8::try_from(16 * digit(pair[0])? + digit(pair[1])?).ok();
        if text.len() != 64 {
            return None;
        }
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks_exact(2).map(byte).collect();
        bytes?.try_into().ok().map(Self)
    }

    /// The secret in plain, as 64 hexadecimal digits.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The secret in plain.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}
