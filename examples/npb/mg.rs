//! MG of the NAS Parallel Benchmarks: a Poisson equation solved by V-cycles over several grids; the norm of
//! what is left over is published.
//!
//! ```text
//! cargo run --release --example npb_mg -- --class W --ranks 8 --kill 3@0.5,5@0.8
//! ```
//!
//! Each rank has a slab of the cube, and its values depend on all values before: they cannot be computed
//! again. So ranks save their slabs after each cycle, and one whose process dies comes back and goes on from
//! there. Its neighbours' planes of the cycle in which it died come from the result log.
//!
//! - Planes at the border of two slabs are exchanged by an allreduce of these two ranks, over the bits of both.
//! - Coarse grids are put together at all ranks, each of which computes them as a whole.

use clap::Parser;
use everfold::prelude::*;
use everfold_examples::npb::{
    kill::Deaths,
    mg::{Class, Grid, charges, prolongate, residual, restrict, smooth},
};
use everfold_examples::progress::Progress;
use serde::{Deserialize, Serialize};
use std::{
    ops::Range,
    time::{Duration, Instant},
};

/// Solves a Poisson equation and compares the norm of the residual with what NASA published.
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
    let config = Config::default().restart_ranks();
    let launch = Launch::from_env_or_local(arguments.ranks).config(config);
    everfold::launch(launch, move |session| run(session, arguments))
}

/// How the cube is cut at each level.
#[derive(Clone, Copy)]
struct Slabs {
    rank: usize,
    ranks: usize,
    /// The finest level that every rank has as a whole. At those above it each rank has a slab.
    whole: u32,
}

impl Slabs {
    /// Slabs of coarse planes, at least four for each rank if there are as many, and at least one.
    fn new(class: Class, rank: Rank, ranks: u32) -> everfold::Result<Self> {
        let finest_whole = class.levels() - 1;
        if ranks > 1 << finest_whole {
            let message = format!("class {class} has planes for {} ranks at most", 1 << finest_whole);
            return Err(everfold::Error::application(message));
        }
        let whole = (4 * ranks).next_power_of_two().ilog2().min(finest_whole);
        Ok(Self { rank: rank.index(), ranks: ranks as usize, whole })
    }

    /// The planes of this rank at a level from `whole` on.
    fn planes(self, level: u32) -> Range<usize> {
        let start = |rank: usize| ((rank << self.whole) / self.ranks) << (level - self.whole);
        start(self.rank)..start(self.rank + 1)
    }

    /// A grid of a level, as this rank has it.
    fn grid(self, level: u32) -> Grid {
        let points = 1 << level;
        Grid::zero(points, if level > self.whole { self.planes(level) } else { 0..points })
    }
}

/// One rank's part of a run.
struct Solver<'a> {
    session: &'a Session,
    class: Class,
    slabs: Slabs,
    /// The right-hand side.
    v: Grid,
    /// Solutions and residuals by level, of which there is none at 0.
    u: Vec<Grid>,
    r: Vec<Grid>,
}

impl Solver<'_> {
    fn new(session: &Session, class: Class) -> everfold::Result<Solver<'_>> {
        let slabs = Slabs::new(class, session.rank(), session.size())?;
        let grids = || (0..=class.levels()).map(|level| slabs.grid(level)).collect::<Vec<_>>();
        let v = Grid::charged(class.points(), slabs.planes(class.levels()), &charges(class));
        Ok(Solver { session, class, slabs, v, u: grids(), r: grids() })
    }

    fn finest(&self) -> usize {
        self.class.levels() as usize
    }

    /// Gets the planes around a slab from its neighbours.
    async fn exchange(&self, grid: &mut Grid) -> everfold::Result<()> {
        let Slabs { rank, ranks, .. } = self.slabs;
        if grid.planes().len() == grid.points() {
            grid.close();
            return Ok(());
        }
        let (len, last) = (grid.plane(0).len(), grid.planes().len());
        let (below, above) = ((rank + ranks - 1) % ranks, (rank + 1) % ranks);
        // A border has the last plane of the lower rank, and then the first of the upper one.
        let border = |lower: usize, upper: usize, own: &[f64], is_lower: bool| {
            let mut bits = vec![0; 2 * len];
            let at = if is_lower { 0 } else { len };
            put(&mut bits[at..][..len], own);
            let call = self.session.allreduce(format!("border above {lower}"), BitOr(bits));
            call.group(Group::of([lower, upper].map(|rank| rank as u32))).start()
        };
        let lower = border(below, rank, grid.plane(1), false)?;
        let upper = border(rank, above, grid.plane(last), true)?;
        let BitOr(lower) = lower.await?.value;
        fill(grid.plane_mut(0), &lower[..len]);
        let BitOr(upper) = upper.await?.value;
        fill(grid.plane_mut(last + 1), &upper[len..]);
        Ok(())
    }

    /// Puts a grid of the finest whole level together from slabs.
    async fn gather(&self, slab: &Grid) -> everfold::Result<Grid> {
        let mut whole = self.slabs.grid(self.slabs.whole);
        let len = whole.plane(0).len();
        let mut bits = vec![0; len * whole.points()];
        for (number, plane) in slab.planes().enumerate() {
            put(&mut bits[plane * len..][..len], slab.plane(number + 1));
        }
        let BitOr(bits) = self.session.allreduce("coarse", BitOr(bits)).await?.value;
        bits.chunks_exact(len).zip(1..).for_each(|(bits, plane)| fill(whole.plane_mut(plane), bits));
        whole.close();
        Ok(whole)
    }

    /// Takes from the residual of a level what its solution explains. That of the finest level begins anew.
    async fn update_residual(&mut self, level: usize) -> everfold::Result<()> {
        let mut r = taken(&mut self.r[level]);
        if level == self.finest() {
            r.copy(&self.v);
        }
        residual(&mut r, &self.u[level]);
        self.exchange(&mut r).await?;
        self.r[level] = r;
        Ok(())
    }

    /// One V-cycle: residuals go down level by level, corrections come up.
    async fn cycle(&mut self) -> everfold::Result<()> {
        let (finest, whole) = (self.finest(), self.slabs.whole as usize);
        for level in (1..finest).rev() {
            self.r[level] = match level == whole {
                true => {
                    let mut slab = Grid::zero(1 << level, self.slabs.planes(level as u32));
                    restrict(&mut slab, &self.r[level + 1]);
                    self.gather(&slab).await?
                }
                false => {
                    let mut coarse = taken(&mut self.r[level]);
                    restrict(&mut coarse, &self.r[level + 1]);
                    self.exchange(&mut coarse).await?;
                    coarse
                }
            };
        }
        for level in 1..=finest {
            let mut u = taken(&mut self.u[level]);
            if level < finest {
                u.clear();
            }
            if level > 1 {
                match level == whole + 1 {
                    true => prolongate(&mut u, &self.u[level - 1].cut(self.slabs.planes(whole as u32))),
                    false => prolongate(&mut u, &self.u[level - 1]),
                }
                self.exchange(&mut u).await?;
                self.u[level] = u;
                self.update_residual(level).await?;
                u = taken(&mut self.u[level]);
            }
            smooth(&mut u, &self.r[level], self.class.smoother());
            self.exchange(&mut u).await?;
            self.u[level] = u;
        }
        Ok(())
    }

    /// The norm of the residual: the same bits for any number of ranks.
    async fn norm(&self) -> everfold::Result<f64> {
        let r = &self.r[self.finest()];
        let mut bits = vec![0; r.points()];
        put(&mut bits[r.planes()], &r.squares());
        let BitOr(bits) = self.session.allreduce("squares", BitOr(bits)).await?.value;
        let sum: f64 = bits.into_iter().map(f64::from_bits).sum();
        Ok((sum / (r.points() as f64).powi(3)).sqrt())
    }
}

