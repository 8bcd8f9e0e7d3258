//! Conditions of rules: comparisons, arithmetic and logic over named values, written as in the Common
//! Expression Language.
//!
//! This is a small part of that language: numbers, names, `! && || < <= > >= == != + - * /` and parentheses.
//! The crate that implements all of it needs the standard library and a parser generator.

use alloc::{
    boxed::Box,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

use super::name::Name;

/// How deep a condition may be nested.
const DEPTH_MAX: u32 = 32;

/// A condition that was compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    root: Node,
    text: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
    Name(Name),
    Not(Box<Node>),
    Two(Operator, Box<Node>, Box<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Or,
    And,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
    Equal,
    Unequal,
    Plus,
    Minus,
    Times,
    Over,
}

/// The operators that bind alike, weakest first. A longer one stands before its beginning.
const LEVELS: [&[(&str, Operator)]; 5] = [
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[
        ("<=", Operator::LessOrEqual),
        (">=", Operator::MoreOrEqual),
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
        ("<", Operator::Less),
        (">", Operator::More),
    ],
    &[("+", Operator::Plus), ("-", Operator::Minus)],
    &[("*", Operator::Times), ("/", Operator::Over)],
];

/// Why a text is not a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// Something else should stand here.
    #[error("expected {expected} at {found:?}")]
    Unexpected {
        /// What should stand here.
        expected: &'static str,
        /// What stands here.
        found: String,
    },
    /// A name that means nothing.
    #[error(
        "nothing is called {0:?}; names are such as silence.count, host.slow_read.witnesses, found.host_dead, probe.answers"
    )]
    Unknown(String),
    /// A truth value where a number should be, or the other way round.
    #[error("expected {expected} in {part:?}")]
    Type {
        /// What should be there.
        expected: &'static str,
        /// The operator that expects it.
        part: String,
    },
    /// Nested too deep.
    #[error("nested more than {DEPTH_MAX} deep")]
    TooDeep,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Number,
    Truth,
}

impl Type {
    fn expect(self, is: Self, part: &str) -> Result<(), ConditionError> {
        let expected = if self == Self::Number { "numbers" } else { "truth values" };
        if self == is { Ok(()) } else { Err(ConditionError::Type { expected, part: part.to_string() }) }
    }
}

