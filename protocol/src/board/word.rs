//! The state of a round in one word, so that every step of it is one atomic operation: a contribution is on
//! the board, or it is not, and a round is complete, or the master has it, even if a process dies or sleeps
//! in the middle of something.

/// Ranks that fit.
pub(super) const RANKS_MAX: u32 = 48;

const GENERATION_SHIFT: u32 = RANKS_MAX;
const GENERATION_BITS: u32 = 14;
const PHASE_SHIFT: u32 = GENERATION_SHIFT + GENERATION_BITS;

/// Which round of its cell it is, how far it is, and some ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(u64);

/// How far a round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// These ranks have contributed. Nobody: the cell is free.
    Open,
    /// All ranks have contributed, and these have not taken the result yet.
    Complete,
    /// The master takes what these ranks have contributed. It alone goes on.
    Taken,
}

impl Word {
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub fn bits(self) -> u64 {
        self.0
    }

    fn new(phase: Phase, generation: u64, ranks: u64) -> Self {
        let generation = generation % (1 << GENERATION_BITS);
        Self((phase as u64) << PHASE_SHIFT | generation << GENERATION_SHIFT | ranks)
    }

    pub fn phase(self) -> Phase {
        match self.0 >> PHASE_SHIFT {
            0 => Phase::Open,
            1 => Phase::Complete,
            _ => Phase::Taken,
        }
    }

    /// Which round of its cell it is. Rounds that are so far apart that it is the same are long over.
    pub fn generation(self) -> u64 {
        self.0 >> GENERATION_SHIFT & ((1 << GENERATION_BITS) - 1)
    }

    fn mask(self) -> u64 {
        self.0 & ((1 << RANKS_MAX) - 1)
    }

    /// The ranks of its phase.
    pub fn ranks(self) -> impl Iterator<Item = u32> {
        (0..RANKS_MAX).filter(move |rank| self.contains(*rank))
    }

    pub fn contains(self, rank: u32) -> bool {
        self.0 >> rank & 1 == 1
    }

    /// Whether another round can begin.
    pub fn is_free(self) -> bool {
        self.phase() == Phase::Open && self.mask() == 0
    }

    /// `rank` of `ranks` contributes: it begins a round, or comes to one that is open.
    pub fn join(self, rank: u32, ranks: u32) -> Option<Self> {
        if self.phase() != Phase::Open || self.contains(rank) {
            return None;
        }
        let generation = self.generation() + u64::from(self.is_free());
        let mask = self.mask() | 1 << rank;
        let phase = if mask.count_ones() == ranks { Phase::Complete } else { Phase::Open };
        Some(Self::new(phase, generation, mask))
    }

    /// `rank` takes its contribution back as long as the round is open, or needs the round no more once it is
    /// complete.
    pub fn leave(self, rank: u32, phase: Phase) -> Option<Self> {
        if self.phase() != phase || !self.contains(rank) {
            return None;
        }
        let mask = self.mask() & !(1 << rank);
        let phase = if mask == 0 { Phase::Open } else { phase };
        Some(Self::new(phase, self.generation(), mask))
    }

    /// The master takes what is there.
    pub fn take(self) -> Option<Self> {
        let open = self.phase() == Phase::Open && !self.is_free();
        open.then(|| Self::new(Phase::Taken, self.generation(), self.mask()))
    }

    /// The master has taken what was there.
    pub fn clear(self) -> Self {
        Self::new(Phase::Open, self.generation(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_complete_with_its_last_rank_and_over_when_all_have_left_it() {
        let mut word = Word::from_bits(0);
        for rank in [2, 0, 1] {
            assert_eq!(word.phase(), Phase::Open);
            word = word.join(rank, 3).unwrap();
            assert!(word.join(rank, 3).is_none());
        }
        assert_eq!((word.phase(), word.generation()), (Phase::Complete, 1));
        assert!(word.take().is_none());
        for rank in [1, 2, 0] {
            assert!(!word.is_free());
            word = word.leave(rank, Phase::Complete).unwrap();
            assert!(word.leave(rank, Phase::Complete).is_none());
        }
        assert!(word.is_free());
        assert_eq!(word.join(0, 3).unwrap().generation(), 2);
    }

    #[test]
    fn what_the_master_takes_is_nobody_elses() {
        let word = Word::from_bits(0).join(47, 48).unwrap().take().unwrap();
        assert_eq!(word.ranks().collect::<Vec<_>>(), [47]);
        assert!(word.join(3, 48).is_none() && word.take().is_none());
        assert!(word.leave(47, Phase::Open).is_none() && word.leave(47, Phase::Complete).is_none());
        assert!(word.clear().is_free());
        assert!(word.clear().take().is_none());
    }

    #[test]
    fn generations_wrap_around() {
        let mut word = Word::from_bits(0);
        for _ in 0..1 << GENERATION_BITS {
            word = word.join(0, 2).unwrap().leave(0, Phase::Open).unwrap();
        }
        assert_eq!(word.bits(), 0);
    }
}
