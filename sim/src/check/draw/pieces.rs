//! Schedules whose contributions are not folded.

use std::collections::BTreeSet;

use rand::{Rng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use super::{
    super::schedule::{Body, Pieces, Planned, Receiver, Schedule},
    pick,
};

/// Lets some reductions bring pieces.
pub(super) fn bring(schedule: &mut Schedule, random: &mut ChaCha8Rng) {
    let names: BTreeSet<String> = schedule.reductions.iter().map(|planned| planned.name.clone()).collect();
    for name in names {
        if random.random_bool(0.4) {
            continue;
        }
        let mut of_name: Vec<&mut Planned> =
            schedule.reductions.iter_mut().filter(|planned| planned.name == name).collect();
        let ranks: Vec<u32> = of_name
            .first()
            .into_iter()
            .flat_map(|planned| planned.group().iter().map(|rank| rank.0).collect::<Vec<_>>())
            .collect();
        let Some(&root) = ranks.choose(random) else { continue };
        let of_root = pick(random, [Pieces::Broadcast(root), Pieces::Scatter(root)]);
        let pieces = pick(random, [Pieces::Gather, Pieces::Gather, of_root, Pieces::Exchange]);
        let inline = random.random_bool(0.25);
        for planned in &mut of_name {
            (planned.body, planned.inline, planned.fold_us) = (Body::Pieces(pieces), inline, 0);
            planned.order = everfold_protocol::spec::Order::Arrival;
            let first = planned.receiver.ranks_mut().first().copied();
            planned.receiver = match (pieces, first) {
                (Pieces::Gather, Some(root)) => Receiver::FirstOf(vec![root]),
                _ => Receiver::All,
            };
        }
    }
}
