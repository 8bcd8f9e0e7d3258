//! Components that a program adds to everfold, by the names under which a recovery file chooses them.

use std::{fmt, sync::Arc};

use everfold_master::recovery::Detector;
use serde::{Deserialize, Serialize};

/// Makes a detector for a job.
type Make = Arc<dyn Fn() -> Box<dyn Detector> + Send + Sync>;

/// The components that a program adds: detectors of its own, each with a name.
///
/// The program needs them that hosts the master of the job: the one that starts the ranks of the first host.
/// A component that is here does nothing until the recovery file, or the configuration, chooses it by its
/// name.
#[derive(Clone, Default)]
pub struct Components {
    detectors: Vec<(String, Make)>,
}

/// No detector with this name is among the [`Components`] of the program that hosts the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("there is no detector `{name}` in the program that starts the job{}", told(known))]
pub struct UnknownDetector {
    /// Its name.
    pub name: String,
    /// The names of those that are there.
    pub known: Vec<String>,
}

fn told(known: &[String]) -> String {
    if known.is_empty() {
        return ", which has no detectors of its own: start the job with a program that adds it \
                (Launch::detector, everfold_cli::main_with)"
            .to_owned();
    }
    let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    format!(", which has {}", names.join(", "))
}

impl Components {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a detector. `make` makes one for each job. Of two with the same name the later one counts.
    pub fn detector<D: Detector + 'static>(
        mut self,
        name: impl Into<String>,
        make: impl Fn() -> D + Send + Sync + 'static,
    ) -> Self {
        let name = name.into();
        self.detectors.retain(|(other, _)| *other != name);
        self.detectors.push((name, Arc::new(move || Box::new(make()))));
        self
    }

    /// Those with these names, in this order.
    ///
    /// # Errors
    /// One of them is not here.
    pub fn choose(&self, names: &[String]) -> Result<Self, UnknownDetector> {
        let find = |name: &String| {
            let found = self.detectors.iter().find(|(other, _)| other == name);
            let known = || self.detectors.iter().map(|(name, _)| name.clone()).collect();
            found.cloned().ok_or_else(|| UnknownDetector { name: name.clone(), known: known() })
        };
        Ok(Self { detectors: names.iter().map(find).collect::<Result<_, _>>()? })
    }

    /// A detector of each kind, for a job.
    pub(crate) fn detectors(&self) -> Vec<Box<dyn Detector>> {
        self.detectors.iter().map(|(_, make)| make()).collect()
    }
}

impl fmt::Debug for Components {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.detectors.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use everfold_master::recovery::{Chain, Death};
    use everfold_protocol::Timestamp;

    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "it is shown")]
    struct Numbered(u32);

    impl Detector for Numbered {
        fn judge(&mut self, _: Timestamp, _: &Death) -> Option<Chain> {
            None
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn those_are_made_that_are_chosen_in_the_order_of_the_choice() {
        let components = Components::new()
            .detector("one", || Numbered(1))
            .detector("two", || Numbered(0))
            .detector("three", || Numbered(3))
            .detector("two", || Numbered(2));
        let made = |chosen: &[&str]| format!("{:?}", components.choose(&names(chosen)).unwrap().detectors());
        assert_eq!(made(&["three", "two"]), "[Numbered(3), Numbered(2)]", "the later of that name");
        assert_eq!(made(&[]), "[]");
    }

    #[test]
    fn an_unknown_name_is_told_with_those_that_there_are() {
        let known = Components::new().detector("one", || Numbered(1)).detector("two", || Numbered(2));
        let told = |components: Components| components.choose(&names(&["ten"])).unwrap_err().to_string();
        let error = told(known);
        assert!(error.contains("no detector `ten`") && error.ends_with("has `one`, `two`"), "{error}");
        assert!(told(Components::new()).contains("Launch::detector"));
    }
}
