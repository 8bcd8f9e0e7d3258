//! Arrays and what is done to their elements.
//!
//! Names and meaning follow the MPI standard (MPI 4.1 §6.9.2 and §6.9.4). All operations combine element by
//! element; all ranks contribute the same number of elements.
//!
//! All operations are commutative and associative, bit by bit and on all values, with one exception:
//! floating-point [`Sum`] and [`Product`] round, and are not associative. They are commutative, but for which
//! NaN comes out where there are several; that a NaN comes out is certain.

use std::fmt;

use bytemuck::Pod;
use everfold_protocol::spec::{BodyKind, ElementType, Operation};
use everfold_runtime::{
    body,
    executor::Returned,
    kernel::{Accumulate, Element, Located, element_wise, predefined},
    memory::buffer::Memory,
};

use crate::{
    array::{Array, downcast},
    body::{Body, Contribution},
};

/// Containers of elements: `Vec<T>` and [`Array<T>`].
pub trait Elements: Send + Sized + 'static {
    /// Type of an element.
    type Element: Pod + Send + Sync;

    #[doc(hidden)]
    fn into_memory(self) -> Box<dyn Memory>;

    #[doc(hidden)]
    fn from_memory(memory: Box<dyn Memory>) -> Option<Self>;
}

impl<T: Pod + Send + Sync> Elements for Vec<T> {
    type Element = T;

    fn into_memory(self) -> Box<dyn Memory> {
        Box::new(self)
    }

    fn from_memory(memory: Box<dyn Memory>) -> Option<Self> {
        downcast(memory)
    }
}

impl<T: Element> Elements for Array<T> {
    type Element = T;

    fn into_memory(self) -> Box<dyn Memory> {
        self.into_memory()
    }

    fn from_memory(memory: Box<dyn Memory>) -> Option<Self> {
        // The ranks have agreed on the type of its elements. The memory is of any kind: shared, private, or
        // what a collective call has delivered.
        Self::filled(memory)
    }
}

/// Numbers: what sums, products, minima and maxima are defined for.
pub trait Arithmetic: Element {}

/// Integers: what bitwise and logical operations are defined for.
pub trait Integer: Arithmetic {}

/// Values with a location: what [`MinLoc`] and [`MaxLoc`] are defined for.
pub trait Locating: Element {}

macro_rules! mark {
    ($trait:ident: $($type:ty),*) => {
        $(impl $trait for $type {})*
    };
}

mark!(Arithmetic: f32, f64, i32, i64, u32, u64, u8);
mark!(Integer: i32, i64, u32, u64, u8);
mark!(Locating: Located<f32>, Located<f64>, Located<i32>, Located<i64>, Located<u32>, Located<u64>);

fn contribute<T: Pod>(
    memory: Box<dyn Memory>,
    element: ElementType,
    operation: Operation,
    commutative: bool,
    accumulate: Accumulate,
) -> Contribution {
    let length = (memory.bytes().len() / size_of::<T>().max(1)) as u64;
    Contribution {
        kind: BodyKind::Array { element, operation, length },
        commutative,
        body: body::Body::Array { memory, element_bytes: size_of::<T>().max(1), accumulate },
    }
}

fn value<A: Elements>(returned: Returned) -> Option<A> {
    match returned {
        Returned::Array(memory) => A::from_memory(memory),
        Returned::Object(_) | Returned::Pieces { .. } => None,
    }
}

