//! Statistics of files: the body that the second tutorial reduces.

use everfold::prelude::ReducerBody;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};
use walkdir::WalkDir;

/// Folders that hold what programs wrote rather than people.
const SKIPPED_FOLDERS: [&str; 2] = [".git", "target"];

/// Buckets of the histogram. The first is for empty lines, bucket `i` for lengths in [2^(i-1), 2^i), and the
/// last also takes in all lines that are longer.
const BUCKETS: usize = 10;

/// Shorter words are mostly grammar.
const WORD_LETTERS_MIN: usize = 4;

/// Words and bar length that are printed.
const WORDS_SHOWN: usize = 10;
const BAR_WIDTH: u64 = 50;

/// What is known about a set of files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Files whose content was read.
    pub files: u64,
    /// Files among them that are not UTF-8 text. Only their bytes are counted.
    pub not_text: u64,
    /// Files and folders that could not be read.
    pub unreadable: u64,
    /// Total size in bytes.
    pub bytes: u64,
    /// Lines of all text files.
    pub lines: u64,
    /// Lines by length in characters; see [`Statistics::bucket_label`].
    pub line_lengths: [u64; BUCKETS],
    /// How often each word occurs, in lower case.
    pub words: BTreeMap<String, u64>,
}

impl ReducerBody for Statistics {
    /// Statistics of two sets of files become the statistics of their union.
    ///
    /// It does not matter which set is on the left, nor in which order three sets are joined. That is all
    /// that a reduction asks of this function.
    fn combine(&mut self, other: Self) {
        self.files += other.files;
        self.not_text += other.not_text;
        self.unreadable += other.unreadable;
        self.bytes += other.bytes;
        self.lines += other.lines;
        for (count, more) in self.line_lengths.iter_mut().zip(other.line_lengths) {
            *count += more;
        }
        for (word, count) in other.words {
            *self.words.entry(word).or_default() += count;
        }
    }
}

impl Statistics {
    /// Takes in a file. One that cannot be read is counted and otherwise passed over.
    pub fn add_file(&mut self, path: &Path) {
        match fs::read(path) {
            Ok(content) => self.add_content(&content),
            Err(_) => self.unreadable += 1,
        }
    }

    /// Takes in the content of a file.
    pub fn add_content(&mut self, content: &[u8]) {
        self.files += 1;
        self.bytes += content.len() as u64;
        let Ok(text) = str::from_utf8(content) else {
            self.not_text += 1;
            return;
        };
        for line in text.lines() {
            self.lines += 1;
            self.line_lengths[bucket(line.chars().count())] += 1;
        }
        for word in text.split(|character: char| !character.is_alphabetic()) {
            if word.chars().nth(WORD_LETTERS_MIN - 1).is_some() {
                *self.words.entry(word.to_lowercase()).or_default() += 1;
            }
        }
    }

    /// The most frequent words, with their counts; the first in the alphabet where counts are equal.
    pub fn frequent_words(&self, limit: usize) -> Vec<(&str, u64)> {
        let mut words: Vec<_> = self.words.iter().map(|(word, count)| (word.as_str(), *count)).collect();
        words.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        words.truncate(limit);
        words
    }

    /// The lengths that a bucket of the histogram holds, for people to read.
    pub fn bucket_label(bucket: usize) -> String {
        match bucket {
            0 => "0".to_owned(),
            1 => "1".to_owned(),
            _ if bucket == BUCKETS - 1 => format!("{} and more", 1_u64 << (bucket - 1)),
            _ => format!("{} to {}", 1_u64 << (bucket - 1), (1_u64 << bucket) - 1),
        }
    }
}

/// The bucket of lines with that many characters.
fn bucket(length: usize) -> usize {
    let bits = usize::BITS - length.leading_zeros();
    (bits as usize).min(BUCKETS - 1)
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, count) in [
            ("files", self.files),
            ("not text", self.not_text),
            ("unreadable", self.unreadable),
            ("bytes", self.bytes),
            ("lines", self.lines),
        ] {
            writeln!(f, "{what:<12} {count:>12}")?;
        }
        writeln!(f, "\n{:<12} {:>12}", "characters", "lines")?;
        let longest = self.line_lengths.iter().copied().max().unwrap_or(0).max(1);
        for (bucket, count) in self.line_lengths.into_iter().enumerate() {
            let bar = "#".repeat((count * BAR_WIDTH).div_ceil(longest) as usize);
            let row = format!("{:<12} {count:>12} {bar}", Self::bucket_label(bucket));
            writeln!(f, "{}", row.trim_end())?;
        }
        writeln!(f, "\n{:<12} {:>12}", "word", "times")?;
        for (word, count) in self.frequent_words(WORDS_SHOWN) {
            writeln!(f, "{word:<12} {count:>12}")?;
        }
        Ok(())
    }
}

