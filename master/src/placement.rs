//! On which rank the replica of an original lies (DR-9).
//!
//! The paper takes the next rank, j = (i + 1) mod p. Where several ranks share a host, that rank mostly dies
//! together with its neighbour, so here the copy goes to another *failure domain*: another host, and also
//! another domain (a switch, a rack) where that does not overload anyone.
//!
//! The living members sit in a ring, host by host. With `m` members in the largest group, each member's copy
//! goes `m` seats further. That leaves every group, because no group is longer than `m` and the way round is
//! not shorter, and it gives every rank exactly one copy. With `k` ranks on each host it is rank `i + k`.
//! Only if one group holds more than half of all seats does it not fit: then its members are dealt out evenly
//! over those outside of it.
//!
//! Pure, and a function of the set of members alone: the same members always give the same placement. It says
//! where a *new* copy goes. Copies that lie on living ranks stay there when the membership
//! changes.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use everfold_protocol::Rank;

/// How many copies a rank may get for the sake of other domains. Two switches with very different numbers of
/// hosts would otherwise have a few ranks keep the copies of all others; then only hosts are told apart.
pub const DOMAIN_LOAD_MAX: usize = 4;

/// A living rank, and what fails together with it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// Which rank.
    pub rank: Rank,
    /// Equal for ranks of one host.
    pub host: u64,
    /// Label of what several hosts share, for instance a switch. All members without a label count as one
    /// domain. A host belongs to the domain of its lowest rank.
    pub domain: Option<String>,
}

/// The keeper of each member's replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// From owner to keeper.
    keepers: BTreeMap<Rank, Rank>,
}

/// A member in the ring. Groups are numbered in order of their lowest rank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seat {
    domain: usize,
    host: usize,
    rank: Rank,
}

impl Placement {
    /// The placement for these living members. Their order does not matter; a rank that is named twice counts
    /// once.
    ///
    /// Each member's keeper is another rank, on another host if there is one, and in another domain too, if
    /// there is one and no rank would get more than [`DOMAIN_LOAD_MAX`] copies by it. With `n` members, `m`
    /// of them in the largest of the groups that are told apart, no rank gets more than max(1, ⌈m / (n − m)⌉)
    /// copies, and no placement that leaves these groups could do with less.
    pub fn of(members: &[Member]) -> Self {
        let ring = seats(members);
        let domains = spread(&ring, |seat| seat.domain).filter(|plan| plan.load_max <= DOMAIN_LOAD_MAX);
        let plan = domains
            .or_else(|| spread(&ring, |seat| seat.host))
            .or_else(|| spread(&ring, |seat| seat.rank.index()));
        let keepers = plan.map_or_else(BTreeMap::new, |plan| {
            ring.iter().zip(plan.keepers).map(|(seat, keeper)| (seat.rank, ring[keeper].rank)).collect()
        });
        Self { keepers }
    }

    /// The rank that keeps the replica of `rank`'s originals. `None` if `rank` is no member or the only one.
    pub fn replica_of(&self, rank: Rank) -> Option<Rank> {
        self.keepers.get(&rank).copied()
    }
}

fn seats(members: &[Member]) -> Vec<Seat> {
    let mut members: Vec<&Member> = members.iter().collect();
    members.sort_unstable();
    members.dedup_by_key(|member| member.rank);
    let (mut domains, mut hosts) = (BTreeMap::new(), BTreeMap::new());
    let mut ring = Vec::with_capacity(members.len());
    for Member { rank, host, domain } in members {
        let next_host = hosts.len();
        let &mut (host, domain) = hosts.entry(host).or_insert_with(|| {
            let next_domain = domains.len();
            (next_host, *domains.entry(domain).or_insert(next_domain))
        });
        ring.push(Seat { domain, host, rank: *rank });
    }
    ring.sort_unstable();
    ring
}

/// For each seat of the ring the seat that keeps its copy.
struct Plan {
    keepers: Vec<usize>,
    load_max: usize,
}

