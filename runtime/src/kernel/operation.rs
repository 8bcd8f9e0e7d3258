//! The predefined element types and operations (MPI 4.1 §6.9.2 and §6.9.4).

use bytemuck::{Pod, Zeroable};
use everfold_protocol::spec::{ElementType, Operation};

use super::Pass;

/// A type that arrays may have as elements and that predefined operations know.
pub trait Element: Pod + Send + Sync {
    /// Its name on the wire.
    fn element_type() -> ElementType;
}

/// A value and where it was found: the element of min-loc and max-loc.
///
/// Of equal values the smaller location wins, as in MPI, which makes the operation commutative. `-0.0` is
/// smaller than `0.0`, and a NaN goes before all numbers, on either side.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
#[repr(C)]
pub struct Located<T: Value> {
    /// The value.
    pub value: T,
    /// Where it was found: a rank, an index, or anything else that the application counts. As wide as the
    /// value.
    pub location: T::Location,
}

/// A value that min-loc and max-loc compare.
pub trait Value: Pod + PartialOrd + Send + Sync {
    /// Unsigned integer of the same size and alignment.
    type Location: Pod + Ord + Send + Sync;
}

macro_rules! elements {
    ($($type:ty => $name:ident),*) => {$(
        impl Element for $type {
            fn element_type() -> ElementType {
                ElementType::$name
            }
        }
    )*};
}

elements!(f32 => F32, f64 => F64, i32 => I32, i64 => I64, u32 => U32, u64 => U64, u8 => U8);

macro_rules! located {
    ($($type:ty, $location:ty);*) => {$(
        impl Value for $type {
            type Location = $location;
        }

        // SAFETY: all zeros is a valid value of both fields.
        unsafe impl Zeroable for Located<$type> {}
        // SAFETY: `repr(C)` with two fields of equal size and alignment has no padding, and both are plain
        // old data.
        unsafe impl Pod for Located<$type> {}

        impl Element for Located<$type> {
            fn element_type() -> ElementType {
                ElementType::Located(Box::new(<$type>::element_type()))
            }
        }
    )*};
}

located!(f32, u32; f64, u64; i32, u32; i64, u64; u32, u32; u64, u64);

/// Folds the elements of `right` into those of `left`, several blocks at once.
#[inline(always)]
pub(super) fn each<T: Pod>(left: &mut [u8], right: &[&[u8]], pass: Pass, combine: impl Fn(T, T) -> T) {
    match pass {
        Pass::InTurn => in_turn(left, right, combine),
        Pass::InPairs => in_pairs(left, right, combine),
    }
}

/// Block after block: seven, three or one of them at once.
#[inline(always)]
fn in_turn<T: Pod>(left: &mut [u8], mut right: &[&[u8]], combine: impl Fn(T, T) -> T) {
    let Ok(left) = bytemuck::try_cast_slice_mut::<u8, T>(left) else {
        // A type of the application's that asks for more alignment than memory for partials has.
        for right in right {
            unaligned(left, right, &combine);
        }
        return;
    };
    while let Some(one) = right.first() {
        let passed = if let Some(seven) = aligned::<T, 7>(right) {
            fused(left, seven, &combine);
            7
        } else if let Some(three) = aligned::<T, 3>(right) {
            fused(left, three, &combine);
            3
        } else if let Some(one) = aligned::<T, 1>(right) {
            fused(left, one, &combine);
            1
        } else {
            // Inlined bodies lie wherever their frame put them.
            for (left, right) in left.iter_mut().zip(one.chunks_exact(size_of::<T>())) {
                *left = combine(*left, bytemuck::pod_read_unaligned(right));
            }
            1
        };
        right = &right[passed..];
    }
}

