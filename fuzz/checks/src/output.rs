//! What the processes of a job print, which the launcher carries to its own streams line by line.

use everfold_runtime::launch::lines::{LINE_BYTES_MAX, Lines};

use crate::{
    input::{Input, piece},
    memory::bounded,
};

/// Longest text that is made of an input.
const TEXT_BYTES_MAX: usize = 256 << 10;
const LABEL: &[u8] = b"[3] ";

/// The first two bytes say in which steps the text arrives. Then come runs of one byte, which make long lines, and pieces
/// as they are.
///
/// # Panics
/// If bytes are lost or changed, a line has no prefix, or it matters how the text arrives.
pub fn check(data: &[u8]) {
    let mut input = Input::new(data);
    let step = usize::from(input.short()).max(1);
    let mut text = Vec::new();
    while !input.is_empty() && text.len() < TEXT_BYTES_MAX {
        match input.byte() % 4 {
            0 => text.resize(text.len() + usize::from(input.short()), b'x'),
            _ => text.extend_from_slice(input.piece()),
        }
    }
    let lines = text.iter().filter(|byte| is_end(**byte)).count() + text.len() / LINE_BYTES_MAX + 1;
    let most = 8 * text.len() + 4 * lines * LABEL.len() + (256 << 10);
    for step in [step.max(text.len() / 4096), usize::MAX] {
        let marked = bounded(most, || carried(Some(LABEL), &text, step));
        assert!(marked == meant(&text), "marked, by {step}");
        let plain = bounded(most, || carried(None, &text, step));
        assert!(plain == text, "without a prefix no byte is changed or added, by {step}");
    }
}

/// What comes out if `text` arrives in pieces of `step` bytes.
fn carried(label: Option<&[u8]>, text: &[u8], step: usize) -> Vec<u8> {
    let mut lines = Lines::new(label.map(<[u8]>::to_vec));
    let mut carried = Vec::with_capacity(text.len());
    for piece in text.chunks(step) {
        carried.extend(lines.push(piece));
    }
    carried.extend(lines.finish());
    carried
}

/// What is to come out with prefixes: said of the whole text, which is simpler than of pieces.
fn meant(mut text: &[u8]) -> Vec<u8> {
    let mut meant = Vec::new();
    while !text.is_empty() {
        let end = text.iter().take(LINE_BYTES_MAX + 1).position(|byte| is_end(*byte));
        let length = match end {
            Some(end) if text[end..].starts_with(b"\r\n") => end + 2,
            Some(end) => end + 1,
            None => text.len().min(LINE_BYTES_MAX),
        };
        let line;
        (line, text) = text.split_at(length);
        meant.extend_from_slice(LABEL);
        meant.extend_from_slice(line);
        meant.extend(end.is_none().then_some(b'\n'));
    }
    meant
}

fn is_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

pub fn samples() -> Vec<Vec<u8>> {
    let text = |bytes: &[u8]| [&[1][..], &piece(bytes)].concat();
    let run = |bytes: u16| [&[0][..], &bytes.to_le_bytes()].concat();
    let before = |step: u16, parts: &[Vec<u8>]| [&step.to_le_bytes()[..], &parts.concat()].concat();
    vec![
        before(1, &[text(b"one\ntwo\r\n\r\nthree")]),
        before(7, &[text(b"10%\r20%\rdone\n\n\xff\0\x1b[K")]),
        before(0xffff, &[run(0xffff), run(1), text(b"\n"), run(0xffff), run(1), text(b"y\r"), text(b"\nz")]),
        before(1000, &[run(0xffff), run(0xffff), run(40), text(b"\r\n"), text(b"\r")]),
    ]
}
