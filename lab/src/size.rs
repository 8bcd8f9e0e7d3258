//! Sizes as people write them.

/// Reads `8`, `64k`, `1m` or `2g`: bytes in powers of 1024.
///
/// # Errors
/// Words that say how to write a size.
pub fn parse(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let lower = lower.trim_end_matches("ib").trim_end_matches('b');
    let (digits, shift) = match lower.char_indices().last() {
        Some((at, 'k')) => (&lower[..at], 10),
        Some((at, 'm')) => (&lower[..at], 20),
        Some((at, 'g')) => (&lower[..at], 30),
        _ => (lower, 0),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no size; write 8, 64k, 1m or 2g"))?;
    number
        .checked_mul(1 << shift)
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| format!("{text:?} is out of range"))
}

/// Writes a number of bytes with the largest unit that divides it.
pub fn show(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes, shown) in [
            ("8", 8, "8 B"),
            ("64k", 64 << 10, "64 KiB"),
            ("1M", 1 << 20, "1 MiB"),
            ("32MiB", 32 << 20, "32 MiB"),
            ("2g", 2 << 30, "2 GiB"),
            ("1000", 1000, "1000 B"),
        ] {
            assert_eq!(parse(text), Ok(bytes));
            assert_eq!(show(bytes), shown);
        }
        for text in ["", "k", "-1", "1t", "0", "99999999999999999999", "99999999999g"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
