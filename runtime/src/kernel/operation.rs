//! The predefined operations (MPI 4.1 §6.9.2 and §6.9.4).

use everfold_protocol::spec::{ElementType, Operation};

use super::{
    Pass,
    blocks::{each, widely},
    element::{Located, Value},
};

#[cfg(test)]
mod tests;

macro_rules! kernel {
    ($type:ty, $combine:expr) => {
        Some(|left: &mut [u8], right: &[&[u8]], pass: Pass| {
            widely(
                #[inline(always)]
                || each::<$type>(left, right, pass, $combine),
            )
        })
    };
}

/// Floating-point numbers have one smallest and one largest, the same bits in any order: −∞ < … < −0 < 0 < …
/// < ∞, and a NaN goes before all of them. All NaNs become one, of which every bit is set. That is `minimum`
/// and `maximum` of IEEE 754-2019.
trait Float: Value {
    /// Larger than any other location, or equal.
    const LAST: Self::Location;

    fn smallest(self, other: Self) -> Self;
    fn largest(self, other: Self) -> Self;
    /// Whether this is what a smallest or largest one was made of.
    fn is_in(self, extreme: Self) -> bool;
}

macro_rules! floats {
    ($($float:ident, $bits:ident);*) => {$(
        impl Float for $float {
            const LAST: $bits = $bits::MAX;

            // Equal numbers have equal bits, but for 0 and −0, of which `|` makes −0 and `&` makes 0.
            #[inline(always)]
            fn smallest(self, other: Self) -> Self {
                let one = if self < other { self } else { other };
                let same = if other < self { other } else { self };
                let nan = if self.is_nan() | other.is_nan() { !0 } else { 0 };
                Self::from_bits(one.to_bits() | same.to_bits() | nan)
            }

            #[inline(always)]
            fn largest(self, other: Self) -> Self {
                let one = if self > other { self } else { other };
                let same = if other > self { other } else { self };
                let nan = if self.is_nan() | other.is_nan() { !0 } else { 0 };
                Self::from_bits(one.to_bits() & same.to_bits() | nan)
            }

            #[inline(always)]
            fn is_in(self, extreme: Self) -> bool {
                (self.to_bits() == extreme.to_bits()) | self.is_nan()
            }
        }
    )*};
}

floats!(f32, u32; f64, u64);

/// The extreme of two values, and the smallest location of those that it was made of.
#[inline(always)]
fn located<T: Float>(a: Located<T>, b: Located<T>, extreme: impl Fn(T, T) -> T) -> Located<T> {
    let value = extreme(a.value, b.value);
    let at = |it: Located<T>| if it.value.is_in(value) { it.location } else { T::LAST };
    Located { value, location: at(a).min(at(b)) }
}

macro_rules! float {
    ($type:ty, $operation:expr) => {
        match $operation {
            Operation::Sum => kernel!($type, |a, b| a + b),
            Operation::Product => kernel!($type, |a, b| a * b),
            Operation::Min => kernel!($type, Float::smallest),
            Operation::Max => kernel!($type, Float::largest),
            _ => None,
        }
    };
}

macro_rules! integer {
    ($type:ty, $operation:expr) => {
        match $operation {
            // On overflow the result is the low bits, the same in any order.
            Operation::Sum => kernel!($type, |a, b| a.wrapping_add(b)),
            Operation::Product => kernel!($type, |a, b| a.wrapping_mul(b)),
            Operation::Min => kernel!($type, |a, b| a.min(b)),
            Operation::Max => kernel!($type, |a, b| a.max(b)),
            Operation::BitAnd => kernel!($type, |a, b| a & b),
            Operation::BitOr => kernel!($type, |a, b| a | b),
            Operation::BitXor => kernel!($type, |a, b| a ^ b),
            Operation::LogicalAnd => kernel!($type, |a, b| <$type>::from(a != 0 && b != 0)),
            Operation::LogicalOr => kernel!($type, |a, b| <$type>::from(a | b != 0)),
            Operation::LogicalXor => kernel!($type, |a, b| <$type>::from((a != 0) ^ (b != 0))),
            _ => None,
        }
    };
}

macro_rules! locate {
    ($type:ty, $operation:expr) => {
        match $operation {
            Operation::MinLoc => kernel!(Located<$type>, |a, b| {
                if b.value < a.value || (b.value == a.value && b.location < a.location) { b } else { a }
            }),
            Operation::MaxLoc => kernel!(Located<$type>, |a, b| {
                if b.value > a.value || (b.value == a.value && b.location < a.location) { b } else { a }
            }),
            _ => None,
        }
    };
}

macro_rules! locate_float {
    ($type:ty, $operation:expr) => {
        match $operation {
            Operation::MinLoc => kernel!(Located<$type>, |a, b| located(a, b, Float::smallest)),
            Operation::MaxLoc => kernel!(Located<$type>, |a, b| located(a, b, Float::largest)),
            _ => None,
        }
    };
}

/// A kernel as a plain function.
pub(super) type Kernel = fn(&mut [u8], &[&[u8]], Pass);

/// The kernel for `operation` on elements of type `element`, if MPI defines it.
pub(super) fn lookup(element: &ElementType, operation: &Operation) -> Option<Kernel> {
    match element {
        ElementType::F32 => float!(f32, operation),
        ElementType::F64 => float!(f64, operation),
        ElementType::I32 => integer!(i32, operation),
        ElementType::I64 => integer!(i64, operation),
        ElementType::U32 => integer!(u32, operation),
        ElementType::U64 => integer!(u64, operation),
        ElementType::U8 => integer!(u8, operation),
        ElementType::Located(value) => match **value {
            ElementType::F32 => locate_float!(f32, operation),
            ElementType::F64 => locate_float!(f64, operation),
            ElementType::I32 => locate!(i32, operation),
            ElementType::I64 => locate!(i64, operation),
            ElementType::U32 => locate!(u32, operation),
            ElementType::U64 => locate!(u64, operation),
            _ => None,
        },
        ElementType::Custom { .. } => None,
    }
}
