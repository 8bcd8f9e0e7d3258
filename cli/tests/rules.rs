//! `everfold rules`.

#![allow(clippy::unwrap_used)]

use std::{fs, process::Command};

fn rules(command: &str, file: &str) -> (Option<i32>, String, String) {
    rules_of(command, &[file])
}

fn rules_of(command: &str, files: &[&str]) -> (Option<i32>, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_everfold")).args(["rules", command]).args(files).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn check_says_what_is_concluded_or_where_it_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let path = file.to_str().unwrap();
    let text = include_str!("../../locate/src/rules/default.toml");
    fs::write(&file, text).unwrap();
    let (code, said, _) = rules("check", path);
    assert_eq!(code, Some(0));
    assert!(said.contains("host_dead, of a host") && said.contains("if silence.count > 0"), "{said}");

    fs::write(&file, text.replacen("silence.count", "silense.count", 1)).unwrap();
    let (code, said, wrong) = rules("check", path);
    assert_eq!((code, said.as_str()), (Some(2), ""));
    let line = text.lines().position(|line| line.contains("silence.count")).unwrap() + 1;
    assert!(wrong.contains(&format!("line {line}: rule host_dead: when")), "{wrong}");
}

#[test]
fn learn_finds_what_people_say_was_faulty_or_the_line_that_is_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("symptoms");
    let path = file.to_str().unwrap();
    let occurrence = |at: u32| {
        let over = at + 60;
        format!(
            "ab {at} seen steal host1 by host1 value 0.4\nab {at}.1 seen late rank3@host1 by host0 value 0.9\n\
             ab {at}.9 confirmed bad_fan host1 # it stood still\nab {over} over bad_fan host1\n"
        )
    };
    let text: String = [100, 200, 300].map(occurrence).concat();
    fs::write(&file, &text).unwrap();
    let (code, draft, wrong) = rules("learn", path);
    assert_eq!((code, &*wrong), (Some(0), ""));
    assert!(draft.contains("says = \"learnt from 3 occurrences\""), "{draft}");
    assert!(draft.contains("# Came before it: steal, then late: 3 of 3 windows, 100 %"), "{draft}");
    fs::write(&file, &draft).unwrap();
    let (code, said, _) = rules("check", path);
    assert!(
        code == Some(0) && said.contains("bad_fan, of a host") && said.contains("if steal.count > 0"),
        "{said}"
    );

    fs::write(&file, text.replacen("steal", "steel", 1)).unwrap();
    let (code, said, wrong) = rules("learn", path);
    assert_eq!((code, &*said), (Some(2), ""));
    assert!(
        wrong.contains("symptoms: line 1: expected a symptom, such as late or ended, found steel"),
        "{wrong}"
    );
}

#[test]
fn learn_counts_what_several_hosts_have_recorded() {
    let folder = tempfile::tempdir().unwrap();
    // Each node has a number and a clock of its own.
    let files = ["host1", "host2", "host3"].map(|name| folder.path().join(name));
    for ((file, node), fault) in files.iter().zip(["a1", "b2", "c3"]).zip(["bad_fan", "bad_fan", "dust"]) {
        let occurrence = |at: u32| {
            format!(
                "{node} {at} seen steal host5 by host0 value 0.4\n{node} {at}.9 confirmed {fault} host5\n\
                 {node} {at}.95 over {fault} host5\n"
            )
        };
        let heading = format!("\n# {node} is the node of a host in job 7.\n");
        fs::write(file, heading + &[10, 20].map(occurrence).concat()).unwrap();
    }
    let paths = files.each_ref().map(|file| file.to_str().unwrap());
    let (code, draft, wrong) = rules_of("learn", &paths);
    assert_eq!((code, &*wrong), (Some(0), ""));
    assert!(draft.contains("says = \"learnt from 4 occurrences\""), "{draft}");
    assert!(!draft.contains("fault = \"dust\""), "two are too few: {draft}");
    let (code, _, wrong) = rules("learn", paths[0]);
    assert!(code == Some(1) && wrong.contains("confirmed 3 times"), "one host has seen too little: {wrong}");
}
