//! The MPI libraries that everfold is measured beside: where they come from, and how they are told what to
//! do.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::ValueEnum;
use serde::Serialize;

/// One rank of the MPI side.
const PROGRAM: &str = include_str!("peer.c");

/// Settings of a library, by name.
type Settings = &'static [(&'static str, &'static str)];

/// An MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Library {
    /// Open MPI.
    #[value(name = "openmpi")]
    OpenMpi,
    /// MPICH.
    Mpich,
}

/// A way in which a library can be told to reduce.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// Its library.
    pub library: Library,
    /// What people call it.
    pub name: &'static str,
    /// What people call its way of an allreduce.
    pub allreduce: &'static str,
    settings: Settings,
}

impl Algorithm {
    /// Whether this is the library as it comes.
    pub fn is_default(&self) -> bool {
        self.settings.is_empty()
    }
}

/// Open MPI's `tuned` component, told what to do for `MPI_Reduce` and `MPI_Allreduce`, and `libnbc` for
/// `MPI_Ireduce`.
macro_rules! tuned {
    ($name:literal, $reduce:literal, $segment:literal, $ireduce:literal, $all_name:literal, $allreduce:literal) => {
        Algorithm {
            library: Library::OpenMpi,
            name: $name,
            allreduce: $all_name,
            settings: &[
                ("coll", "^han"),
                ("coll_tuned_use_dynamic_rules", "1"),
                ("coll_tuned_reduce_algorithm", $reduce),
                ("coll_tuned_reduce_algorithm_segmentsize", $segment),
                ("coll_libnbc_ireduce_algorithm", $ireduce),
                ("coll_tuned_allreduce_algorithm", $allreduce),
                ("coll_tuned_allreduce_algorithm_segmentsize", $segment),
            ],
        }
    };
}

macro_rules! algorithm {
    ($library:ident, $name:literal, $all_name:literal, $settings:expr) => {
        Algorithm { library: Library::$library, name: $name, allreduce: $all_name, settings: &$settings }
    };
}

const OPEN_MPI: Algorithm = algorithm!(OpenMpi, "as it comes", "as it comes", []);
const ADAPT: Algorithm =
    algorithm!(OpenMpi, "ADAPT", "without HAN", [("coll", "^han"), ("coll_adapt_priority", "100")]);
