//! The smallest program: eight processes, one sum.
//!
//! ```text
//! cargo run --release --example 01_sum
//! ```
//!
//! Every rank brings four numbers, all of them equal to its own rank. A reduction folds the eight arrays into
//! one, and one rank, the root, receives it. The sum of 0 to 7 is 28, so the program prints `[28.0, 28.0,
//! 28.0, 28.0]`.

// Everything a program needs is in the prelude: how to start, the session, and the bodies that can be folded.
use everfold::prelude::*;

fn main() -> everfold::Result<()> {
    // Started by hand, the program starts eight copies of itself on this machine and watches over them.
    // Started by `everfold run`, or by `mpirun` or `srun` with the variables that say where to meet, it is
    // one of the copies and joins the others. In both cases each copy runs the closure.
    everfold::launch(Launch::from_env_or_local(8), |session| async move {
        // `Sum` says how two arrays become one: element by element, with `+`.
        let mine = Sum(vec![f64::from(session.rank()); 4]);

        // The name tells this reduction from others that may run at the same time. All ranks use the same
        // one.
        let outcome = session.reduce("sum", mine).root(0).await?;

        // Only the root has a value. The report says who contributed and what the reduction cost.
        if let Some(Sum(total)) = outcome.value {
            println!("{total:?}");
            println!("{}", outcome.report);
        }
        Ok(())
    })
}
