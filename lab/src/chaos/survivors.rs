//! How the ranks of the built-in program agree on who goes on.
//!
//! No rank can tell that by itself from the deaths it has heard of. One that has heard of a first death would
//! wait for one that has heard of a second as well and so means another group. So one rank decides, the first
//! that lives: it asks every rank, tells those that answer who they are, and all of them reduce to prove it.
//! If one has died meanwhile, all hear that and begin again; if it was the one that decides, with the next.

use everfold::{Path, Refusal, prelude::*};

/// Reduces among those of `group` that live, and gives them.
pub async fn go_on(session: &Session, group: Group, round: u64) -> Result<Group, ReduceError> {
    let mut decider = group.iter().next().unwrap_or_default();
    let mut attempt = 0u64;
    loop {
        let error = match (Step { session, round, decider, attempt }).run(&group).await {
            Ok(here) => return Ok(here),
            Err(error) => error,
        };
        let next = group.iter().find(|rank| *rank > decider);
        match (dead(&error).map(|ranks| ranks.contains(decider)), next) {
            (Some(true), Some(next)) => (decider, attempt) = (next, 0),
            (Some(false), _) => attempt += 1,
            _ => return Err(error),
        }
    }
}

/// Without whom a reduction has ended.
fn dead(error: &ReduceError) -> Option<&Path> {
    match error {
        ReduceError::Refused(Refusal::ProcessFailed { ranks } | Refusal::ContributionLost { ranks }) => {
            Some(ranks)
        }
        _ => None,
    }
}

/// One attempt to agree.
struct Step<'a> {
    session: &'a Session,
    round: u64,
    decider: Rank,
    attempt: u64,
}

impl Step<'_> {
    async fn run(&self, group: &Group) -> Result<Group, ReduceError> {
        let here =
            if self.session.rank() == self.decider { self.decide(group).await? } else { self.hear().await? };
        let proof = self.session.allreduce(self.name("proof"), Sum(vec![1u64])).group(&here);
        let Sum(count) = proof.await?.value;
        match count == [here.len() as u64] {
            true => Ok(here),
            false => {
                let reason = format!("{} ranks add up to {count:?}", here.len());
                Err(ReduceError::ResultLost { reason })
            }
        }
    }

    fn name(&self, what: &str) -> String {
        format!("{what}, round {}, rank {} decides, attempt {}", self.round, self.decider, self.attempt)
    }

    /// A reduction of the rank that decides and `rank`, to one of them.
    fn pair(
        &self,
        what: &str,
        rank: Rank,
        root: Rank,
        list: Vec<u8>,
    ) -> Result<ReduceFuture<Option<Sum<Vec<u8>>>>, ReduceError> {
        let name = self.name(&format!("{what} {rank}"));
        self.session.reduce(name, Sum(list)).group(Group::of([self.decider, rank])).root(root).start()
    }

    /// What the rank does that decides.
    async fn decide(&self, group: &Group) -> Result<Group, ReduceError> {
        let me = self.decider;
        let others = |group: &Group| group.iter().filter(|rank| *rank != me).collect::<Vec<_>>();
        let mut asked = Vec::new();
        for rank in others(group) {
            asked.push((rank, self.pair("here is", rank, me, vec![0])?));
        }
        let mut here = vec![me];
        for (rank, answer) in asked {
            match answer.await {
                Ok(_) => here.push(rank),
                Err(error) if dead(&error).is_some() => {}
                Err(error) => return Err(error),
            }
        }
        let here = Group::of(here);
        let list: Vec<u8> = self.session.world().iter().map(|rank| here.contains(rank).into()).collect();
        let mut telling = Vec::new();
        for rank in others(&here) {
            telling.push(self.pair("told to", rank, rank, list.clone())?);
        }
        for told in telling {
            // Who dies now is missed at the proof.
            told.await.map(drop).or_else(|error| if dead(&error).is_some() { Ok(()) } else { Err(error) })?;
        }
        Ok(here)
    }

    /// What the others do.
    async fn hear(&self) -> Result<Group, ReduceError> {
        let me = self.session.rank();
        self.pair("here is", me, self.decider, vec![1])?.await?;
        let nobody = vec![0; self.session.size() as usize];
        let told = self.pair("told to", me, me, nobody)?.await?.value;
        let Sum(list) =
            told.ok_or_else(|| ReduceError::ResultLost { reason: "the list is missing".to_owned() })?;
        Ok(self.session.world().filter(|rank| list[rank.index()] == 1))
    }
}
