use everfold_sim::check::{draw, run, run_told, Schedule, Tally};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args.len() == 2 {
        let s: u64 = args[1].parse().unwrap();
        let schedule = draw(s);
        println!("{schedule:#?}");
        let r = run_told(&schedule, Box::new(|line| println!("{line}")));
        println!("{:?}", r.err());
        return;
    }
    let (from, to): (u64, u64) = (args[1].parse().unwrap(), args[2].parse().unwrap());
    let only = args.len() > 3;
    std::panic::set_hook(Box::new(|_| {}));
    let (mut tally, mut bad, mut n) = (Tally::default(), 0, 0);
    for seed in from..to {
        let schedule: Schedule = draw(seed);
        let stands = schedule.returns.and_then(|r| r.migrates).is_some_and(|m| m.standbys.is_some());
        if only && !stands { continue; }
        n += 1;
        match run(&schedule) {
            Ok(ran) => tally += &ran.tally,
            Err(v) => { bad += 1; if bad < 15 { println!("seed {seed} (standbys {stands}): {v}"); } }
        }
    }
    println!("{n} worlds, {bad} bad");
    for (k, v) in tally.met.iter().chain(tally.drawn.iter()).filter(|(k, _)| k.contains("stand") || k.contains("stood") || k.contains("repl")) { println!("{k}: {v}"); }
}
