//! Every operation keeps the laws that it has, on all that is special.

use super::{super::Element, *};

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
            assert!(left[shift..] == *bytemuck::cast_slice::<T, u8>(&two), "{operation} {pass:?} {shift}");
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
fn what_mpi_does_not_define_is_not_defined() {
    assert!(lookup(&ElementType::F32, &Operation::BitAnd).is_none());
    assert!(lookup(&ElementType::U8, &Operation::MinLoc).is_none());
    assert!(lookup(&ElementType::Custom { name: "x".into(), size_bytes: 4 }, &Operation::Sum).is_none());
}