impl Condition {
    /// Compiles a condition.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let mut parser = Parser { rest: text, depth: 0 };
        let (root, kind) = parser.level(0)?;
        parser.skip();
        if !parser.rest.is_empty() {
            return Err(parser.unexpected("an operator"));
        }
        Type::Truth.expect(kind, text)?;
        Ok(Self { root, text: text.split_whitespace().collect::<Vec<_>>().join(" ") })
    }

    /// Whether it holds; none if a value that it needs is not known.
    pub fn holds(&self, value: &dyn Fn(&Name) -> Option<f64>) -> Option<bool> {
        self.root.value(value).map(|value| value != 0.0)
    }

    /// Calls `visit` with each name in it.
    pub fn names<'a>(&'a self, visit: &mut dyn FnMut(&'a Name)) {
        self.root.names(visit);
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Node {
    fn value(&self, value: &dyn Fn(&Name) -> Option<f64>) -> Option<f64> {
        Some(match self {
            Self::Number(number) => *number,
            Self::Name(name) => value(name)?,
            Self::Not(node) => truth(node.value(value)? == 0.0),
            Self::Two(operator, left, right) => match (operator, left.value(value), right.value(value)) {
                // One side decides, although the other is not known.
                (Operator::And, Some(0.0), _) | (Operator::And, _, Some(0.0)) => 0.0,
                (Operator::Or, Some(known), _) | (Operator::Or, _, Some(known)) if known != 0.0 => 1.0,
                (_, left, right) => operator.apply(left?, right?),
            },
        })
    }

    fn names<'a>(&'a self, visit: &mut dyn FnMut(&'a Name)) {
        match self {
            Self::Number(_) => {}
            Self::Name(name) => visit(name),
            Self::Not(node) => node.names(visit),
            Self::Two(_, left, right) => {
                left.names(visit);
                right.names(visit);
            }
        }
    }
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

impl Operator {
    fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Or => truth(left != 0.0 || right != 0.0),
            Self::And => truth(left != 0.0 && right != 0.0),
            Self::Less => truth(left < right),
            Self::LessOrEqual => truth(left <= right),
            Self::More => truth(left > right),
            Self::MoreOrEqual => truth(left >= right),
            Self::Equal => truth(left == right),
            Self::Unequal => truth(left != right),
            Self::Plus => left + right,
            Self::Minus => left - right,
            Self::Times => left * right,
            Self::Over => left / right,
        }
    }

    /// What it takes and what it yields.
    fn types(self) -> (Type, Type) {
        match self {
            Self::Or | Self::And => (Type::Truth, Type::Truth),
            Self::Plus | Self::Minus | Self::Times | Self::Over => (Type::Number, Type::Number),
            _ => (Type::Number, Type::Truth),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: u32,
}

impl<'a> Parser<'a> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn unexpected(&self, expected: &'static str) -> ConditionError {
        let found = self.rest.chars().take(20).collect();
        ConditionError::Unexpected { expected, found }
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn level(&mut self, level: usize) -> Result<(Node, Type), ConditionError> {
        let Some(operators) = LEVELS.get(level) else { return self.single() };
        let (mut node, mut kind) = self.level(level + 1)?;
        while let Some((token, operator)) = operators.iter().find(|(token, _)| self.take(token)) {
            let (right, right_kind) = self.level(level + 1)?;
            let (takes, yields) = operator.types();
            takes.expect(kind, token)?;
            takes.expect(right_kind, token)?;
            node = Node::Two(*operator, Box::new(node), Box::new(right));
            kind = yields;
        }
        Ok((node, kind))
    }

    fn single(&mut self) -> Result<(Node, Type), ConditionError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(ConditionError::TooDeep);
        }
        let node = if self.take("!") {
            let (node, kind) = self.single()?;
            Type::Truth.expect(kind, "!")?;
            (Node::Not(Box::new(node)), Type::Truth)
        } else if self.take("(") {
            let inner = self.level(0)?;
            if !self.take(")") {
                return Err(self.unexpected("a closing parenthesis"));
            }
            inner
        } else {
            self.word()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn word(&mut self) -> Result<(Node, Type), ConditionError> {
        self.skip();
        let belongs = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() {
            return Err(self.unexpected("a number, a name or a parenthesis"));
        }
        self.rest = rest;
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let number = word.parse().map_err(|_| ConditionError::Unknown(word.to_string()))?;
            return Ok((Node::Number(number), Type::Number));
        }
        let parts: Vec<&str> = word.split('.').collect();
        let name = Name::of(&parts).ok_or_else(|| ConditionError::Unknown(word.to_string()))?;
        let kind = if matches!(name, Name::Found(_)) { Type::Truth } else { Type::Number };
        Ok((Node::Name(name), kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{probe::Reading, symptom::Kind};

    fn holds(text: &str) -> Option<bool> {
        Condition::parse(text).unwrap().holds(&|name| match name {
            Name::Seen { kind: Kind::Late, .. } => Some(3.0),
            Name::Found(fault) => Some(truth(fault == "host_dead")),
            Name::Probe(Reading::Answers) => None,
            _ => Some(0.0),
        })
    }

    #[test]
    fn operators_bind_as_in_other_languages() {
        for (text, expected) in [
            ("late.count + 1 * 2 == 5", Some(true)),
            ("(late.count + 1) * 2 == 5", Some(false)),
            ("late.count >= 3 || late.count < 1 && late.count > 5", Some(true)),
            ("!found.host_dead || silence.count > 0", Some(false)),
            ("probe.answers == 0", None),
            ("found.host_frozen && probe.answers == 0", Some(false)),
            ("found.host_dead || probe.answers == 0", Some(true)),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for text in [
            "",
            "late.count",
            "late.count >",
            "late.count && 1 > 0",
            "lat.count > 1",
            "(late.count > 1",
            "1 < 2 3",
            "1.2.3 > 1",
        ] {
            assert!(Condition::parse(text).is_err(), "{text}");
        }
        let deep = "(".repeat(1000);
        assert_eq!(Condition::parse(&deep), Err(ConditionError::TooDeep));
        assert_eq!(Condition::parse(&"!".repeat(1000)), Err(ConditionError::TooDeep));
    }
}
