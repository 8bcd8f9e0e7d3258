//! CG of the NAS Parallel Benchmarks: an eigenvalue by conjugate gradients, whose answer is published.
//!
//! ```text
//! cargo run --release --example npb_cg -- --class A --ranks 8 --kill 3@0.5,5@0.9
//! ```
//!
//! Each product of the matrix with a vector is a recovery segment over its rows. Every rank has all vectors
//! after it, so the survivors of `--kill` compute the rows of the dead to the same bits. Conjugate gradients
//! forget a wrong vector, so zeta is compared after each iteration, not at the end alone. Of class B it is
//! known after the first 15 iterations and the last.
//!
//! Where a recovery file lets ranks come back, they go on from the last iteration.

use clap::Parser;
use everfold::prelude::*;
use everfold_examples::npb::{
    cg::{Class, Matrix, STEPS, TOLERANCE, dot},
    kill::{Death, Deaths},
};
use everfold_examples::progress::Progress;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Finds the smallest eigenvalue of a sparse matrix and compares it with what NASA published.
#[derive(Clone, Parser)]
struct Arguments {
    /// Size of the problem.
    #[arg(long, value_enum, ignore_case = true, default_value_t = Class::S)]
    class: Class,
    /// Copies of this program to start when no launcher has started them.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    #[command(flatten)]
    deaths: Deaths,
}

fn main() -> everfold::Result<()> {
    let arguments = Arguments::parse();
    // The first rank that lives judges the answer.
    let launch = Launch::from_env_or_local(arguments.ranks).survive_deaths();
    everfold::launch(launch, move |session| run(session, arguments))
}

/// Enough for the survivors to divide the rows that a dead rank has not computed.
const GRAINS_PER_RANK: u64 = 16;

/// The products of one run.
struct Products<'a> {
    session: &'a Session,
    matrix: &'a Matrix,
    /// The ranks that live.
    team: Group,
    death: Option<Death>,
    done: u64,
    all: u64,
    /// Rows that were computed again because a rank died.
    again: u64,
}

impl Products<'_> {
    /// The matrix times `vector`, at all ranks.
    async fn multiply(&mut self, vector: &[f64]) -> everfold::Result<Vec<f64>> {
        let Self { session, matrix, death, done, all, .. } = *self;
        let order = matrix.order() as u64;
        let grain = order.div_ceil(self.team.len() as u64 * GRAINS_PER_RANK);
        let mut grains = 0;
        let segment = session.segment("product", 0..order).grain(grain).among(&mut self.team);
        let product = segment.fold(|rows| {
            grains += 1;
            if grains > 1 {
                death.iter().for_each(|death| death.strike(done, all));
            }
            Pieces::at(rows.start, matrix.multiply(rows, vector))
        });
        let Folded { value, report } = product.await?;
        self.done += 1;
        self.again += report.again;
        if report.again > 0 && session.rank() == 0 {
            println!("product {done} of {all}: {report}");
        }
        value.into_vec(order).map_err(everfold::Error::application)
    }

    /// Solves for z in A·z = x by so many steps of conjugate gradients. The second value is |x - A·z|.
    async fn solve(&mut self, x: &[f64]) -> everfold::Result<(Vec<f64>, f64)> {
        let (mut z, mut r, mut p) = (vec![0.0; x.len()], x.to_vec(), x.to_vec());
        let mut rho = dot(&r, &r);
        for _ in 0..STEPS {
            let q = self.multiply(&p).await?;
            let alpha = rho / dot(&p, &q);
            z.iter_mut().zip(&p).for_each(|(z, p)| *z += alpha * p);
            r.iter_mut().zip(&q).for_each(|(r, q)| *r -= alpha * q);
            let before = std::mem::replace(&mut rho, dot(&r, &r));
            let beta = rho / before;
            p.iter_mut().zip(&r).for_each(|(p, r)| *p = r + beta * *p);
        }
        let product = self.multiply(&z).await?;
        let rest: f64 = x.iter().zip(&product).map(|(x, product)| (x - product).powi(2)).sum();
        Ok((z, rest.sqrt()))
    }
}

/// What a rank has to know beside x to go on.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Of each iteration, zeta and |x - A·z|.
    zetas: Vec<(f64, f64)>,
}

async fn run(session: Session, Arguments { class, deaths, .. }: Arguments) -> everfold::Result<()> {
    let mut x = vec![1.0; class.order()];
    let saved: Option<State> = session.resume().array("x", &mut x).await?;
    let mut state = saved.unwrap_or_default();
    let death = deaths.of(&session)?;
    let matrix = Matrix::of(class);
    let products_each = u64::from(STEPS + 1);
    let (done, all) =
        (state.zetas.len() as u64 * products_each, u64::from(class.iterations()) * products_each);
    let team = session.world();
    let mut products = Products { session: &session, matrix: &matrix, team, death, done, all, again: 0 };
    let mut progress = match session.rank() == 0 {
        true => Progress::on_stderr(u64::from(class.iterations())),
        false => Progress::Silent,
    };
    let started = Instant::now();
    while state.zetas.len() < class.iterations() as usize {
        let (z, rest) = products.solve(&x).await?;
        state.zetas.push((class.shift() + 1.0 / dot(&x, &z), rest));
        let norm = dot(&z, &z).sqrt();
        x = z.into_iter().map(|z| z / norm).collect();
        session.checkpoint(&state).array("x", &x).now().await?;
        progress.advance();
    }
    progress.finish();
    match products.team.iter().next() == Some(session.rank()) {
        true => print_results(class, session.size(), &state.zetas, started.elapsed(), products.again),
        false => Ok(()),
    }
}

/// Prints what NPB prints, and fails if the answer is not the published one.
fn print_results(
    class: Class,
    ranks: u32,
    zetas: &[(f64, f64)],
    time: Duration,
    again: u64,
) -> everfold::Result<()> {
    let mut is_right = !zetas.is_empty();
    println!("NAS Parallel Benchmarks: CG\n");
    println!("{:>9} {:>24} {:>24}  {:>18}", "iteration", "|x - A z|", "zeta", "published");
    for (iteration, (zeta, rest)) in (0..).zip(zetas) {
        let is_last = iteration + 1 == class.iterations();
        let expected = if is_last { Some(class.zeta()) } else { class.zeta_after(iteration) };
        // A comparison with NaN is false, as it should be here.
        let agrees = expected.is_none_or(|expected| (zeta - expected).abs() <= TOLERANCE);
        is_right &= agrees && zeta.is_finite();
        let expected = expected.map_or_else(|| "unknown".to_owned(), |expected| format!("{expected:.13}"));
        let verdict = if agrees { "" } else { "  WRONG" };
        println!("{:>9} {rest:>24.16e} {zeta:>24.16e}  {expected:>18}{verdict}", iteration + 1);
    }
    let seconds = time.as_secs_f64();
    let mops = class.operations() / seconds / 1e6;
    println!("\nClass                = {class:>16}");
    println!("Size                 = {:>16}", class.order());
    println!("Iterations           = {:>16}", class.iterations());
    println!("Ranks                = {ranks:>16}");
    println!("Time in seconds      = {seconds:>16.3}");
    println!("Mop/s total          = {mops:>16.2}");
    println!("Rows computed again  = {again:>16}\n");
    if is_right {
        println!("VERIFICATION SUCCESSFUL");
        Ok(())
    } else {
        println!("VERIFICATION UNSUCCESSFUL");
        Err(everfold::Error::application("the answer of CG is not the published one"))
    }
}
