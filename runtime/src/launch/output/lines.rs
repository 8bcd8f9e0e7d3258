//! Makes whole lines of the bytes of one stream, and puts a prefix before each.

use std::io;

/// Longest line that is kept until its end is seen, in bytes.
pub const LINE_BYTES_MAX: usize = 64 << 10;

/// Most that is read at once, in bytes.
const READ_BYTES_MAX: usize = 16 << 10;

/// Makes whole lines of the bytes of one stream.
pub struct Lines {
    label: Option<Vec<u8>>,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
    /// The last line ended in a carriage return. A newline that follows belongs to it.
    after_return: bool,
}

impl Lines {
    /// Of a stream that begins. Each line gets the label as its prefix.
    pub fn new(label: Option<Vec<u8>>) -> Self {
        Self { label, partial: Vec::new(), after_return: false }
    }

    /// Reads once. Tells how many bytes that were and the lines that they complete, or `None` at the end.
    pub(super) fn read(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<(usize, Vec<u8>)>> {
        // On the stack, so that thousands of silent streams need no memory.
        let mut bytes = [0; READ_BYTES_MAX];
        let count = read(&mut bytes)?;
        Ok((count > 0).then(|| (count, self.push(&bytes[..count]))))
    }

    /// The lines that `bytes` complete.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut block = Vec::with_capacity(self.partial.len() + bytes.len());
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                block.push(first);
                bytes = &bytes[1..];
                continue;
            }
            let room = LINE_BYTES_MAX - self.partial.len();
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let line = match end {
                Some(end) if end <= room => &bytes[..=end],
                _ if bytes.len() > room => &bytes[..room],
                _ => {
                    self.partial.extend_from_slice(bytes);
                    break;
                }
            };
            self.emit(line, &mut block);
            self.after_return = line.last() == Some(&b'\r');
            bytes = &bytes[line.len()..];
        }
        block
    }

    /// The last line, without an end, when the stream has ended.
    pub fn finish(mut self) -> Vec<u8> {
        let mut block = Vec::new();
        if !self.partial.is_empty() {
            self.emit(&[], &mut block);
        }
        block
    }

    /// Adds a line that begins with the partial one and ends with `end`.
    fn emit(&mut self, end: &[u8], block: &mut Vec<u8>) {
        block.extend(self.label.iter().flatten());
        block.append(&mut self.partial);
        block.extend_from_slice(end);
        if self.label.is_some() && !matches!(end.last(), Some(b'\n' | b'\r')) {
            block.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that comes out if `input` arrives in pieces of `step` bytes.
    fn through(label: Option<&str>, input: &[u8], step: usize) -> Vec<u8> {
        let mut lines = Lines::new(label.map(Into::into));
        let mut output: Vec<u8> = input.chunks(step).flat_map(|piece| lines.push(piece)).collect();
        output.extend(lines.finish());
        output
    }

    #[test]
    fn every_line_gets_its_prefix_however_it_arrives() {
        let cases: [(&[u8], &[u8]); 8] = [
            (b"", b""),
            (b"a\nbc\n", b"[3] a\n[3] bc\n"),
            (b"\n\n", b"[3] \n[3] \n"),
            (b"no end", b"[3] no end\n"),
            (b"10%\r20%\rdone\n", b"[3] 10%\r[3] 20%\r[3] done\n"),
            (b"from\r\nelsewhere\r\n\r\n", b"[3] from\r\n[3] elsewhere\r\n[3] \r\n"),
            (b"\r", b"[3] \r"),
            (b"\xff\xfe\0\n\x80", b"[3] \xff\xfe\0\n[3] \x80\n"),
        ];
        for (input, expected) in cases {
            for step in 1..=input.len().max(1) {
                let (marked, plain) = (through(Some("[3] "), input, step), through(None, input, step));
                assert_eq!((marked.as_slice(), plain.as_slice()), (expected, input), "by {step}");
            }
        }
    }

    #[test]
    fn a_long_line_is_cut() {
        const MAX: usize = LINE_BYTES_MAX;
        for length in [MAX - 1, MAX, MAX + 1, 5 * MAX / 2] {
            let mut input = vec![b'x'; length];
            input.push(b'\n');
            for step in [1000, MAX, MAX + 1, input.len()] {
                let output = through(Some("> "), &input, step);
                let pieces: Vec<_> = output.split_inclusive(|byte| *byte == b'\n').collect();
                assert_eq!(pieces.len(), length.div_ceil(MAX), "{length} by {step}");
                let is_whole = |piece: &&[u8]| piece.starts_with(b"> x") && piece.ends_with(b"x\n");
                assert!(pieces.iter().all(is_whole), "{length} by {step}");
                assert_eq!(output.iter().filter(|byte| **byte == b'x').count(), length);
                assert_eq!(through(None, &input, step), input);
            }
        }
    }
}
