//! FT of the NAS Parallel Benchmarks: a Fourier transform in three dimensions there and, for each step in
//! time, back; with published checksums.
//!
//! ```text
//! cargo run --release --example npb_ft -- --class W --ranks 8 --kill 3@0.5,5@0.9
//! ```
//!
//! Each half of a transform is a recovery segment: over the planes in z, and over the slabs by y. Every rank
//! has the whole field in between, so the survivors of `--kill` transform the planes of the dead to the same
//! bits.
//!
//! Where a recovery file lets ranks come back, they go on from the last step.

use clap::Parser;
use everfold::prelude::*;
use everfold_examples::npb::{
    ft::{Checksum, Class, Complex, Field},
    kill::{Death, Deaths},
};
use everfold_examples::progress::Progress;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Recovery segments of a run: two for the spectrum, and two for each step.
const SEGMENTS: u64 = 2 + 2 * Class::STEPS as u64;

/// Transforms a field, lets its spectrum fade, and compares checksums with those that NASA published.
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

/// The halves of transforms of one run.
struct Halves<'a> {
    session: &'a Session,
    /// Of the field.
    numbers: u64,
    /// The ranks that live.
    team: Group,
    death: Option<Death>,
    done: u64,
    /// Planes and slabs that were transformed again because a rank died.
    again: u64,
}

impl Halves<'_> {
    /// Folds `count` planes or slabs, in the fixed order.
    async fn fold<B: ReducerBody>(
        &mut self,
        name: &str,
        count: usize,
        mut one: impl FnMut(u64) -> B,
    ) -> everfold::Result<B> {
        let Self { session, death, done, .. } = *self;
        let mut planes = 0;
        let segment = session.segment(name, 0..count as u64).grain(1).order(Order::Fixed);
        let half = segment.among(&mut self.team).fold(|indices| {
            planes += 1;
            if planes > 1 {
                death.iter().for_each(|death| death.strike(done, SEGMENTS));
            }
            one(indices.start)
        });
        let Folded { value, report } = half.await?;
        self.done += 1;
        self.again += report.again;
        if report.again > 0 && session.rank() == 0 {
            println!("{name}, segment {done} of {SEGMENTS}: {report}");
        }
        Ok(value)
    }

    /// Puts a field together of `count` parts of the same length, at all ranks.
    async fn gather(
        &mut self,
        name: &str,
        count: usize,
        part: impl Fn(u64) -> Vec<Complex>,
    ) -> everfold::Result<Vec<Complex>> {
        let one = |index: u64| {
            let part = part(index);
            Pieces::at(index * part.len() as u64, part)
        };
        let pieces = self.fold(name, count, one).await?;
        pieces.into_vec(self.numbers).map_err(everfold::Error::application)
    }
}

/// What a rank has to know beside the spectrum to go on.
#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Of each step.
    sums: Vec<Checksum>,
}

async fn run(session: Session, Arguments { class, deaths, .. }: Arguments) -> everfold::Result<()> {
    let (team, numbers) = (session.world(), class.size().into_iter().product::<usize>());
    let mut spectrum: Vec<Complex> = vec![[0.0; 2]; numbers];
    let saved: Option<State> = session.resume().array("slabs", spectrum.as_flattened_mut()).await?;
    let death = deaths.of(&session)?;
    let done = saved.as_ref().map_or(0, |state| 2 + 2 * state.sums.len() as u64);
    let mut halves = Halves { session: &session, numbers: numbers as u64, team, death, done, again: 0 };
    let mut progress = match session.rank() == 0 {
        true => Progress::on_stderr(u64::from(Class::STEPS)),
        false => Progress::Silent,
    };
    let started = Instant::now();
    let (field, [_, ny, nz]) = (Field::of(class), class.size());
    if saved.is_none() {
        let planes = halves.gather("planes", nz, |z| field.initial_plane(z)).await?;
        spectrum = halves.gather("slabs", ny, |y| field.spectrum_slab(&planes, y)).await?;
    }
    let mut state = saved.unwrap_or_default();
    for step in state.sums.len() as u32 + 1..=Class::STEPS {
        let slabs = halves.gather("later", ny, |y| field.later_slab(&spectrum, y, step)).await?;
        state.sums.push(halves.fold("sum", nz, |z| field.checksum(&slabs, z)).await?);
        session.checkpoint(&state).array("slabs", spectrum.as_flattened()).now().await?;
        progress.advance();
    }
    progress.finish();
    match halves.team.iter().next() == Some(session.rank()) {
        true => print_results(class, session.size(), &state.sums, started.elapsed(), halves.again),
        false => Ok(()),
    }
}

/// Prints what NPB prints, and fails if the answer is not the published one.
fn print_results(
    class: Class,
    ranks: u32,
    sums: &[Checksum],
    time: Duration,
    again: u64,
) -> everfold::Result<()> {
    let seconds = time.as_secs_f64();
    let mut is_right = sums.len() == Class::STEPS as usize;
    println!("NAS Parallel Benchmarks: FT\n");
    for (step, sum) in (1..).zip(sums) {
        let agrees = class.is_published(step, *sum);
        is_right &= agrees;
        let verdict = if agrees { "verified" } else { "WRONG" };
        println!("step {step}: checksum {:.16e} {:.16e}  {verdict}", sum.0[0], sum.0[1]);
    }
    println!("\nClass                = {class:>16}");
    println!("Ranks                = {ranks:>16}");
    println!("Time in seconds      = {seconds:>16.3}");
    println!("Mop/s total          = {:>16.2}", class.operations() / seconds / 1e6);
    println!("Computed again       = {again:>16}\n");
    if is_right {
        println!("VERIFICATION SUCCESSFUL");
        Ok(())
    } else {
        println!("VERIFICATION UNSUCCESSFUL");
        Err(everfold::Error::application("the answer of FT is not the published one"))
    }
}
