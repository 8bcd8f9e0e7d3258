//! Bodies of applications in what a segment folds.

use everfold_segment::{Combine, round::Round};
use serde::{Deserialize, Serialize};

use crate::body::ReducerBody;

/// A body that is folded.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "B: ReducerBody", transparent)]
pub(super) struct Value<B>(pub(super) B);

impl<B: ReducerBody> Combine for Value<B> {
    fn combine(&mut self, other: Self) {
        self.0.combine(other.0);
    }
}

impl<B: ReducerBody> ReducerBody for Round<Value<B>> {
    fn combine(&mut self, other: Self) {
        Combine::combine(self, other);
    }
}