/// Gives each member a keeper outside its own group. `None` if there is only one group. Each group is
/// contiguous.
fn spread(ring: &[Seat], group: impl Fn(&Seat) -> usize) -> Option<Plan> {
    let seats = ring.len();
    let largest = ring.chunk_by(|a, b| group(a) == group(b)).map(<[Seat]>::len).max()?;
    let outside = seats - largest;
    if outside == 0 {
        return None;
    }
    let load_max = largest.div_ceil(outside).max(1);
    if largest <= outside {
        return Some(Plan { keepers: (0..seats).map(|seat| (seat + largest) % seats).collect(), load_max });
    }
    let chunks = ring.chunk_by(|a, b| group(a) == group(b));
    let first: usize = chunks.take_while(|chunk| chunk.len() < largest).map(<[Seat]>::len).sum();
    let mut keepers = vec![0; seats];
    for distance in 0..seats {
        let keeper = if distance < largest { largest + distance % outside } else { distance - largest };
        keepers[(first + distance) % seats] = (first + keeper) % seats;
    }
    Some(Plan { keepers, load_max })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One character per rank: which host it is on.
    fn on_hosts(hosts: &str) -> Vec<Member> {
        let member =
            |(rank, host): (usize, char)| Member { rank: Rank(rank as u32), host: host.into(), domain: None };
        hosts.chars().enumerate().map(member).collect()
    }

    /// As [`on_hosts`], and one character per rank for its domain.
    fn in_domains(hosts: &str, domains: &str) -> Vec<Member> {
        let mut members = on_hosts(hosts);
        for (member, domain) in members.iter_mut().zip(domains.chars()) {
            member.domain = Some(domain.into());
        }
        members
    }

    fn keepers(members: &[Member]) -> Vec<u32> {
        let placement = Placement::of(members);
        members.iter().map(|member| placement.replica_of(member.rank).unwrap().0).collect()
    }

    #[test]
    fn with_one_rank_per_host_it_is_the_paper_s_next_rank() {
        assert_eq!(keepers(&on_hosts("abcde")), [1, 2, 3, 4, 0]);
    }

    #[test]
    fn with_k_ranks_per_host_it_is_rank_plus_k() {
        assert_eq!(keepers(&on_hosts("aaabbbccc")), [3, 4, 5, 6, 7, 8, 0, 1, 2]);
    }

    #[test]
    fn with_ranks_dealt_out_over_hosts_it_is_the_next_rank_within_a_round() {
        assert_eq!(keepers(&on_hosts("abcabc")), [1, 2, 0, 4, 5, 3]);
    }

    #[test]
    fn on_a_single_host_it_is_the_next_rank() {
        assert_eq!(keepers(&on_hosts("aaa")), [1, 2, 0]);
    }

    #[test]
    fn a_large_host_is_dealt_out_over_the_small_ones() {
        assert_eq!(keepers(&on_hosts("aaaaabc")), [5, 6, 5, 6, 5, 0, 1]);
    }

    #[test]
    fn another_domain_is_preferred_to_the_next_host() {
        assert_eq!(keepers(&in_domains("abcd", "xxyy")), [2, 3, 0, 1]);
        assert_eq!(keepers(&in_domains("aabbccdd", "xxxxyyyy")), [4, 5, 6, 7, 0, 1, 2, 3]);
    }

    #[test]
    fn a_far_smaller_domain_is_not_buried() {
        assert_eq!(keepers(&in_domains("abcdef", "xxxxxy")), [1, 2, 3, 4, 5, 0]);
        assert_eq!(keepers(&in_domains("abcde", "xxxxy")), [4, 4, 4, 4, 0]);
    }

    #[test]
    fn the_only_member_and_strangers_have_no_keeper() {
        assert_eq!(Placement::of(&on_hosts("a")).replica_of(Rank(0)), None);
        assert_eq!(Placement::of(&on_hosts("ab")).replica_of(Rank(9)), None);
        assert_eq!(Placement::of(&[]).replica_of(Rank(0)), None);
    }

    prop_compose! {
        /// Some ranks of up to 60 on up to 8 hosts in up to 4 domains, in any order.
        fn members()(
            ranks in prop::collection::btree_map(0..60_u32, 0..8_u64, 0..60),
            domains in prop::collection::vec(prop::option::of("[a-c]"), 8),
        )(
            members in Just(ranks.into_iter().map(|(rank, host)| Member {
                rank: Rank(rank),
                host,
                domain: domains[host as usize].clone(),
            }).collect::<Vec<_>>()).prop_shuffle(),
        ) -> Vec<Member> {
            members
        }
    }

    fn largest<K: Ord>(members: &[Member], group: impl Fn(&Member) -> K) -> usize {
        let mut sizes = BTreeMap::new();
        members.iter().for_each(|member| *sizes.entry(group(member)).or_insert(0) += 1);
        sizes.into_values().max().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn every_copy_is_as_far_away_as_it_can_be_and_nobody_keeps_too_many(members in members()) {
            prop_assume!(members.len() > 1);
            let count = members.len();
            let of = |rank: Rank| members.iter().find(|member| member.rank == rank);
            let placement = Placement::of(&members);

            let host = largest(&members, |member| member.host);
            let domain = largest(&members, |member| member.domain.clone());
            let by_domain = domain < count && domain.div_ceil(count - domain) <= DOMAIN_LOAD_MAX;
            let by_host = host < count;
            let mut loads = BTreeMap::new();
            for member in &members {
                let keeper = placement.replica_of(member.rank);
                prop_assert!(keeper.is_some(), "{member:?} has a keeper");
                let keeper = of(keeper.unwrap());
                prop_assert!(keeper.is_some(), "the keeper of {member:?} lives");
                let keeper = keeper.unwrap();
                prop_assert_ne!(member.rank, keeper.rank);
                prop_assert!(!by_host || member.host != keeper.host, "{member:?} and {keeper:?} share a host");
                prop_assert!(!by_domain || member.domain != keeper.domain, "{member:?} and {keeper:?}");
                *loads.entry(keeper.rank).or_insert(0) += 1;
            }
            let apart = if by_domain { domain } else if by_host { host } else { 1 };
            // The members of the largest group can only go to those outside of it: no placement does with
            // less.
            let bound = apart.div_ceil(count - apart).max(1);
            prop_assert_eq!(loads.into_values().max(), Some(bound));
        }

        #[test]
        fn the_order_of_the_members_does_not_matter((a, b) in members().prop_flat_map(|members| {
            (Just(members.clone()), Just(members).prop_shuffle())
        })) {
            prop_assert_eq!(Placement::of(&a), Placement::of(&b));
        }
    }
}
