//! FT, the Fourier transform kernel: a partial differential equation in three dimensions, solved in the
//! spectrum.
//!
//! A transform of the whole field is one of its planes in x and y, and then one of its slabs in z. Any rank
//! can transform any part of a field that all have, again if need be, to the same bits.

mod field;
mod published;
mod transform;

pub use field::{Checksum, Complex, Field};
pub use published::Class;