/// The files below a folder, in an order that is the same on every rank, and how many entries could not be
/// listed.
///
/// Symbolic links are not followed, so a file is listed once and the walk ends.
///
/// # Errors
/// If the folder itself cannot be read.
pub fn files_below(folder: &Path) -> io::Result<(Vec<PathBuf>, u64)> {
    fs::read_dir(folder)?;
    let kept = |entry: &walkdir::DirEntry| {
        let skipped = SKIPPED_FOLDERS.iter().any(|name| entry.file_name() == *name);
        entry.depth() == 0 || !(entry.file_type().is_dir() && skipped)
    };
    let (mut files, mut unreadable) = (Vec::new(), 0);
    for entry in WalkDir::new(folder).sort_by_file_name().into_iter().filter_entry(kept) {
        match entry {
            Ok(entry) if entry.file_type().is_file() => files.push(entry.into_path()),
            Ok(_) => {}
            Err(_) => unreadable += 1,
        }
    }
    Ok((files, unreadable))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(contents: &[&[u8]]) -> Statistics {
        let mut statistics = Statistics::default();
        for content in contents {
            statistics.add_content(content);
        }
        statistics
    }

    #[test]
    fn lines_words_and_bytes_are_counted() {
        let found = of(&["Reduce, reduce!\n\nfolds a\r\nélan ".as_bytes()]);
        assert_eq!((found.files, found.not_text, found.lines, found.bytes), (1, 0, 4, 32));
        // 15 characters, none, 7 without the line's end, and 5 in 6 bytes.
        assert_eq!(found.line_lengths, [1, 0, 0, 2, 1, 0, 0, 0, 0, 0]);
        assert_eq!(found.frequent_words(2), [("reduce", 2), ("folds", 1)]);
        assert_eq!(found.words.len(), 3);
    }

    #[test]
    fn what_is_no_text_is_counted_by_its_bytes() {
        let found = of(&[b"\xff\xfe\n\n", b""]);
        assert_eq!((found.files, found.not_text, found.bytes, found.lines), (2, 1, 4, 0));
    }

    #[test]
    fn buckets_are_powers_of_two() {
        let lengths = [0, 1, 2, 3, 4, 7, 8, 255, 256, usize::MAX];
        assert_eq!(lengths.map(bucket), [0, 1, 2, 2, 3, 3, 4, 8, 9, 9]);
        assert_eq!(Statistics::bucket_label(3), "4 to 7");
        assert_eq!(Statistics::bucket_label(BUCKETS - 1), "256 and more");
    }

    #[test]
    fn any_bracketing_and_order_gives_the_same_statistics() {
        let files: [&[u8]; 3] =
            [b"one more word\n", b"more \xff", b"word and word again\n\nlonger line follows here"];
        let [a, b, c] = files.map(|content| of(&[content]));
        let join = |left: &Statistics, right: &Statistics| {
            let mut joined = left.clone();
            joined.combine(right.clone());
            joined
        };
        let whole = of(&files);
        assert_eq!(join(&join(&a, &b), &c), whole);
        assert_eq!(join(&a, &join(&b, &c)), whole);
        assert_eq!(join(&join(&c, &a), &b), whole);
    }

    #[test]
    fn the_walk_is_sorted_and_leaves_out_what_programs_wrote() -> io::Result<()> {
        let folder = std::env::temp_dir().join(format!("everfold-statistics-{}", std::process::id()));
        for inner in ["b", "target", "a/.git"] {
            fs::create_dir_all(folder.join(inner))?;
        }
        for file in ["b/2", "a/target", "target/object", "a/.git/config", "c"] {
            fs::write(folder.join(file), "")?;
        }
        let listed = files_below(&folder);
        fs::remove_dir_all(&folder)?;
        let (files, unreadable) = listed?;
        assert_eq!(files, ["a/target", "b/2", "c"].map(|file| folder.join(file)));
        assert_eq!(unreadable, 0);
        Ok(())
    }

    #[test]
    fn a_missing_file_is_counted_and_a_missing_folder_is_an_error() {
        let missing = Path::new("/nonexistent/everfold");
        let mut statistics = Statistics::default();
        statistics.add_file(missing);
        assert_eq!((statistics.files, statistics.unreadable), (0, 1));
        assert!(files_below(missing).is_err());
    }
}
