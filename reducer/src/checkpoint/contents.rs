//! What the parts of a checkpoint are: the state, then arrays, then what hooks have saved.

use std::collections::BTreeSet;

use everfold_planner::follow::Passed;
use everfold_protocol::spec::ElementType;
use everfold_runtime::kernel::Element;
use serde::{Deserialize, Serialize};

use super::error::CheckpointError;

/// What the parts of a checkpoint are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contents {
    pub type_name: String,
    pub arrays: Vec<Shape>,
    pub hooks: Vec<String>,
    /// How far the program is in its plan, if it follows one.
    pub passed: Option<Passed>,
}

/// An array that is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shape {
    pub name: String,
    element: ElementType,
    length: u64,
}

impl Shape {
    pub fn of<T: Element>(name: String, array: &[T]) -> Self {
        Self { name, element: T::element_type(), length: array.len() as u64 }
    }

    fn in_words(&self) -> String {
        format!("{} elements of {}", self.length, self.element)
    }
}

impl Contents {
    /// Index of the first array among the parts.
    pub const ARRAYS_AT: usize = 1;

    /// Index of what the first hook has saved among the parts.
    pub fn hooks_at(&self) -> usize {
        Self::ARRAYS_AT + self.arrays.len()
    }

    /// Refuses what cannot be told apart by its name.
    pub fn check(&self) -> Result<(), CheckpointError> {
        once("array", self.arrays.iter().map(|array| &array.name))?;
        once("hook", self.hooks.iter())
    }

    /// Refuses to go on from other contents than are asked for, with a state of type `asked_type`.
    pub fn compare(&self, asked: &Self, asked_type: &'static str) -> Result<(), CheckpointError> {
        if self.type_name != asked_type {
            return Err(CheckpointError::OtherType { saved: self.type_name.clone(), asked: asked_type });
        }
        let arrays = |of: &Self| of.arrays.iter().map(|it| (it.name.clone(), it.in_words())).collect();
        same("array", arrays(self), arrays(asked))?;
        let hooks = |of: &Self| of.hooks.iter().map(|name| (name.clone(), "its state".to_owned())).collect();
        same("hook", hooks(self), hooks(asked))
    }
}

fn once<'a>(what: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), CheckpointError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(CheckpointError::TwiceNamed { what, name: name.clone() });
        }
    }
    Ok(())
}

/// Names the first thing that was saved and is not asked for as it was, or the other way round.
fn same(
    what: &'static str,
    saved: Vec<(String, String)>,
    asked: Vec<(String, String)>,
) -> Result<(), CheckpointError> {
    if saved == asked {
        return Ok(());
    }
    let place = (0..).find(|&place| saved.get(place) != asked.get(place)).unwrap_or_default();
    let name = asked.get(place).or(saved.get(place)).map(|(name, _)| name.clone()).unwrap_or_default();
    let found = |of: &[(String, String)]| {
        let words = |(at, (_, words)): (usize, &(String, String))| format!("{words} at place {at}");
        let mut all = of.iter().enumerate();
        all.find(|(_, (other, _))| *other == name).map_or_else(|| "nothing".to_owned(), words)
    };
    let (saved, asked) = (found(&saved), found(&asked));
    Err(CheckpointError::Differs { what, name, saved, asked })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(arrays: &[(&str, usize)], hooks: &[&str]) -> Contents {
        Contents {
            type_name: "State".to_owned(),
            arrays: arrays
                .iter()
                .map(|&(name, len)| Shape::of(name.to_owned(), &vec![0.0f64; len]))
                .collect(),
            hooks: hooks.iter().map(|name| (*name).to_owned()).collect(),
            passed: None,
        }
    }

    #[test]
    fn what_differs_is_named() {
        let saved = contents(&[("field", 8), ("mesh", 3)], &["device"]);
        saved.compare(&saved, "State").unwrap();
        for (asked, says) in [
            (
                contents(&[("field", 9), ("mesh", 3)], &["device"]),
                "array \"field\" the checkpoint has 8 elements of f64",
            ),
            (contents(&[("field", 8)], &["device"]), "and nothing is asked for"),
            (
                contents(&[("mesh", 3), ("field", 8)], &["device"]),
                "array \"mesh\" the checkpoint has 3 elements of f64 at place 1",
            ),
            (contents(&[("field", 8), ("mesh", 3)], &[]), "hook \"device\""),
            (
                contents(&[("field", 8), ("mesh", 3)], &["device", "rng"]),
                "hook \"rng\" the checkpoint has nothing",
            ),
        ] {
            let told = saved.compare(&asked, "State").unwrap_err().to_string();
            assert!(told.contains(says), "{told}");
        }
    }

    #[test]
    fn names_stand_for_one_thing() {
        contents(&[("field", 1)], &["field"]).check().unwrap();
        assert!(contents(&[("field", 1), ("field", 1)], &[]).check().is_err());
        assert!(contents(&[], &["a", "b", "a"]).check().is_err());
    }
}
