//! Quantities as people write them: a number and its unit.

use alloc::{borrow::ToOwned, format, string::String};
use core::fmt;

/// Reads `75 s`, `250 ms` or `1.5h`, in seconds.
///
/// # Errors
/// Words that say how to write a time.
pub fn seconds(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, f64); 7] =
        [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0)];
    read(text, &UNITS, "a time", "write 250 ms, 75 s, 5 min, 8 h or 2 d")
}

/// Reads `85 MB`, `4 GiB` or `0 B`, in bytes.
///
/// # Errors
/// Words that say how to write a size.
pub fn bytes(text: &str) -> Result<f64, String> {
    read(text, &SIZES, "a size", "write 512 B, 85 MB or 4 GiB")
}

/// Reads `4 GB/s`, in bytes per second.
///
/// # Errors
/// Words that say how to write a bandwidth.
pub fn bytes_per_s(text: &str) -> Result<f64, String> {
    let (what, example) = ("a bandwidth", "write 100 MB/s or 4 GiB/s");
    let size = text.trim().strip_suffix("/s").ok_or_else(|| format!("{text:?} is not {what}; {example}"))?;
    read(size, &SIZES, what, example)
}

/// How often something has happened: `1 time`, `3 times`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times(pub u32);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count) = self;
        write!(f, "{count} {}", if *count == 1 { "time" } else { "times" })
    }
}

const SIZES: [(&str, f64); 9] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];

/// A number that is not negative, followed by one of these units.
fn read(text: &str, units: &[(&str, f64)], what: &str, example: &str) -> Result<f64, String> {
    let text = text.trim();
    let refuse = |why: &str| format!("{text:?} is not {what}: {why}; {example}");
    let unit = text.find(|letter: char| letter.is_ascii_alphabetic() && !is_exponent(letter));
    let (number, unit) = text.split_at(unit.unwrap_or(text.len()));
    let number: f64 = number.trim().parse().map_err(|_| refuse("it does not begin with a number"))?;
    if unit.is_empty() {
        return Err(refuse("it has no unit"));
    }
    let scale = units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| scale);
    let scale = scale.ok_or_else(|| refuse("its unit is not known"))?;
    match number * scale {
        value if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err(refuse("it is negative or beyond all numbers")),
    }
}

/// No unit begins with an `e`; numbers may contain one.
fn is_exponent(letter: char) -> bool {
    letter == 'e' || letter == 'E'
}

/// Seconds with the largest unit that leaves a number of at least 1.
pub fn show_seconds(time_s: f64) -> String {
    match time_s {
        _ if time_s >= 100.0 * 365.0 * 86400.0 => "over 100 years".to_owned(),
        _ if time_s >= 86400.0 * 2.0 => format!("{:.2} d", time_s / 86400.0),
        _ if time_s >= 7200.0 => format!("{:.2} h", time_s / 3600.0),
        _ if time_s >= 1.0 || time_s == 0.0 => format!("{time_s:.1} s"),
        _ if time_s >= 1e-3 => format!("{:.1} ms", time_s * 1e3),
        _ => format!("{:.1} us", time_s * 1e6),
    }
}

/// Bytes with the largest unit that leaves a number of at least 1.
pub fn show_bytes(bytes: f64) -> String {
    for (unit, scale) in [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)] {
        if bytes >= scale {
            return format!("{:.1} {unit}", bytes / scale);
        }
    }
    format!("{bytes:.0} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        for (text, value) in
            [("75 s", 75.0), ("250ms", 0.25), ("1.5 h", 5400.0), ("2e3 us", 2e-3), (" 5 min ", 300.0)]
        {
            assert_eq!(seconds(text), Ok(value), "{text}");
        }
        assert_eq!(bytes("4 MiB"), Ok(4_194_304.0));
        assert_eq!(bytes_per_s("4 GB/s"), Ok(4e9));
        for (text, why) in [
            ("75", "has no unit"),
            ("s", "does not begin with a number"),
            ("-1 s", "negative"),
            ("1e999 s", "negative or beyond"),
            ("5 parsec", "unit is not known"),
            ("nan s", "begin with a number"),
            ("", "begin with a number"),
        ] {
            let told = seconds(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
        assert!(bytes("5").unwrap_err().contains("no unit") && bytes_per_s("5 GB").is_err());
    }

    #[test]
    fn one_time_is_no_plural() {
        assert_eq!([Times(0), Times(1), Times(2)].map(|it| it.to_string()), ["0 times", "1 time", "2 times"]);
    }
}
