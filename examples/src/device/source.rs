//! What a program's CUDA C++ source says of its kernels.

use std::collections::HashMap;

use super::{Argument, Launch};

/// The kernels of a source by name, each with the kinds of its parameters.
pub(super) struct Source(HashMap<&'static str, Vec<Kind>>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Pointer,
    Count,
    Real,
}

impl Source {
    /// Reads the declarations of kernels. Beside pointers they take `count` and `double` alone.
    pub(super) fn of(text: &'static str) -> Self {
        let declared = text.split("__global__ void ").skip(1);
        let kernel = |rest: &'static str| {
            let (name, rest) = rest.split_once('(').expect("a kernel has parameters");
            let (parameters, _) = rest.split_once(')').expect("parameters end");
            (name, parameters.split(',').map(Kind::of_parameter).collect())
        };
        Self(declared.map(kernel).collect())
    }

    /// Demands that a kernel takes the number of items and then what it is launched with: a card cannot see
    /// whether it does.
    pub(super) fn check(&self, launch: &Launch) {
        let taken =
            self.0.get(launch.name).unwrap_or_else(|| panic!("no source has a kernel {}", launch.name));
        let of_arguments = launch.arguments.iter().map(Kind::of_argument);
        let given: Vec<Kind> = [Kind::Count].into_iter().chain(of_arguments).collect();
        assert_eq!(*taken, given, "parameters and arguments of the kernel {}", launch.name);
    }
}

impl Kind {
    fn of_parameter(parameter: &str) -> Self {
        match parameter.trim() {
            pointer if pointer.contains('*') => Self::Pointer,
            count if count.starts_with("count ") => Self::Count,
            real if real.starts_with("double ") => Self::Real,
            other => panic!("kernels take no `{other}`"),
        }
    }

    fn of_argument(argument: &Argument) -> Self {
        match argument {
            Argument::Buffer(_) => Self::Pointer,
            Argument::Count(_) => Self::Count,
            Argument::Real(_) => Self::Real,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
extern \"C\" __global__ void scale(count items, double by,
                                 float *values) {}";

    #[test]
    fn a_launch_that_fits_its_kernel_passes() {
        let buffer = Argument::Buffer(crate::device::Id(0));
        Source::of(SOURCE).check(&Launch::of("scale", 3).with(2.0).with(buffer));
    }

    #[test]
    #[should_panic(expected = "parameters and arguments of the kernel scale")]
    fn arguments_in_another_order_do_not() {
        let buffer = Argument::Buffer(crate::device::Id(0));
        Source::of(SOURCE).check(&Launch::of("scale", 3).with(buffer).with(2.0));
    }

    #[test]
    #[should_panic(expected = "no source has a kernel shift")]
    fn nor_does_an_unknown_kernel() {
        Source::of(SOURCE).check(&Launch::of("shift", 3));
    }
}
