//! What a trial shows.

use serde::Serialize;

use super::{
    program::LOST,
    said::{Loss, Told, Work},
};

/// How a trial has ended, worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All ranks that no fault hit came to a good end.
    Recovered,
    /// One of them heard what is lost.
    Lost,
    /// One of them failed in another way.
    Failed,
    /// One that was not killed did not come to an end.
    Hung,
    /// One had a wrong value, be it hit or not.
    Wrong,
}

/// How one rank has ended.
#[derive(Clone, Debug)]
pub struct End {
    /// What it told, if it is of the built-in program.
    pub told: Option<Told>,
    /// Its exit code, 128 + s if signal s killed it; nothing if it did not end.
    pub code: Option<i32>,
    /// Whether a fault killed it.
    pub is_killed: bool,
    /// Whether a fault hit it so that the others may have gone on without it.
    pub is_excused: bool,
}

/// What the ends of all ranks come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// The worst of them.
    pub verdict: Verdict,
    /// Who it was, and why.
    pub why: Option<String>,
    /// What is lost, if that is the verdict.
    pub loss: Option<Loss>,
}

impl Judgement {
    const GOOD: Self = Self { verdict: Verdict::Recovered, why: None, loss: None };

    fn new(verdict: Verdict, why: impl Into<String>) -> Self {
        Self { verdict, why: Some(why.into()), loss: None }
    }
}

/// Judges a job by the ends of its ranks; it `speaks` if it runs the built-in program.
pub fn judge(ends: &[End], speaks: bool) -> Judgement {
    let mut worst = Judgement::GOOD;
    for (rank, end) in ends.iter().enumerate() {
        let judged = judge_rank(end, speaks);
        // Of equals the lowest rank.
        if judged.verdict > worst.verdict {
            worst = Judgement { why: judged.why.map(|why| format!("rank {rank}: {why}")), ..judged };
        }
    }
    worst
}

fn judge_rank(end: &End, speaks: bool) -> Judgement {
    let End { told, code, is_killed, is_excused } = end;
    let lost = |loss, why| Judgement { loss: Some(loss), ..Judgement::new(Verdict::Lost, why) };
    match (told, code) {
        (Some(Told::Wrong { what }), _) => Judgement::new(Verdict::Wrong, what),
        _ if *is_killed => Judgement::GOOD,
        (_, None) => Judgement::new(Verdict::Hung, "it does not end"),
        _ if *is_excused => Judgement::GOOD,
        (Some(Told::Failed { why }), _) => Judgement::new(Verdict::Failed, why),
        (Some(Told::Lost { loss, why }), Some(code)) if *code == i32::from(LOST) => lost(*loss, why),
        (Some(Told::Ok(_)), Some(0)) => Judgement::GOOD,
        (None, Some(0)) if !speaks => Judgement::GOOD,
        (None, Some(code)) if !speaks && *code == i32::from(LOST) => {
            lost(Loss::Unknown, &format!("exit code {code}"))
        }
        (_, Some(code)) => Judgement::new(Verdict::Failed, format!("it ended with exit code {code}")),
    }
}

/// What was done for the result: at its root, or at rank 0 if it goes to all.
pub fn work(ends: &[End], root: Option<u32>) -> Option<Work> {
    match ends.get(root.unwrap_or(0) as usize)?.told {
        Some(Told::Ok(work)) => Some(work),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: End = End {
        told: Some(Told::Ok(Work { folds: 3, folds_redone: 1, survived: 1 })),
        code: Some(0),
        is_killed: false,
        is_excused: false,
    };

    fn told(told: Told, code: i32) -> End {
        End { told: Some(told), code: Some(code), ..GOOD }
    }

    fn lost() -> End {
        told(Told::Lost { loss: Loss::Contribution, why: "it is lost".to_owned() }, 75)
    }

    fn wrong() -> End {
        told(Told::Wrong { what: "element 5".to_owned() }, 1)
    }

    fn failed() -> End {
        told(Told::Failed { why: "it fails".to_owned() }, 1)
    }

    fn verdict(ends: &[End]) -> Verdict {
        judge(ends, true).verdict
    }

    #[test]
    fn the_worst_rank_counts() {
        let killed = End { told: None, code: Some(137), is_killed: true, is_excused: true };
        let hung = End { code: None, ..GOOD };
        assert_eq!(verdict(&[GOOD, killed.clone(), GOOD]), Verdict::Recovered);
        assert_eq!(verdict(&[GOOD, killed.clone(), lost()]), Verdict::Lost);
        assert_eq!(verdict(&[lost(), failed(), GOOD]), Verdict::Failed);
        assert_eq!(verdict(&[failed(), hung.clone(), lost()]), Verdict::Hung);
        assert_eq!(judge(&[hung, GOOD, wrong()], true), Judgement::new(Verdict::Wrong, "rank 2: element 5"));
        assert_eq!(judge(&[GOOD, lost()], true).loss, Some(Loss::Contribution));
    }

    #[test]
    fn who_was_hit_may_fail_but_neither_lie_nor_hang() {
        let hit = |end| End { is_excused: true, ..end };
        assert_eq!(verdict(&[GOOD, hit(failed())]), Verdict::Recovered);
        assert_eq!(verdict(&[GOOD, hit(lost())]), Verdict::Recovered);
        assert_eq!(verdict(&[GOOD, hit(wrong())]), Verdict::Wrong);
        assert_eq!(verdict(&[GOOD, hit(End { code: None, ..GOOD })]), Verdict::Hung);
    }

    #[test]
    fn a_rank_says_how_it_ended_and_ends_so() {
        let silent = End { told: None, ..GOOD };
        assert_eq!(verdict(std::slice::from_ref(&silent)), Verdict::Failed);
        assert_eq!(verdict(&[End { code: Some(101), ..GOOD }]), Verdict::Failed);
        assert_eq!(verdict(&[End { code: Some(0), ..lost() }]), Verdict::Failed);
    }

    #[test]
    fn of_other_programs_the_exit_code_counts() {
        let end = |code| End { told: None, code: Some(code), ..GOOD };
        assert_eq!(judge(&[end(0), end(0)], false), Judgement::GOOD);
        assert_eq!(judge(&[end(0), end(75)], false).loss, Some(Loss::Unknown));
        assert_eq!(judge(&[end(75), end(1)], false).verdict, Verdict::Failed);
    }

    #[test]
    fn the_work_is_that_of_the_root_or_of_rank_0() {
        assert_eq!(work(&[GOOD, lost()], None).map(|work| work.folds), Some(3));
        assert_eq!(work(&[lost(), GOOD], None), None);
        assert_eq!(work(&[lost(), GOOD], Some(1)).map(|work| work.folds), Some(3));
    }
}
