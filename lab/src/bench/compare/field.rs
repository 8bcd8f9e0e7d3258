//! Who is compared in a place: all sides, started.

use std::path::Path;

use everfold::Protection;
use serde::Serialize;

use super::{
    case::Case,
    peers::{Algorithm, Library, Peer},
    place::{Place, side_folder},
    sockets::Way,
    team::{Kind, Team, TeamError},
};
use crate::{Failure, interrupts::Interrupts};

/// Whose side somebody is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Maker {
    /// Ours.
    Everfold,
    /// Nobody's: what the system offers.
    Sockets,
    /// That of an MPI library.
    Library(Library),
}

impl Maker {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Everfold => "everfold",
            Self::Sockets => "plain sockets,",
            Self::Library(library) => library.name(),
        }
    }
}

/// Who is measured.
#[derive(Debug)]
pub struct Contender {
    /// Whose side it is on.
    pub maker: Maker,
    /// Which algorithm, or which bodies.
    pub name: &'static str,
    /// The same in an allreduce.
    pub allreduce: &'static str,
    /// Whether it stays without being the fastest of its side.
    pub stays: bool,
    /// What everfold's bodies are.
    pub kind: Kind,
    /// How everfold protects them.
    pub protection: Protection,
    /// Which of the teams it is.
    pub team: usize,
}

impl Contender {
    /// Whether it can do what is done in `case`.
    pub fn takes_part(&self, case: Case) -> bool {
        // Algorithms are of reductions.
        if case.has_pieces() {
            return self.stays;
        }
        // Plain sockets do one thing at a time, and nobody moves work away from who is slow.
        self.maker != Maker::Sockets || matches!(case, Case::Quiet | Case::Allreduce)
    }
}

/// All sides in a place.
#[derive(Debug)]
pub struct Field<'a> {
    /// Where.
    pub place: &'a Place,
    /// Who, everfold first.
    pub contenders: Vec<Contender>,
    /// Who failed, and why.
    pub lost: Vec<String>,
    /// Their processes; nothing where they failed.
    pub teams: Vec<Option<Team>>,
}

impl<'a> Field<'a> {
    /// Starts all sides. Their folders are made in `folder`.
    ///
    /// # Errors
    /// Everfold's side fails, or we are to end.
    pub fn start(
        place: &'a Place,
        peers: &[(Library, Peer)],
        protection: Protection,
        folder: &Path,
        interrupts: &Interrupts,
    ) -> Result<Self, Failure> {
        let everfold = place.start_everfold(&side_folder(folder, "everfold")?, interrupts);
        let everfold = everfold.map_err(|error| match error {
            TeamError::Fatal(failure) => failure,
            TeamError::Lost(why) => Failure::new(format!("everfold: {why}")),
        })?;
        let ours = |name, kind, protection| Contender {
            maker: Maker::Everfold,
            name,
            allreduce: name,
            stays: true,
            kind,
            protection,
            team: 0,
        };
        let mut contenders = vec![ours("array", Kind::Array, protection), ours("Vec", Kind::Vec, protection)];
        if protection != Protection::None {
            contenders.push(ours("array, unprotected", Kind::Array, Protection::None));
        }
        let mut field = Self { place, contenders, lost: Vec::new(), teams: vec![Some(everfold)] };
        for (library, peer) in peers {
            for algorithm in library.algorithms(place.link_bytes_per_s().is_some()) {
                match start_peer(place, peer, algorithm, folder, interrupts) {
                    Ok(team) => field.join(algorithm, team),
                    Err(TeamError::Fatal(failure)) => return Err(failure),
                    Err(TeamError::Lost(why)) => {
                        field.lost.push(format!("{} {}: {why}", library.name(), algorithm.name));
                    }
                }
            }
        }
        for way in place.ways() {
            match place.start_sockets(*way, &side_folder(folder, way.name())?, interrupts) {
                Ok(team) => field.join_sockets(*way, team),
                Err(TeamError::Fatal(failure)) => return Err(failure),
                Err(TeamError::Lost(why)) => field.lost.push(format!("sockets {}: {why}", way.name())),
            }
        }
        Ok(field)
    }

    fn join_sockets(&mut self, way: Way, team: Team) {
        self.contenders.push(Contender {
            maker: Maker::Sockets,
            name: way.name(),
            allreduce: way.name(),
            stays: false,
            kind: Kind::Vec,
            protection: Protection::None,
            team: self.teams.len(),
        });
        self.teams.push(Some(team));
    }

    fn join(&mut self, algorithm: &Algorithm, team: Team) {
        self.contenders.push(Contender {
            maker: Maker::Library(algorithm.library),
            name: algorithm.name,
            allreduce: algorithm.allreduce,
            stays: algorithm.is_default(),
            kind: Kind::Vec,
            protection: Protection::None,
            team: self.teams.len(),
        });
        self.teams.push(Some(team));
    }
}

/// On a busy machine, one in many runs out of time while its ranks connect: it gets a second chance.
fn start_peer(
    place: &Place,
    peer: &Peer,
    algorithm: &Algorithm,
    folder: &Path,
    interrupts: &Interrupts,
) -> Result<Team, TeamError> {
    let start = |attempt: &str| {
        let name = format!("{} {}{attempt}", algorithm.library.name(), algorithm.name).replace(' ', "-");
        place.start_peer(peer, algorithm, &side_folder(folder, &name)?, interrupts)
    };
    match start("") {
        Err(TeamError::Lost(_)) => start(" again"),
        other => other,
    }
}