/// One, three or seven blocks: neighbours meet, then their results, and so on.
#[inline(always)]
fn in_pairs<T: Pod>(left: &mut [u8], right: &[&[u8]], combine: impl Fn(T, T) -> T) {
    if let Ok(left) = bytemuck::try_cast_slice_mut::<u8, T>(left) {
        if let Some(seven) = aligned(right) {
            return fused_eight(left, seven, &combine);
        } else if right.len() == 3
            && let Some(three) = aligned(right)
        {
            return fused_four(left, three, &combine);
        } else if right.len() == 1
            && let Some(one) = aligned::<T, 1>(right)
        {
            return fused(left, one, &combine);
        }
    }
    let size = size_of::<T>();
    for at in (0..left.len()).step_by(size) {
        let element = |block: &[u8]| bytemuck::pod_read_unaligned(&block[at..at + size]);
        let mut results = [T::zeroed(); 8];
        results[0] = element(left);
        results[1..].iter_mut().zip(right).for_each(|(result, block)| *result = element(block));
        let mut count = right.len() + 1;
        while count > 1 {
            count /= 2;
            (0..count).for_each(|i| results[i] = combine(results[2 * i], results[2 * i + 1]));
        }
        left[at..at + size].copy_from_slice(bytemuck::bytes_of(&results[0]));
    }
}

fn unaligned<T: Pod>(left: &mut [u8], right: &[u8], combine: &impl Fn(T, T) -> T) {
    let size = size_of::<T>();
    for (left, right) in left.chunks_exact_mut(size).zip(right.chunks_exact(size)) {
        let element = combine(bytemuck::pod_read_unaligned(left), bytemuck::pod_read_unaligned(right));
        left.copy_from_slice(bytemuck::bytes_of(&element));
    }
}

/// The first `N` blocks, if there are as many and they are aligned for `T`.
#[inline(always)]
fn aligned<'a, T: Pod, const N: usize>(blocks: &[&'a [u8]]) -> Option<[&'a [T]; N]> {
    let blocks = blocks.first_chunk::<N>()?;
    let mut elements = [&[] as &[T]; N];
    for (elements, block) in elements.iter_mut().zip(blocks) {
        *elements = bytemuck::try_cast_slice(block).ok()?;
    }
    Some(elements)
}

/// One pass over `left` and `N` blocks: known trip counts, no bounds checks, no exits.
#[inline(always)]
fn fused<T: Pod, const N: usize>(left: &mut [T], right: [&[T]; N], combine: &impl Fn(T, T) -> T) {
    let len = left.len();
    let right = right.map(|block| &block[..len]);
    for index in 0..len {
        let mut element = left[index];
        for block in right {
            element = combine(element, block[index]);
        }
        left[index] = element;
    }
}

/// The same over four blocks in pairs.
#[inline(always)]
fn fused_four<T: Pod>(left: &mut [T], right: [&[T]; 3], combine: &impl Fn(T, T) -> T) {
    let len = left.len();
    let [b, c, d] = right.map(|block| &block[..len]);
    for i in 0..len {
        left[i] = combine(combine(left[i], b[i]), combine(c[i], d[i]));
    }
}

/// The same over eight blocks in pairs.
#[inline(always)]
fn fused_eight<T: Pod>(left: &mut [T], right: [&[T]; 7], combine: &impl Fn(T, T) -> T) {
    let len = left.len();
    let [b, c, d, e, f, g, h] = right.map(|block| &block[..len]);
    for i in 0..len {
        let one = combine(combine(left[i], b[i]), combine(c[i], d[i]));
        let other = combine(combine(e[i], f[i]), combine(g[i], h[i]));
        left[i] = combine(one, other);
    }
}