const MPICH: [Algorithm; 4] = [
    algorithm!(Mpich, "as it comes", "as it comes", []),
    algorithm!(
        Mpich,
        "binomial",
        "recursive doubling",
        [
            ("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "recursive_doubling"),
            ("MPIR_CVAR_REDUCE_INTRA_ALGORITHM", "binomial"),
            ("MPIR_CVAR_IREDUCE_INTRA_ALGORITHM", "sched_binomial")
        ]
    ),
    algorithm!(
        Mpich,
        "scatter-gather",
        "scatter-allgather",
        [
            ("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "reduce_scatter_allgather"),
            ("MPIR_CVAR_REDUCE_INTRA_ALGORITHM", "reduce_scatter_gather"),
            ("MPIR_CVAR_IREDUCE_INTRA_ALGORITHM", "sched_reduce_scatter_gather")
        ]
    ),
    algorithm!(
        Mpich,
        "tree 64k",
        "ring",
        [
            ("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "ring"),
            ("MPIR_CVAR_REDUCE_INTRA_ALGORITHM", "nb"),
            ("MPIR_CVAR_IREDUCE_INTRA_ALGORITHM", "tsp_tree"),
            ("MPIR_CVAR_IREDUCE_TREE_PIPELINE_CHUNK_SIZE", "65536")
        ]
    ),
];
const ONE_HOST: [Algorithm; 6] = [
    OPEN_MPI,
    tuned!("chain 64k", "2", "65536", "chain", "segmented ring 64k", "5"),
    tuned!("binary 64k", "4", "65536", "binomial", "ring", "4"),
    tuned!("binomial 64k", "5", "65536", "binomial", "recursive doubling", "3"),
    tuned!("Rabenseifner", "7", "0", "rabenseifner", "Rabenseifner", "6"),
    ADAPT,
];
const NETWORK: [Algorithm; 6] = [
    OPEN_MPI,
    tuned!("pipeline 64k", "3", "65536", "chain", "segmented ring 64k", "5"),
    tuned!("pipeline 256k", "3", "262144", "chain", "ring", "4"),
    tuned!("binomial 64k", "5", "65536", "binomial", "recursive doubling", "3"),
    tuned!("Rabenseifner", "7", "0", "rabenseifner", "Rabenseifner", "6"),
    ADAPT,
];

impl Library {
    /// What people call it, with the version that is measured.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }

    /// Name and version in the Python package index.
    pub fn package(self) -> (&'static str, &'static str) {
        match self {
            Self::OpenMpi => ("openmpi", "5.0.11"),
            Self::Mpich => ("mpich", "5.0.2"),
        }
    }

    /// What it can be told to do.
    pub fn algorithms(self, over_network: bool) -> &'static [Algorithm] {
        match self {
            Self::OpenMpi if over_network => &NETWORK,
            Self::OpenMpi => &ONE_HOST,
            Self::Mpich => &MPICH,
        }
    }
}

/// A library that is installed, and our program, built with it.
#[derive(Debug)]
pub struct Peer {
    launcher: PathBuf,
    program: PathBuf,
}

impl Peer {
    /// Installs `library` into the cache, if it is not there, and builds our program in `folder`.
    ///
    /// # Errors
    /// What is in the way, for people.
    pub fn install(library: Library, folder: &Path) -> Result<Self, String> {
        let (package, version) = library.package();
        let environment = cache()?.join(format!("{package}-{version}"));
        let tool = |name: &str| environment.join("bin").join(name);
        if !tool("mpicc").exists() {
            note!(
                "installing {package} {version} from the Python package index into {}",
                environment.display()
            );
            run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
            let wanted = format!("{package}=={version}");
            run(Command::new(tool("pip")).args([
                "install",
                "--quiet",
                "--disable-pip-version-check",
                &wanted,
            ]))?;
        }
        let source = folder.join("peer.c");
        let program = folder.join(format!("peer-{package}"));
        fs::write(&source, PROGRAM).map_err(|error| format!("{}: {error}", source.display()))?;
        run(Command::new(tool("mpicc")).args(["-O3", "-march=native", "-o"]).args([&program, &source]))?;
        Ok(Self { launcher: tool("mpiexec"), program })
    }

    /// The command line that starts `ranks` ranks: here, or one on each of `hosts`, where `agent` starts
    /// commands.
    pub fn command_line(
        &self,
        algorithm: &Algorithm,
        ranks: u32,
        network: Option<(&[String], &Path)>,
    ) -> Vec<String> {
        let mut line = vec![self.launcher.display().to_string()];
        let mut add = |words: &str| line.extend(words.split_whitespace().map(str::to_owned));
        match (algorithm.library, network) {
            (Library::OpenMpi, None) => {
                add("--mca pml ob1 --mca btl self,sm --mca osc ^ucx --oversubscribe");
            }
            (Library::OpenMpi, Some((hosts, agent))) => {
                add(&format!("--prtemca plm_ssh_agent {} --prtemca prte_if_include eth0", agent.display()));
                add("--mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include eth0 --mca osc ^ucx");
                let slots: Vec<String> = hosts.iter().map(|host| format!("{host}:1")).collect();
                add(&format!("--map-by node:OVERSUBSCRIBE --host {}", slots.join(",")));
            }
            (Library::Mpich, None) => {}
            (Library::Mpich, Some((hosts, agent))) => {
                add(&format!("-launcher ssh -launcher-exec {} -iface eth0", agent.display()));
                add(&format!("-hosts {} -genv UCX_TLS tcp,self -genv UCX_NET_DEVICES eth0", hosts.join(",")));
            }
        }
        let option = match algorithm.library {
            Library::OpenMpi => {
                add("--bind-to none --mca mpi_yield_when_idle 1");
                "--mca"
            }
            Library::Mpich => {
                // Without this, its ranks take the cores from each other while they wait.
                add("-genv MPIR_CVAR_POLLS_BEFORE_YIELD 1");
                for collective in
                    ["REDUCE", "IREDUCE", "ALLREDUCE", "BARRIER", "ALLGATHER", "ALLTOALL", "BCAST"]
                {
                    add(&format!("-genv MPIR_CVAR_{collective}_DEVICE_COLLECTIVE 0"));
                }
                "-genv"
            }
        };
        for (name, value) in algorithm.settings {
            add(&format!("{option} {name} {value}"));
        }
        add(&format!("-n {ranks} {}", self.program.display()));
        line
    }
}

/// Where libraries are kept between runs.
fn cache() -> Result<PathBuf, String> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    cache
        .map(|cache| cache.join("everfold/peers"))
        .ok_or_else(|| "neither XDG_CACHE_HOME nor HOME is set".to_owned())
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} failed: {}", said.trim()))
}
