//! A list of checkpoints, and how far a running program is in it.

use alloc::{collections::BTreeMap, string::String, vec::Vec};

use crate::follow::{Misfit, Passed, Save, Unfollowable};

/// A list of checkpoints, in order, and how far a program is in it.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// A point, how often it was passed before, and how the checkpoint is taken.
    stops: Vec<(String, u64, Save)>,
    /// Which stop is which.
    index: BTreeMap<String, BTreeMap<u64, usize>>,
    /// The first stop that was not reached.
    next: usize,
}

impl Course {
    /// The checkpoints of a list.
    ///
    /// # Errors
    /// One is there twice.
    pub fn new(stops: Vec<(String, u64, Save)>) -> Result<Self, Unfollowable> {
        let mut index = BTreeMap::<String, BTreeMap<u64, usize>>::new();
        for (number, (point, pass, _)) in stops.iter().enumerate() {
            if index.entry(point.clone()).or_default().insert(*pass, number).is_some() {
                return Err(Unfollowable::Twice { point: point.clone(), pass: *pass });
            }
        }
        Ok(Self { stops, index, next: 0 })
    }

    pub fn is_empty(&self) -> bool {
        self.stops.is_empty()
    }

    /// How checkpoints are taken.
    pub fn saves(&self) -> impl Iterator<Item = Save> {
        self.stops.iter().map(|(_, _, save)| *save)
    }

    /// Goes on behind what was passed.
    pub fn go_on(&mut self, passed: &Passed) {
        let is_over = |(point, pass, _): &(String, u64, Save)| passed.get(point).is_some_and(|it| it > pass);
        self.next = self.stops.iter().take_while(|stop| is_over(stop)).count();
    }

    /// The program reaches a point that it has passed so often before.
    ///
    /// # Errors
    /// An earlier checkpoint of the list has not come.
    pub fn reach(&mut self, point: &str, times: u64) -> Result<Option<Save>, Misfit> {
        match self.index.get(point).and_then(|passes| passes.get(&times)) {
            None => Ok(None),
            Some(&stop) if stop == self.next => {
                self.next += 1;
                Ok(Some(self.stops[stop].2))
            }
            Some(_) => {
                let (missed, pass, _) = self.stops[self.next].clone();
                Err(Misfit::Missed { point: missed, pass, met: point.into(), met_pass: times })
            }
        }
    }

    /// The first checkpoint that has not come, and how many have not.
    pub fn left(&self) -> Option<(&str, u64, u64)> {
        let (point, pass, _) = self.stops.get(self.next)?;
        Some((point, *pass, (self.stops.len() - self.next) as u64))
    }
}
