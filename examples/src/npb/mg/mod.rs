//! MG, the multigrid kernel: a Poisson equation on a cube whose opposite faces meet, solved by V-cycles over
//! grids of halving resolution.
//!
//! A cube is cut into slabs along its last dimension. Each operator needs one plane of each neighbour, and
//! computes each point alike, whoever owns it. So a slab has the same bits for any number of ranks.

mod charges;
mod grid;
mod operators;
mod published;

pub use charges::charges;
pub use grid::Grid;
pub use operators::{Coefficients, prolongate, residual, restrict, smooth};
pub use published::Class;
