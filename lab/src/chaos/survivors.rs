//! How the ranks of the built-in program agree on who goes on.
//!
//! No rank can tell that by itself from the deaths it has heard of. One that has heard of a first death would
//! wait for one that has heard of a second as well and so means another group. So rank 0 decides, which hosts
//! the master and without which nothing goes on: it asks every rank, tells those that answer who they are,
//! and all of them reduce to prove it. If one has died meanwhile, all hear that and begin again.

use everfold::{Refusal, prelude::*};

/// Reduces among those of `group` that live, and gives them.
pub async fn go_on(session: &Session, mut group: Group, round: u64) -> Result<Group, ReduceError> {
    for attempt in 0u64.. {
        let step = Step { session, round, attempt };
        group = if session.rank() == 0 { step.decide(&group).await? } else { step.hear().await? };
        let proof = session.allreduce(step.name("proof"), Sum(vec![1u64])).group(group.clone()).await;
        match proof {
            Ok(outcome) if outcome.value == Some(Sum(vec![group.len() as u64])) => break,
            Ok(Outcome { value, .. }) => {
                let reason = format!("{} ranks add up to {value:?}", group.len());
                return Err(ReduceError::ResultLost { reason });
            }
            Err(error) if is_death(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(group)
}

fn is_death(error: &ReduceError) -> bool {
    matches!(error, ReduceError::Refused(Refusal::ProcessFailed { .. } | Refusal::ContributionLost { .. }))
}

/// One attempt to agree.
struct Step<'a> {
    session: &'a Session,
    round: u64,
    attempt: u64,
}

impl Step<'_> {
    fn name(&self, what: &str) -> String {
        format!("{what}, round {}, attempt {}", self.round, self.attempt)
    }

    /// A reduction of rank 0 and `rank`, to one of them.
    fn pair(
        &self,
        what: &str,
        rank: Rank,
        root: Rank,
        list: Vec<u8>,
    ) -> Result<ReduceFuture<Sum<Vec<u8>>>, ReduceError> {
        let name = self.name(&format!("{what} {rank}"));
        self.session.reduce(name, Sum(list)).group(Group::of([Rank(0), rank])).root(root).start()
    }

    /// What rank 0 does.
    async fn decide(&self, group: &Group) -> Result<Group, ReduceError> {
        let others = |group: &Group| group.iter().filter(|rank| *rank != 0).collect::<Vec<_>>();
        let mut asked = Vec::new();
        for rank in others(group) {
            asked.push((rank, self.pair("here is", rank, Rank(0), vec![0])?));
        }
        let mut here = vec![Rank(0)];
        for (rank, answer) in asked {
            match answer.await {
                Ok(_) => here.push(rank),
                Err(error) if is_death(&error) => {}
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
            told.await.map(drop).or_else(|error| if is_death(&error) { Ok(()) } else { Err(error) })?;
        }
        Ok(here)
    }

    /// What the others do.
    async fn hear(&self) -> Result<Group, ReduceError> {
        let me = self.session.rank();
        self.pair("here is", me, Rank(0), vec![1])?.await?;
        let nobody = vec![0; self.session.size() as usize];
        let told = self.pair("told to", me, me, nobody)?.await?.value;
        let Sum(list) =
            told.ok_or_else(|| ReduceError::ResultLost { reason: "the list is missing".to_owned() })?;
        Ok(self.session.world().filter(|rank| list[rank.index()] == 1))
    }
}
