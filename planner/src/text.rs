//! Profiles as text: TOML that `everfold plan` reads.

use alloc::{
    format,
    string::{String, ToString},
};
use core::fmt::Write;

use crate::{
    machine::Machine,
    profile::{Point, Section},
};

/// A profile that is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// What the program is.
    pub title: &'a str,
    /// Where its numbers are from.
    pub source: &'a str,
    /// What it runs on.
    pub machine: &'a Machine,
    /// Keys of the machine, and what a reader should know of each.
    pub notes: &'a [(&'static str, String)],
    /// Its sections, in order.
    pub sections: &'a [Section],
}

impl core::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        writeln!(f, "title = {}\nsource = {}\n\n[machine]", quoted(self.title), quoted(self.source))?;
        let &Machine { storage_bytes_per_s, bus_bytes_per_s, mtbf_host_s, mtbf_device_s, restart_s, reread } =
            self.machine;
        self.key(f, "storage", storage_bytes_per_s, "B/s")?;
        self.key(f, "bus", bus_bytes_per_s, "B/s")?;
        self.key(f, "mtbf_host", mtbf_host_s, "s")?;
        self.key(f, "mtbf_device", mtbf_device_s, "s")?;
        self.key(f, "restart", restart_s, "s")?;
        writeln!(f, "reread = {reread:?}")?;
        self.sections.iter().try_for_each(|section| write_section(f, section))
    }
}

impl Text<'_> {
    /// A quantity of the machine; what is beyond all numbers is left out.
    fn key(&self, f: &mut core::fmt::Formatter<'_>, key: &str, value: f64, unit: &str) -> core::fmt::Result {
        if value.is_infinite() {
            return Ok(());
        }
        let note = self.notes.iter().find(|(noted, _)| *noted == key);
        let note = note.map_or_else(String::new, |(_, note)| format!("  # {}", note.replace('\n', " ")));
        writeln!(f, "{key} = \"{value} {unit}\"{note}")
    }
}

fn write_section(f: &mut core::fmt::Formatter<'_>, section: &Section) -> core::fmt::Result {
    let Section { name, times, lasts_ns, points } = section;
    writeln!(f, "\n[[section]]\nname = {}\ntimes = {times}\nlasts = \"{}\"", quoted(name), time(*lasts_ns))?;
    if points.is_empty() {
        return Ok(());
    }
    writeln!(f, "points = [")?;
    for Point { name, at_ns, host_bytes, device_bytes } in points {
        write!(f, "  {{ name = {}, at = \"{}\", host = \"{host_bytes} B\"", quoted(name), time(*at_ns))?;
        if *device_bytes > 0 {
            write!(f, ", device = \"{device_bytes} B\"")?;
        }
        writeln!(f, " }},")?;
    }
    writeln!(f, "]")
}

/// Milliseconds, to the nanosecond.
fn time(time_ns: u64) -> String {
    format!("{}.{:06} ms", time_ns / 1_000_000, time_ns % 1_000_000)
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = "\"".to_string();
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            _ if letter.is_control() => _ = write!(quoted, "\\u{:04X}", letter as u32),
            _ => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
