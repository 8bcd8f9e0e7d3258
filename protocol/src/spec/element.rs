//! What an array consists of, and what is done to two elements.

use alloc::{boxed::Box, string::String};
use core::fmt;

use serde::{Deserialize, Serialize};

/// Type of an array's elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum ElementType {
    F32,
    F64,
    I32,
    I64,
    U32,
    U64,
    U8,
    /// A value and where it was found, for min-loc and max-loc.
    Located(Box<ElementType>),
    /// A plain-old-data type of the application.
    Custom {
        name: String,
        size_bytes: u32,
    },
}

impl ElementType {
    /// Size of one element in bytes.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::U8 => 1,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
            // The location is as wide as the value.
            Self::Located(value) => value.size_bytes().saturating_mul(2),
            Self::Custom { size_bytes, .. } => u64::from(*size_bytes),
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("f32"),
            Self::F64 => f.write_str("f64"),
            Self::I32 => f.write_str("i32"),
            Self::I64 => f.write_str("i64"),
            Self::U32 => f.write_str("u32"),
            Self::U64 => f.write_str("u64"),
            Self::U8 => f.write_str("u8"),
            Self::Located(value) => write!(f, "located {value}"),
            Self::Custom { name, size_bytes } => write!(f, "{name} ({size_bytes} bytes)"),
        }
    }
}

/// What is done to two elements. Names follow the MPI standard's predefined operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Operation {
    Sum,
    Product,
    Min,
    Max,
    BitAnd,
    BitOr,
    BitXor,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    MinLoc,
    MaxLoc,
    /// The application's own, known by its name.
    Custom(String),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::BitAnd => "bitwise and",
            Self::BitOr => "bitwise or",
            Self::BitXor => "bitwise xor",
            Self::LogicalAnd => "logical and",
            Self::LogicalOr => "logical or",
            Self::LogicalXor => "logical xor",
            Self::MinLoc => "min-loc",
            Self::MaxLoc => "max-loc",
            Self::Custom(name) => name,
        })
    }
}
