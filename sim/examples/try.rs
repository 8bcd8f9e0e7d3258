use everfold_sim::check::*;
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let told = a.len() > 2;
    if !told {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let t = std::time::Instant::now();
    let (mut ev, mut tally, mut bad) =
        (0, Tally::default(), std::collections::BTreeMap::<String, Vec<(u64, String)>>::new());
    for seed in a[0]..a[1] {
        let s = draw(seed);
        if told {
            println!("{s:?}");
        }
        let r = if told { run_told(&s, |l| println!("{l}")) } else { run(&s) };
        match r {
            Ok(r) => {
                ev += r.events;
                tally += &r.tally
            }
            Err(v) => bad.entry(v.rule).or_default().push((seed, v.found)),
        }
    }
    if !told {
        println!("{tally:?}");
    }
    for (rule, list) in &bad {
        println!("{} × {rule}", list.len());
        for (s, f) in list.iter().take(4) {
            println!("    {s}: {}", f.chars().take(1300).collect::<String>().replace('\n', " "));
        }
    }
    println!("{ev} events, {:.2?}, {:.0} events/s", t.elapsed(), ev as f64 / t.elapsed().as_secs_f64());
}
