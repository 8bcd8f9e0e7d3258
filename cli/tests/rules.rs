//! `everfold rules`.

#![allow(clippy::unwrap_used)]

use std::{fs, process::Command};

fn check(file: &str) -> (Option<i32>, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_everfold")).args(["rules", "check", file]).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn check_says_what_is_concluded_or_where_it_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let path = file.to_str().unwrap();
    let rules = include_str!("../../locate/src/rules/default.toml");
    fs::write(&file, rules).unwrap();
    let (code, said, _) = check(path);
    assert_eq!(code, Some(0));
    assert!(said.contains("host_dead, of a host") && said.contains("if silence.count > 0"), "{said}");

    fs::write(&file, rules.replacen("silence.count", "silense.count", 1)).unwrap();
    let (code, said, wrong) = check(path);
    assert_eq!((code, said.as_str()), (Some(2), ""));
    let line = rules.lines().position(|line| line.contains("silence.count")).unwrap() + 1;
    assert!(wrong.contains(&format!("line {line}: rule host_dead: when")), "{wrong}");
}