/// What a rank has to know beside its slabs to go on.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Norms before the first cycle and after each.
    norms: Vec<f64>,
}

async fn run(session: Session, Arguments { class, deaths, .. }: Arguments) -> everfold::Result<()> {
    let mut solver = Solver::new(&session, class)?;
    let finest = solver.finest();
    let mut values = [solver.u[finest].values().to_vec(), solver.r[finest].values().to_vec()];
    let [u, r] = &mut values;
    let saved: Option<State> = session.resume().array("u", u).array("r", r).await?;
    let death = deaths.of(&session)?;
    let mut state = saved.unwrap_or_default();
    solver.u[finest].values_mut().copy_from_slice(u);
    solver.r[finest].values_mut().copy_from_slice(r);
    let mut progress = match session.rank() == 0 {
        true => Progress::on_stderr(u64::from(class.cycles())),
        false => Progress::Silent,
    };
    let started = Instant::now();
    if state.norms.is_empty() {
        solver.update_residual(finest).await?;
        state.norms.push(solver.norm().await?);
    }
    while state.norms.len() <= class.cycles() as usize {
        solver.cycle().await?;
        let done = state.norms.len() as u64 - 1;
        death.iter().for_each(|death| death.strike(done, class.cycles().into()));
        solver.update_residual(finest).await?;
        state.norms.push(solver.norm().await?);
        let (u, r) = (solver.u[finest].values(), solver.r[finest].values());
        session.checkpoint(&state).array("u", u).array("r", r).now().await?;
        progress.advance();
    }
    progress.finish();
    match session.rank() == 0 {
        true => print_results(class, session.size(), &state.norms, started.elapsed()),
        false => Ok(()),
    }
}

/// Prints what NPB prints, and fails if the answer is not the published one.
fn print_results(class: Class, ranks: u32, norms: &[f64], time: Duration) -> everfold::Result<()> {
    let seconds = time.as_secs_f64();
    println!("NAS Parallel Benchmarks: MG\n");
    for (cycle, norm) in norms.iter().enumerate() {
        println!("cycle {cycle:>2}: norm {norm:.16e}");
    }
    let is_right = norms.last().is_some_and(|norm| class.is_published(*norm));
    println!("\nClass                = {class:>16}");
    println!("Size                 = {:>16}", class.points());
    println!("Ranks                = {ranks:>16}");
    println!("Time in seconds      = {seconds:>16.3}");
    println!("Mop/s total          = {:>16.2}\n", class.operations() / seconds / 1e6);
    if is_right {
        println!("VERIFICATION SUCCESSFUL");
        Ok(())
    } else {
        println!("VERIFICATION UNSUCCESSFUL");
        Err(everfold::Error::application("the answer of MG is not the published one"))
    }
}

/// Takes a grid out; the caller puts it back.
fn taken(grid: &mut Grid) -> Grid {
    std::mem::replace(grid, Grid::zero(0, 0..0))
}

/// Writes the bits of numbers.
fn put(bits: &mut [u64], numbers: &[f64]) {
    bits.iter_mut().zip(numbers).for_each(|(bits, number)| *bits = number.to_bits());
}

/// Numbers from their bits.
fn fill(numbers: &mut [f64], bits: &[u64]) {
    numbers.iter_mut().zip(bits).for_each(|(number, bits)| *number = f64::from_bits(*bits));
}