/// Runs a loop with the widest vectors that all processors of the last ten years have, if this one has them.
/// They round as the narrow ones do.
#[cfg(target_arch = "x86_64")]
fn widely(pass: impl FnOnce()) {
    #[target_feature(enable = "avx2")]
    fn avx2(pass: impl FnOnce()) {
        pass();
    }
    match std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: this processor has those instructions.
        true => unsafe { avx2(pass) },
        false => pass(),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn widely(pass: impl FnOnce()) {
    pass();
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn apply<T: Element>(operation: Operation, left: &[T], right: &[T]) -> Vec<T> {
        let mut left = left.to_vec();
        let kernel = lookup(&T::element_type(), &operation).expect("defined");
        kernel(bytemuck::cast_slice_mut(&mut left), &[bytemuck::cast_slice(right)], Pass::InTurn);
        left
    }

    #[test]
    fn arithmetic() {
        assert_eq!(apply(Operation::Sum, &[1.5f32, -2.0], &[0.25, 2.0]), [1.75, 0.0]);
        assert_eq!(apply(Operation::Product, &[3i64, i64::MAX], &[-2, 2]), [-6, -2]);
        assert_eq!(apply(Operation::Sum, &[250u8], &[10]), [4], "wraps");
        assert_eq!(apply(Operation::Min, &[1.0f64, 3.0], &[-1.0, f64::INFINITY]), [-1.0, 3.0]);
        assert_eq!(apply(Operation::Max, &[-1i32, 7], &[-5, 9]), [-1, 9]);
    }

    #[test]
    fn bits_and_truth() {
        assert_eq!(apply(Operation::BitAnd, &[0b1100u32], &[0b1010]), [0b1000]);
        assert_eq!(apply(Operation::BitOr, &[0b1100u64], &[0b1010]), [0b1110]);
        assert_eq!(apply(Operation::BitXor, &[0b1100u8], &[0b1010]), [0b0110]);
        assert_eq!(apply(Operation::LogicalAnd, &[0i32, 2, 3, 0], &[0, 0, 4, 5]), [0, 0, 1, 0]);
        assert_eq!(apply(Operation::LogicalOr, &[0i32, 2, 3, 0], &[0, 0, 4, 5]), [0, 1, 1, 1]);
        assert_eq!(apply(Operation::LogicalXor, &[0u8, 2, 3, 0], &[0, 0, 4, 5]), [0, 1, 0, 1]);
    }

    /// All that is special, and some that is not.
    trait Special: Element {
        fn special() -> Vec<Self>;
        /// As a name for its bits; NaNs are one.
        fn bits(self) -> u64;
    }

    macro_rules! special_floats {
        ($($type:ident, $bits:ident);*) => {$(
            impl Special for $type {
                fn special() -> Vec<Self> {
                    let least = <$type>::from_bits(1);
                    let exponent = <$type>::INFINITY.to_bits();
                    // Quiet and signalling, with other payloads.
                    let nans = [<$type>::NAN.to_bits(), exponent | 1, exponent | 2, exponent | (exponent >> 1), !0 >> 1];
                    let positive = [0.0, least, 1.0, 1.5, <$type>::MIN_POSITIVE, <$type>::MAX, <$type>::INFINITY];
                    let positive = positive.into_iter().chain(nans.map(<$type>::from_bits));
                    positive.flat_map(|it| [it, <$type>::from_bits(it.to_bits() | 1 << ($bits::BITS - 1))]).collect()
                }

                fn bits(self) -> u64 {
                    if self.is_nan() { u64::MAX } else { self.to_bits().into() }
                }
            }
        )*};
    }

    special_floats!(f32, u32; f64, u64);

    macro_rules! special_integers {
        ($($type:ident),*) => {$(
            impl Special for $type {
                fn special() -> Vec<Self> {
                    let near = [0, 1, 2, 7, <$type>::MAX / 2, <$type>::MAX - 1, <$type>::MAX];
                    near.into_iter().flat_map(|it| [it, !it]).collect()
                }

                fn bits(self) -> u64 {
                    self as u64
                }
            }
        )*};
    }

    special_integers!(i32, i64, u32, u64, u8);

    macro_rules! special_located {
        ($($type:ident),*) => {$(
            impl Special for Located<$type> {
                fn special() -> Vec<Self> {
                    let at = [0, 1, 2, <$type as Value>::Location::MAX];
                    let values = <$type>::special().into_iter().step_by(2).chain([<$type>::special()[1]]);
                    values.flat_map(|value| at.map(|location| Self { value, location })).collect()
                }

                fn bits(self) -> u64 {
                    unreachable!("locations are bits by themselves")
                }
            }
        )*};
    }

    special_located!(f32, f64, i32, i64, u32, u64);

    /// All triples of what is special, as three columns.
    fn triples<T: Special>() -> [Vec<T>; 3] {
        let all = T::special();
        let mut triples = [Vec::new(), Vec::new(), Vec::new()];
        for &a in &all {
            for &b in &all {
                for &c in &all {
                    [a, b, c].into_iter().zip(&mut triples).for_each(|(it, column)| column.push(it));
                }
            }
        }
        triples
    }

    fn assert_same_bits<T: Special>(one: &[T], other: &[T], what: &str) {
        let (one, other): (&[u8], &[u8]) = (bytemuck::cast_slice(one), bytemuck::cast_slice(other));
        let differs = one.chunks(size_of::<T>()).zip(other.chunks(size_of::<T>())).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{what} of {}", T::element_type());
    }

    /// The same bits in any order and with any brackets, wherever the operands lie and however many meet at
    /// once.
    fn is_lawful<T: Special>(operation: &Operation) {
        let [a, b, c] = triples::<T>();
        let apply = |left: &[T], right: &[T]| apply(operation.clone(), left, right);
        assert_same_bits(&apply(&a, &b), &apply(&b, &a), &format!("{operation} is not commutative"));
        let one = apply(&apply(&a, &b), &c);
        assert_same_bits(&one, &apply(&a, &apply(&b, &c)), &format!("{operation} is not associative"));
        let kernel = lookup(&T::element_type(), operation).unwrap();
        for pass in [Pass::InTurn, Pass::InPairs] {
            for shift in [0, 1] {
                let shifted = |it: &[T]| [vec![0; shift], bytemuck::cast_slice(it).to_vec()].concat();
                let (mut left, right) = (shifted(&a), [shifted(&b), shifted(&c), shifted(&b)]);
                kernel(&mut left[shift..], &right.each_ref().map(|it| &it[shift..]), pass);
                let two = apply(&one, &b);
                assert!(
                    left[shift..] == *bytemuck::cast_slice::<T, u8>(&two),
                    "{operation} {pass:?} {shift}"
                );
            }
        }
    }

    /// Commutative, but for which NaN comes out.
    fn commutes<T: Special>(operation: &Operation) {
        let [a, b, _] = triples::<T>();
        let bits = |left: &[T], right: &[T]| -> Vec<u64> {
            apply(operation.clone(), left, right).into_iter().map(T::bits).collect()
        };
        assert_eq!(bits(&a, &b), bits(&b, &a), "{operation}");
    }

    #[test]
    fn every_operation_keeps_the_laws_that_it_has() {
        use Operation::{
            BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, LogicalXor, Max, MaxLoc, Min, MinLoc, Product, Sum,
        };
        for operation in [Sum, Product] {
            commutes::<f32>(&operation);
            commutes::<f64>(&operation);
        }
        for operation in [Min, Max] {
            is_lawful::<f32>(&operation);
            is_lawful::<f64>(&operation);
        }
        for operation in [MinLoc, MaxLoc] {
            is_lawful::<Located<f32>>(&operation);
            is_lawful::<Located<f64>>(&operation);
            is_lawful::<Located<i32>>(&operation);
            is_lawful::<Located<i64>>(&operation);
            is_lawful::<Located<u32>>(&operation);
            is_lawful::<Located<u64>>(&operation);
        }
        let on_integers = [Sum, Product, Min, Max, BitAnd, BitOr, BitXor, LogicalAnd, LogicalOr, LogicalXor];
        for operation in on_integers {
            is_lawful::<i32>(&operation);
            is_lawful::<i64>(&operation);
            is_lawful::<u32>(&operation);
            is_lawful::<u64>(&operation);
            is_lawful::<u8>(&operation);
        }
    }

    #[test]
    fn a_nan_goes_before_all_numbers_and_zero_has_a_sign() {
        let nan = f64::from_bits(u64::MAX);
        let signalling = f64::from_bits(f64::INFINITY.to_bits() | 1);
        for operation in [Operation::Min, Operation::Max] {
            let [one, other]: [f64; 2] =
                apply(operation, &[1.0, signalling], &[f64::NAN, -f64::INFINITY]).try_into().unwrap();
            assert_eq!([one.to_bits(), other.to_bits()], [nan.to_bits(); 2]);
        }
        assert!(apply(Operation::Min, &[0.0f32], &[-0.0])[0].is_sign_negative());
        assert!(apply(Operation::Max, &[-0.0f32], &[0.0])[0].is_sign_positive());
        let at = |value: f32, location| Located { value, location };
        let first = apply(Operation::MinLoc, &[at(f32::NAN, 4), at(0.0, 1)], &[at(f32::NAN, 2), at(-0.0, 7)]);
        assert!(first[0].value.is_nan() && first[0].location == 2);
        assert!(first[1].value.is_sign_negative() && first[1].location == 7);
        let last = apply(Operation::MaxLoc, &[at(1.0, 4), at(0.0, 7)], &[at(f32::NAN, 9), at(-0.0, 1)]);
        assert!(last[0].value.is_nan() && last[0].location == 9);
        assert!(last[1].value.is_sign_positive() && last[1].location == 7);
    }

    #[test]
    fn locations_break_ties_downwards() {
        let at = |value: f64, location| Located { value, location };
        let left = [at(1.0, 5), at(2.0, 9), at(3.0, 0)];
        let right = [at(1.0, 3), at(7.0, 1), at(-3.0, 4)];
        assert_eq!(apply(Operation::MinLoc, &left, &right), [at(1.0, 3), at(2.0, 9), at(-3.0, 4)]);
        assert_eq!(apply(Operation::MaxLoc, &left, &right), [at(1.0, 3), at(7.0, 1), at(3.0, 0)]);
    }

    #[test]
    fn an_operand_may_lie_anywhere() {
        let bytes: Vec<u8> =
            [0u8].into_iter().chain(bytemuck::cast_slice(&[1.0f64, 2.0]).iter().copied()).collect();
        let mut left = [10.0f64, 20.0];
        let kernel = lookup(&ElementType::F64, &Operation::Sum).unwrap();
        kernel(bytemuck::cast_slice_mut(&mut left), &[&bytes[1..]], Pass::InTurn);
        assert_eq!(left, [11.0, 22.0]);
    }

    #[test]
    fn any_number_of_operands_is_folded_in_order() {
        // Not commutative: the last operand wins in the low digits.
        let combine = |a: u64, b: u64| a.wrapping_mul(31).wrapping_add(b);
        for count in 0..20u64 {
            let operands: Vec<Vec<u64>> = (1..=count).map(|n| vec![n, n * n, 7]).collect();
            let blocks: Vec<&[u8]> = operands.iter().map(|block| bytemuck::cast_slice(block)).collect();
            let mut left = [5u64, 6, 7];
            each(bytemuck::cast_slice_mut(&mut left), &blocks, Pass::InTurn, combine);
            let fold = |at: usize, first| operands.iter().fold(first, |sum, block| combine(sum, block[at]));
            let expected = [fold(0, 5), fold(1, 6), fold(2, 7)];
            assert_eq!(left, expected, "{count} operands");
            let mut anywhere = [0u8; 25];
            anywhere[1..].copy_from_slice(bytemuck::cast_slice(&[5u64, 6, 7]));
            each(&mut anywhere[1..], &blocks, Pass::InTurn, combine);
            assert_eq!(
                anywhere[1..],
                *bytemuck::cast_slice::<u64, u8>(&expected),
                "{count} operands, unaligned"
            );
        }
    }

    #[test]
    fn two_four_and_eight_operands_meet_in_pairs() {
        let combine = |a: u64, b: u64| (a.rotate_left(7) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bytes = |before: usize, operand: &[u64; 3]| -> Vec<u8> {
            [vec![0; before], bytemuck::cast_slice(operand).to_vec()].concat()
        };
        for count in [2, 4, 8] {
            let operands: Vec<[u64; 3]> = (1..=count).map(|n| [n, n * n, 7]).collect();
            let mut expected = operands.clone();
            while expected.len() > 1 {
                let met =
                    expected.chunks(2).map(|pair| [0, 1, 2].map(|at| combine(pair[0][at], pair[1][at])));
                expected = met.collect();
            }
            for (left_at, right_at) in [(0, 0), (1, 0), (0, 1)] {
                let mut left = bytes(left_at, &operands[0]);
                let right: Vec<Vec<u8>> = operands[1..].iter().map(|it| bytes(right_at, it)).collect();
                let right: Vec<&[u8]> = right.iter().map(|block| &block[right_at..]).collect();
                each(&mut left[left_at..], &right, Pass::InPairs, combine);
                assert_eq!(
                    left[left_at..],
                    bytes(0, &expected[0]),
                    "{count} operands at {left_at}, {right_at}"
                );
            }
        }
    }

    #[test]
    fn what_mpi_does_not_define_is_not_defined() {
        assert!(lookup(&ElementType::F32, &Operation::BitAnd).is_none());
        assert!(lookup(&ElementType::U8, &Operation::MinLoc).is_none());
        assert!(lookup(&ElementType::Custom { name: "x".into(), size_bytes: 4 }, &Operation::Sum).is_none());
    }
}
