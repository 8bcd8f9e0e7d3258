//! What all ranks of one reduction must agree on, and the limits that hold for all of them.
//!
//! | file | holds |
//! |---|---|
//! | `agreement` | what each rank sends, and the master compares |
//! | `aspect` | on what two ranks may disagree |
//! | `order` | which operands meet |
//! | `delivery` | who receives the result |
//! | `protection` | what of an original outlives its owner's host |
//! | `body` | what a body is made of |
//! | `element` | what an array consists of, and what is done to two elements |
//! | `limits` | what every part of a job holds to |

mod agreement;
mod aspect;
mod body;
mod delivery;
mod element;
mod limits;
mod order;
mod protection;

pub use self::{
    agreement::ReductionSpec,
    aspect::Aspect,
    body::BodyKind,
    delivery::Delivery,
    element::{ElementType, Operation},
    limits::Limits,
    order::Order,
    protection::{Protection, ProtectionError},
};
