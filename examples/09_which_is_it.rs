//! A job whose components may be disturbed: it says which one is faulty, while it goes on.
//!
//! In each step every rank computes for a while, and one allreduce adds up what they have. Then everybody
//! waits for the slowest, and no rank's times show which one that is. Rank 0 listens to `session.events()`
//! and prints what was located.
//!
//! ```text
//! cargo build --release --example 09_which_is_it
//!
//! 09_which_is_it                      4 ranks, for 60 seconds; kill or stop one of them, and see
//! 09_which_is_it --heavy 2            rank 2 has four times the work: nothing is faulty, and that is said
//! 09_which_is_it --diverge 2          rank 2 calls with other arguments than the rest
//! everfold faults                     in another terminal: what was located so far
//! ```

use std::time::{Duration, Instant};

use clap::Parser;
use everfold::{Group, News, prelude::*};
use futures::StreamExt;

/// Says which of its components is faulty.
#[derive(Parser)]
struct Options {
    /// Processes to start.
    #[arg(long, default_value_t = 4)]
    ranks: u32,
    /// How long it runs.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// For how long a rank computes in each step, in milliseconds of its own processor time.
    #[arg(long, default_value_t = 20)]
    compute_ms: u64,
    /// Length of the array that is reduced.
    #[arg(long, default_value_t = 1 << 17)]
    length: usize,
    /// A rank with four times the work.
    #[arg(long)]
    heavy: Option<u32>,
    /// A rank that calls with another length every twenty steps.
    #[arg(long)]
    diverge: Option<u32>,
    /// A file that each rank reads in each step, as one of a data set that fits into the memory of its host.
    /// `{rank}` in its name stands for the number of the rank.
    #[arg(long)]
    data: Option<String>,
    /// After how many seconds that begins.
    #[arg(long, default_value_t = 0)]
    after: u64,
}

fn main() -> everfold::Result<()> {
    let options = Options::parse();
    everfold::launch(Launch::from_env_or_local(options.ranks).survive_deaths(), async |session| {
        if session.rank() == 0 {
            listen(&session);
        }
        steps(&session, &options).await
    })
}

/// Prints what is located, on a thread of its own: this one computes.
fn listen(session: &Session) {
    let mut events = session.events();
    let started = Instant::now();
    std::thread::spawn(move || {
        while let Some(event) = futures::executor::block_on(events.next()) {
            if let News::Located(located) = event {
                let what = if located.harmless { "no fault" } else { "located" };
                println!("{what} after {:.1?}: {located}", started.elapsed());
            }
        }
    });
}

async fn steps(session: &Session, options: &Options) -> everfold::Result<()> {
    let started = Instant::now();
    let is =
        |rank: Option<u32>| rank == Some(session.rank().0) && started.elapsed().as_secs() >= options.after;
    let data = options.data.as_ref().map(|name| name.replace("{rank}", &session.rank().0.to_string()));
    let mut group: Group = session.world();
    for step in 0u64.. {
        compute(Duration::from_millis(options.compute_ms * if is(options.heavy) { 4 } else { 1 }));
        if let Some(data) = &data {
            std::io::copy(&mut std::fs::File::open(data)?, &mut std::io::sink())?;
        }
        let odd = usize::from(step % 20 == 19 && is(options.diverge));
        let mut mine = session.array::<f64>(options.length + odd);
        // All end in the same step: when rank 0 says so.
        let is_over = session.rank() == 0 && started.elapsed().as_secs() >= options.seconds;
        mine.fill(0.0);
        mine[0] = f64::from(u8::from(is_over));
        match session.allreduce("step", Sum(mine)).group(&group).allow_missing().await {
            Ok(Outcome { value: Sum(all), report }) => {
                // Those who have died are in no later group. All ranks receive the same report.
                group =
                    group.filter(|rank| !report.missing.contains(rank) && !report.survived.contains(rank));
                if all[0] > 0.0 {
                    println!("{} of {} ranks are left after {step} steps", group.len(), session.size());
                    return Ok(());
                }
            }
            // One has called with other arguments: nobody has a result, and all go on.
            Err(ReduceError::Refused(refusal)) => eprintln!("step {step}: {refusal}"),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Keeps a core busy for that much processor time.
fn compute(time: Duration) {
    let clock = || {
        let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
        time.map(Duration::from).unwrap_or_default()
    };
    let until = clock() + time;
    while clock() < until {
        std::hint::spin_loop();
    }
}
