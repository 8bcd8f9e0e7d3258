//! `everfold sim` with tiny clusters: what it writes, and that it writes the same again.

#![allow(clippy::unwrap_used, reason = "this is a test, helpers included")]

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output},
};

fn everfold(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_everfold")).arg("sim").args(arguments).output().unwrap()
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect()
}

#[test]
fn paper_writes_every_figure_and_table_and_the_same_twice() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, seed: &str| {
        let out = folder.path().join(name);
        let output = everfold(&["paper", "--quick", "--seed", seed, "--out", out.to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        files(&out)
    };
    let first = write("first", "1");
    let figures = ["6a", "6b", "7a", "7b", "7c", "7d", "8a", "8b", "8c", "8d", "9a", "9b"];
    for figure in figures {
        let csv = &first[&format!("fig{figure}.csv")];
        assert!(csv.starts_with("contestant,") && csv.contains("\neverfold,"), "{csv}");
        assert!(first[&format!("fig{figure}.svg")].contains("pipelined chain"));
    }
    assert_eq!(
        first["table1.csv"].lines().filter(|line| line.starts_with("measured in the paper,")).count(),
        2
    );
    assert_eq!(first["table2.csv"].lines().count(), 1 + 7, "a line per day");
    assert_eq!(first.len(), 2 * figures.len() + 3);
    assert_eq!(first, write("second", "1"));
    assert_ne!(first["fig7a.csv"], write("third", "2")["fig7a.csv"]);
}

#[test]
fn recoveries_are_set_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("rows.json");
    let arguments = ["--process-every", "30min", "--physical-every", "1h", "--trials", "50"];
    let paper = everfold(&[&["recoveries", "--json", json.to_str().unwrap()], &arguments[..]].concat());
    assert!(paper.status.success(), "{}", String::from_utf8_lossy(&paper.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let [process, physical] = [&rows[0][1], &rows[1][1]];
    assert!(process[1]["beside_first"].as_f64() < Some(-0.1), "repeated faults are met: {rows:#}");
    assert!(process[0]["beside_first"].is_null() && process[0]["migrations"] == 0.0, "{rows:#}");
    assert!(physical[1]["migrations"].as_f64() < physical[0]["migrations"].as_f64(), "{rows:#}");

    let file = folder.path().join("ignore.toml");
    fs::write(&file, "process = \"ignore\"\n").unwrap();
    let chosen = everfold(&[&["recoveries", file.to_str().unwrap()], &arguments[..]].concat());
    let text = String::from_utf8(chosen.stdout).unwrap();
    assert!(text.contains("0 of 50") && text.contains("ignore.toml"), "{text}");
    let refused = everfold(&["recoveries", "--ranks", "30"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--bad"), "{refused:?}");
}

#[test]
fn scale_has_a_line_per_number_of_ranks() {
    let output = everfold(&["scale", "--ranks", "4,20", "--bytes", "256k", "--network", "hdr"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    for ranks in ["4", "20"] {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(ranks)).unwrap();
        assert!(line.contains(" ms") && line.contains(" MB"), "{line}");
    }
    let refused = everfold(&["scale", "--network", "token-ring"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("there are 10gbe, 100gbe, hdr and ndr"), "{text}");
}

#[test]
fn what_if_says_first_what_it_does_and_draws_no_bar_where_nobody_sees_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("question.toml");
    fs::write(&file, "ranks = 6\nsizes = [\"64KiB\", \"1MiB\"]\n").unwrap();
    let ask = |more: &[&str]| {
        let output = everfold(&[&["what-if", file.to_str().unwrap()], more].concat());
        let [stdout, stderr] =
            [output.stdout, output.stderr].map(|output| String::from_utf8(output).unwrap());
        assert!(output.status.success(), "{stderr}");
        assert_eq!(stderr, "");
        let (plan, answer) = stdout.split_once('\n').unwrap();
        assert!(plan.contains("64 KiB, 1 MiB on 6 ranks"), "{plan}");
        (answer.to_owned(), plan.to_owned())
    };
    let (answer, plan) = ask(&[]);
    assert!(plan.contains("20 to 200 in which a rank dies"), "{plan}");
    assert_eq!(answer.matches(" of 200: ").count(), 2, "so few ranks take little:\n{answer}");
    assert_eq!(answer, ask(&[]).0);
    let (answer, plan) = ask(&["--deaths", "7", "--repeat", "2"]);
    assert!(
        plan.contains("2 runs with protection disk") && plan.contains("7 in which a rank dies"),
        "{plan}"
    );
    assert_eq!(answer.matches(" of 7: ").count(), 2, "{answer}");
}
