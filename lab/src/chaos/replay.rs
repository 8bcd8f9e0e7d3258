//! Trials in words, and how to repeat them.

use std::{path::Path, time::Duration};

use super::trial::Trial;
use crate::machine::command_line;

/// The command that repeats a trial: ours, with the trial's number and the time that its faults were drawn
/// from.
pub fn command(arguments: &[String], seed: u64, trial: u64, time: Duration) -> String {
    let options = arguments.iter().take_while(|argument| *argument != "--");
    let program = arguments.iter().skip_while(|argument| *argument != "--");
    let mut words = Vec::new();
    let mut is_value = false;
    for option in options {
        // The figures of all trials are not to be overwritten by those of one.
        if option == "--json" {
            is_value = true;
        } else if !std::mem::take(&mut is_value) && !option.starts_with("--json=") {
            words.push(quote(option));
        }
    }
    words.push(format!("--seed {seed} --trial {trial} --time {}us", time.as_micros()));
    words.extend(program.map(|word| quote(word)));
    words.join(" ")
}

fn quote(word: &str) -> String {
    let is_plain = |character: char| character.is_alphanumeric() || "-_=./:,+@%".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A trial in a few lines.
pub fn describe(trial: &Trial, seed: u64, time: Duration) -> String {
    let number = trial.number.unwrap_or_default();
    let verdict = format!("{:?}", trial.verdict).to_lowercase();
    let mut text = format!("trial {number}: {verdict}");
    if let Some(why) = &trial.why {
        text += &format!(", {why}");
    }
    for injected in &trial.faults {
        let at = injected.at_ms.map_or("too late".to_owned(), |ms| format!("after {ms:.3} ms"));
        text += &format!("\n  {at}: {}", injected.fault.action);
        if let Some(note) = &injected.note {
            text += &format!(" ({note})");
        }
    }
    text + &format!("\n  replay: {}", command(&command_line(), seed, number, time))
}

/// The same, with the file that has the rest.
pub fn describe_kept(trial: &Trial, seed: u64, time: Duration, kept: &Path) -> String {
    format!("{}\n  output: {}", describe(trial, seed, time), kept.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_is_the_command_with_a_number() {
        let replay = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            command(&words, 7, 3, Duration::from_micros(12_345))
        };
        assert_eq!(
            replay(&["everfold", "chaos", "--kill", "1", "--json", "all.json", "--trials", "50"]),
            "everfold chaos --kill 1 --trials 50 --seed 7 --trial 3 --time 12345us"
        );
        assert_eq!(
            replay(&["everfold", "chaos", "--json=a", "--ranks=4", "--", "./my program", "--json", "it's"]),
            r"everfold chaos --ranks=4 --seed 7 --trial 3 --time 12345us -- './my program' --json 'it'\''s'"
        );
    }
}
