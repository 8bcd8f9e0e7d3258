//! Which process has taken the place in a job that an environment describes.
//!
//! Variables are inherited. A program that a rank starts finds the rank's place in its own environment,
//! through all shells and wrappers lie between the two, and so does a rank itself behind the wrappers of its
//! launcher. What tells them apart is that the rank has taken the place: it then shows a sign, and who finds
//! the sign of an ancestor belongs to no job yet.
//!
//! The sign is a socket with a name in the abstract namespace, which lives as long as its process. The name
//! is made of the place, the process id and the job's secret, so that nobody else can show it. It is not seen
//! from another network namespace; the master then refuses the second process of a rank.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    sync::{Mutex, PoisonError},
};

use crate::ancestry::ancestors;

use super::Environment;

/// The signs of this process.
static SIGNS: Mutex<Vec<UnixDatagram>> = Mutex::new(Vec::new());

/// Takes the place for this process, for as long as it lives. To take it twice changes nothing.
pub fn take(environment: &Environment) {
    let shown = sign(environment, std::process::id()).and_then(|name| UnixDatagram::bind_addr(&name));
    match shown {
        Ok(sign) => SIGNS.lock().unwrap_or_else(PoisonError::into_inner).push(sign),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        // Only programs that this one starts might miss it.
        Err(error) => tracing::debug!(%error, "cannot show that this process has its place"),
    }
}

/// The ancestor of this process that has taken the place.
pub fn ancestor_at(environment: &Environment) -> Option<u32> {
    ancestors(std::process::id()).find(|process| {
        let reached = sign(environment, *process)
            .and_then(|name| UnixDatagram::unbound().and_then(|socket| socket.connect_addr(&name)));
        reached.is_ok()
    })
}

fn sign(environment: &Environment, process: u32) -> io::Result<SocketAddr> {
    let Environment { rank, incarnation, job, rendezvous, secret, .. } = environment;
    let place = format!("{rendezvous} {} {rank} {incarnation} {process}", job.0);
    let hash = blake3::keyed_hash(secret.bytes(), place.as_bytes());
    SocketAddr::from_abstract_name(format!("everfold-place-{}", hash.to_hex()))
}

#[cfg(test)]
mod tests {
    use everfold_protocol::{Incarnation, JobId, Rank};

    use super::*;
    use crate::launch::{Secret, Transport};

    #[test]
    fn a_place_is_shown_once_and_under_this_process_alone() {
        let environment = Environment {
            rank: Rank(2),
            incarnation: Incarnation(0),
            size: 4,
            job: JobId(7),
            secret: Secret::generate().unwrap(),
            rendezvous: "unix:@there".to_owned(),
            transport: Transport::Auto,
            agent: None,
        };
        let is_shown = |environment: &Environment| {
            let name = sign(environment, std::process::id()).unwrap();
            UnixDatagram::unbound().unwrap().connect_addr(&name).is_ok()
        };
        assert!(!is_shown(&environment));
        take(&environment);
        take(&environment);
        assert!(is_shown(&environment));
        assert!(!is_shown(&Environment { rank: Rank(3), ..environment.clone() }));
        assert_eq!(ancestor_at(&environment), None, "nobody is its own ancestor");
    }
}