macro_rules! operation {
    ($(#[$doc:meta])* $name:ident, $bound:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name<A>(pub A);

        impl<A: Elements<Element: $bound>> Body for $name<A> {
            type Value = Self;

            fn contribute(self) -> Contribution {
                let element = A::Element::element_type();
                let kernel = predefined(&element, &Operation::$name);
                let kernel = kernel.expect("the trait bound admits only types this operation is defined for");
                contribute::<A::Element>(self.0.into_memory(), element, Operation::$name, true, kernel)
            }

            fn value(returned: Returned) -> Option<Self> {
                value(returned).map(Self)
            }
        }
    };
}

operation!(
    /// Sum of elements. Integers wrap around on overflow. Floating-point sums depend on the order in which
    /// ranks arrive, within rounding, unless it is [fixed](crate::Reduction::order).
    Sum, Arithmetic
);
operation!(
    /// Product of elements. Integers wrap around on overflow. Floating-point products round as sums do.
    Product, Arithmetic
);
operation!(
    /// Smaller of two elements. Of floating-point numbers as `minimum` of IEEE 754-2019: a NaN wins against
    /// all numbers, so that it is not lost, and `-0.0` is smaller than `0.0`. The result of any NaNs has all
    /// bits set.
    Min, Arithmetic
);
operation!(
    /// Larger of two elements. Of floating-point numbers as `maximum` of IEEE 754-2019: a NaN wins against
    /// all numbers, so that it is not lost, and `0.0` is larger than `-0.0`. The result of any NaNs has all
    /// bits set.
    Max, Arithmetic
);
operation!(
    /// Bitwise and.
    BitAnd, Integer
);
operation!(
    /// Bitwise or.
    BitOr, Integer
);
operation!(
    /// Bitwise exclusive or.
    BitXor, Integer
);
operation!(
    /// Logical and: zero is false, everything else true; the result is 0 or 1.
    LogicalAnd, Integer
);
operation!(
    /// Logical or: zero is false, everything else true; the result is 0 or 1.
    LogicalOr, Integer
);
operation!(
    /// Logical exclusive or: zero is false, everything else true; the result is 0 or 1.
    LogicalXor, Integer
);
operation!(
    /// Smallest value, as by [`Min`], and where it is; of equal values, or of NaNs, the smallest location.
    MinLoc, Locating
);
operation!(
    /// Largest value, as by [`Max`], and where it is; of equal values, or of NaNs, the smallest location.
    MaxLoc, Locating
);

/// An element-wise operation of the application's own, on any plain-old-data type.
///
/// ```
/// use everfold::ElementWise;
///
/// // Complex multiplication.
/// let body = ElementWise::new("complex product", vec![[1.0f64, 2.0]], |a, b| {
///     [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
/// });
/// ```
pub struct ElementWise<A, F> {
    name: String,
    elements: A,
    combine: F,
    commutative: bool,
}

impl<A: Elements, F: Fn(A::Element, A::Element) -> A::Element + Send + Sync + 'static> ElementWise<A, F> {
    /// Combines `elements` one by one with `combine`, which is associative and commutative. All ranks use the
    /// same `name`, by which they recognise that they mean the same operation.
    pub fn new(name: impl Into<String>, elements: A, combine: F) -> Self {
        Self { name: name.into(), elements, combine, commutative: true }
    }

    /// Says that operands must keep their order: lower ranks on the left, in
    /// [`Order::Fixed`](crate::Order::Fixed).
    pub fn non_commutative(mut self) -> Self {
        self.commutative = false;
        self
    }
}

impl<A: Elements, F: Fn(A::Element, A::Element) -> A::Element + Send + Sync + 'static> Body
    for ElementWise<A, F>
{
    type Value = A;

    fn contribute(self) -> Contribution {
        let Self { name, elements, combine, commutative } = self;
        let size_bytes = size_of::<A::Element>() as u32;
        let type_name = std::any::type_name::<A::Element>().to_owned();
        let accumulate = element_wise(combine);
        contribute::<A::Element>(
            elements.into_memory(),
            ElementType::Custom { name: type_name, size_bytes },
            Operation::Custom(name),
            commutative,
            accumulate,
        )
    }

    fn value(returned: Returned) -> Option<A> {
        value(returned)
    }
}

impl<A, F> fmt::Debug for ElementWise<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElementWise").field("name", &self.name).finish_non_exhaustive()
    }
}
