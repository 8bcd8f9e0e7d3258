//! What a body is made of.

use alloc::{
    borrow::ToOwned,
    string::{String, ToString},
};
use core::fmt;

use serde::{Deserialize, Serialize};

use super::{
    aspect::Aspect,
    element::{ElementType, Operation},
};
use crate::pieces::Pattern;

/// What a body is made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BodyKind {
    /// Elements that combine one by one: may be cut into segments and folded in place.
    Array {
        /// Type of an element.
        element: ElementType,
        /// What is done to two elements.
        operation: Operation,
        /// Number of elements; the same on all ranks.
        length: u64,
    },
    /// A value of any serde type: one segment, carried encoded; its length may differ between ranks.
    Object {
        /// The type's name as the compiler gives it.
        type_name: String,
    },
    /// Bytes that stay as they are: the result is the ranks' [pieces](crate::pieces), side by side.
    Pieces {
        /// What they are made of.
        of: String,
        /// Whose pieces go to whom.
        pattern: Pattern,
        /// Number of elements of each contribution, if that is to be the same on all ranks.
        length: Option<u64>,
    },
}

impl BodyKind {
    /// Whether folding cannot fail: the operation is ours, and all operands are known to have the same
    /// length.
    pub fn folds_surely(&self) -> bool {
        matches!(self, Self::Array { operation, .. } if !matches!(operation, Operation::Custom(_)))
    }

    /// Bytes of the body and of one element, if its elements may be cut apart.
    pub fn array_bytes(&self) -> Option<(u64, u64)> {
        match self {
            Self::Array { element, length, .. } => {
                let element = element.size_bytes();
                Some((element.saturating_mul(*length), element))
            }
            Self::Object { .. } | Self::Pieces { .. } => None,
        }
    }

    /// Whose pieces go to whom, if contributions are not folded.
    pub fn pattern(&self) -> Option<Pattern> {
        match self {
            Self::Pieces { pattern, .. } => Some(*pattern),
            Self::Array { .. } | Self::Object { .. } => None,
        }
    }
}

impl BodyKind {
    pub(super) fn disagreement(&self, other: &Self) -> Option<(Aspect, String, String)> {
        if self == other {
            return None;
        }
        Some(match (self, other) {
            (
                Self::Array { element: e1, operation: o1, length: l1 },
                Self::Array { element: e2, operation: o2, length: l2 },
            ) => {
                if e1 != e2 {
                    (Aspect::Element, e1.to_string(), e2.to_string())
                } else if o1 != o2 {
                    (Aspect::Operation, o1.to_string(), o2.to_string())
                } else {
                    (Aspect::Length, l1.to_string(), l2.to_string())
                }
            }
            (
                Self::Pieces { of: o1, pattern: p1, length: l1 },
                Self::Pieces { of: o2, pattern: p2, length: l2 },
            ) => {
                let length = |length: &Option<u64>| length.map_or("any".to_owned(), |it| it.to_string());
                if o1 != o2 {
                    (Aspect::Element, o1.clone(), o2.clone())
                } else if p1 != p2 {
                    (Aspect::Pattern, p1.to_string(), p2.to_string())
                } else {
                    (Aspect::Length, length(l1), length(l2))
                }
            }
            _ => (Aspect::BodyType, self.to_string(), other.to_string()),
        })
    }
}

impl fmt::Display for BodyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array { element, operation, length } => write!(f, "{operation} of {length} × {element}"),
            Self::Object { type_name } => f.write_str(type_name),
            Self::Pieces { of, pattern, .. } => write!(f, "{pattern}, of {of}"),
        }
    }
}
