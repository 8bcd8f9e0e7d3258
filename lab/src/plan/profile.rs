//! Profiles as they are written. Whatever is wrong with a file is told with its line and key.

use std::{fs, path::Path};

use everfold_planner::{
    levels::{LEVELS_MOST, Level},
    machine::{Machine, MachineError},
    profile::{Point, Profile, ProfileError, Section},
};
use everfold_protocol::units;
use serde::{Deserialize, Deserializer, de::Error};
use toml::{Spanned, de::DeTable};

use super::csv;

/// A profile, and what it runs on.
#[derive(Clone, Debug)]
pub struct Described {
    /// What the program is.
    pub title: String,
    /// Where its numbers are from.
    pub source: Option<String>,
    /// What it is like.
    pub profile: Profile,
    /// What it runs on.
    pub machine: Machine,
    /// The levels of its checkpoints, if it describes any.
    pub levels: Vec<Level>,
}

/// A file, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: Option<String>,
    source: Option<String>,
    machine: Spanned<Written>,
    section: Vec<Body>,
    #[serde(default)]
    level: Vec<Spanned<Step>>,
}

/// A machine, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(deserialize_with = "bandwidth")]
    storage: f64,
    #[serde(default = "infinite", deserialize_with = "bandwidth")]
    bus: f64,
    #[serde(deserialize_with = "time_s")]
    mtbf_host: f64,
    #[serde(default = "infinite", deserialize_with = "time_s")]
    mtbf_device: f64,
    #[serde(default, deserialize_with = "time_s")]
    restart: f64,
    #[serde(default = "one")]
    reread: f64,
}

/// A section, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    name: Spanned<String>,
    #[serde(default = "once")]
    times: u64,
    #[serde(deserialize_with = "time_ns")]
    lasts: u64,
    #[serde(default)]
    points: Vec<Place>,
    csv: Option<Spanned<String>>,
}

/// A point, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    name: Spanned<String>,
    #[serde(deserialize_with = "time_ns")]
    at: u64,
    #[serde(default, deserialize_with = "size")]
    host: u64,
    #[serde(default, deserialize_with = "size")]
    device: u64,
}

/// A level, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    name: String,
    #[serde(default, deserialize_with = "time_s")]
    latency: f64,
    #[serde(deserialize_with = "bandwidth")]
    bandwidth: f64,
    #[serde(default, deserialize_with = "time_s")]
    restart: f64,
    #[serde(deserialize_with = "time_s")]
    mtbf: f64,
}

/// Reads a profile, and the tables that it names, which lie beside it.
///
/// # Errors
/// Words that name line and key.
pub fn load(path: &Path) -> Result<Described, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    parse(
        &text,
        path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned()),
        |name| {
            let beside = path.parent().map_or_else(|| name.into(), |folder| folder.join(name));
            fs::read_to_string(&beside).map_err(|error| format!("{}: {error}", beside.display()))
        },
    )
}

/// Reads a profile; `table` reads what it names.
///
/// # Errors
/// Words that name line and key.
pub fn parse(
    text: &str,
    title: String,
    table: impl Fn(&str) -> Result<String, String>,
) -> Result<Described, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    let at = |offset: usize| format!("line {}", text[..offset].matches('\n').count() + 1);
    let machine = machine(&file).map_err(|error| {
        let place = key_of_machine(text, error.key).unwrap_or(file.machine.span().start);
        format!("{}, key `machine.{}`: {error}", at(place), error.key)
    })?;
    let sections = file.section.iter().map(|body| body.section(&at, &table));
    let profile = Profile::new(sections.collect::<Result<_, _>>()?)
        .map_err(|error| format!("{}: {error}", file.place(&error).map_or("line 1".to_owned(), &at)))?;
    let device = file.section.iter().flat_map(|body| &body.points).find(|point| point.device > 0);
    if let Some(point) = device.filter(|_| machine.bus_bytes_per_s.is_infinite()) {
        let line = at(point.name.span().start);
        return Err(format!("{line}, key `device`: bytes of a device need `bus`, the bandwidth to the host"));
    }
    let levels = levels(&file, &at)?;
    Ok(Described { title: file.title.unwrap_or(title), source: file.source, profile, machine, levels })
}

fn machine(file: &File) -> Result<Machine, MachineError> {
    let &Written { storage, bus, mtbf_host, mtbf_device, restart, reread } = file.machine.as_ref();
    let machine = Machine {
        storage_bytes_per_s: storage,
        bus_bytes_per_s: bus,
        mtbf_host_s: mtbf_host,
        mtbf_device_s: mtbf_device,
        restart_s: restart,
        reread,
    };
    machine.check().map(|()| machine)
}

/// Where a value of the machine stands.
fn key_of_machine(text: &str, key: &str) -> Option<usize> {
    let file = DeTable::parse(text).ok()?;
    Some(file.get_ref().get("machine")?.get_ref().as_table()?.get(key)?.span().start)
}

fn levels(file: &File, at: &impl Fn(usize) -> String) -> Result<Vec<Level>, String> {
    let levels = file.level.iter().enumerate().map(|(index, step)| {
        let Step { name, latency, bandwidth, restart, mtbf } = step.as_ref();
        let refuse = |why: &str| Err(format!("{}, level {name:?}: {why}", at(step.span().start)));
        if index >= LEVELS_MOST {
            return refuse(&format!("there are at most {LEVELS_MOST} levels"));
        }
        if *mtbf <= 0.0 || *bandwidth <= 0.0 {
            return refuse("`mtbf` and `bandwidth` have to be greater than 0");
        }
        let (latency_s, bytes_per_s, restart_s, mtbf_s) = (*latency, *bandwidth, *restart, *mtbf);
        Ok(Level { name: name.clone(), latency_s, bytes_per_s, restart_s, mtbf_s })
    });
    levels.collect()
}

impl Body {
    fn section(
        &self,
        at: &impl Fn(usize) -> String,
        table: &impl Fn(&str) -> Result<String, String>,
    ) -> Result<Section, String> {
        let name = self.name.as_ref().clone();
        let points = match &self.csv {
            None => self.points.iter().map(Place::point).collect(),
            Some(csv) if self.points.is_empty() => {
                let told = |error| format!("{}, key `csv`: {error}", at(csv.span().start));
                csv::read(&table(csv.as_ref()).map_err(told)?, &name)
                    .map_err(|error| format!("{}: {error}", csv.as_ref()))?
            }
            Some(csv) => {
                let line = at(csv.span().start);
                return Err(format!("{line}, key `csv`: a section has either `points` or `csv`"));
            }
        };
        Ok(Section { name, times: self.times, lasts_ns: self.lasts, points })
    }
}

impl Place {
    fn point(&self) -> Point {
        Point {
            name: self.name.as_ref().clone(),
            at_ns: self.at,
            host_bytes: self.host,
            device_bytes: self.device,
        }
    }
}

impl File {
    /// Where in the file the section or the point stands that an error names: the last of that name.
    fn place(&self, error: &ProfileError) -> Option<usize> {
        let section =
            |name: &String| self.section.iter().rev().map(|body| &body.name).find(|it| it.as_ref() == name);
        let point = |name: &String| {
            let points = self.section.iter().rev().flat_map(|body| body.points.iter().rev());
            points.map(|point| &point.name).find(|it| it.as_ref() == name)
        };
        let name = match error {
            ProfileError::NoTime { section: name } | ProfileError::TooLong { section: name } => section(name),
            ProfileError::Unsorted { point: name, section: of }
            | ProfileError::AfterEnd { point: name, section: of } => point(name).or(section(of)),
            ProfileError::TooManyBytes { point: name } => point(name),
            ProfileError::NoPoints => None,
        };
        name.map(|name| name.span().start)
    }
}

fn infinite() -> f64 {
    f64::INFINITY
}

fn one() -> f64 {
    1.0
}

fn once() -> u64 {
    1
}

fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
    read: fn(&str) -> Result<f64, String>,
) -> Result<f64, D::Error> {
    read(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn time_s<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    read(deserializer, units::seconds)
}

fn time_ns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok((time_s(deserializer)? * 1e9).round() as u64)
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Ok(read(deserializer, units::bytes)?.round() as u64)
}

fn bandwidth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    read(deserializer, units::bytes_per_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    use everfold_planner::text::Text;

    const MACHINE: &str = "[machine]\nstorage = \"100 MB/s\"\nbus = \"4 GB/s\"\nmtbf_host = \"400 s\"\nmtbf_device = \"240 s\"\n";
    const SECTION: &str = "[[section]]\nname = \"loop\"\ntimes = 3\nlasts = \"2 s\"\n";

    fn told(text: &str) -> Result<Described, String> {
        parse(text, "title".to_owned(), |name| match name {
            "points.csv" => Ok("at_ms,host_mb\n500,1\n".to_owned()),
            _ => Err(format!("{name}: not there")),
        })
    }

    #[test]
    fn loops_and_tables_are_read() {
        let points =
            "points = [{ name = \"a\", at = \"0 s\", device = \"1 GB\" }, { name = \"b\", at = \"1 s\" }]\n";
        let more = "[[section]]\nname = \"end\"\nlasts = \"1 s\"\ncsv = \"points.csv\"\n";
        let read = told(&format!("{MACHINE}{SECTION}{points}{more}")).unwrap();
        assert_eq!((read.profile.len(), read.profile.run_ns()), (7, 7_000_000_000));
        let last = read.profile.visit(6);
        assert_eq!((last.at_ns, last.point.host_bytes), (6_500_000_000, 1_000_000));
        assert_eq!((read.machine.reread, read.machine.restart_s), (1.0, 0.0));
    }

    #[test]
    fn what_is_written_down_is_read_again() {
        let point = |name: &str, at_ns, host_bytes, device_bytes| Point {
            name: name.to_owned(),
            at_ns,
            host_bytes,
            device_bytes,
        };
        let sections = vec![
            Section { name: "quiet".to_owned(), times: 1, lasts_ns: 1_234_567_891, points: vec![] },
            Section {
                name: "a \"loop\" \\ of\ttabs\u{7f}".to_owned(),
                times: 12,
                lasts_ns: 999_999_999,
                points: vec![point("a\n", 1, 3, 0), point("b", 1, 0, 1 << 40), point("b", 999_999_999, 7, 7)],
            },
        ];
        let machine = Machine {
            storage_bytes_per_s: 1.2345e8,
            bus_bytes_per_s: 4e9,
            mtbf_host_s: 86400.0,
            mtbf_device_s: f64::INFINITY,
            restart_s: 0.25,
            reread: 1.0,
        };
        let notes = [("storage", "measured".to_owned())];
        let (title, source) = ("title", "a \u{1} source");
        let text = Text { title, source, machine: &machine, notes: &notes, sections: &sections }.to_string();
        let read = told(&text).unwrap();
        assert_eq!(read.profile.sections(), sections, "{text}");
        assert_eq!((read.machine, read.source.as_deref()), (machine, Some(source)));
    }

    #[test]
    fn errors_name_line_and_key() {
        let points = |points: &str| format!("{MACHINE}{SECTION}points = [\n{points}\n]\n");
        for (text, words) in [
            (String::new(), "missing field `machine`"),
            (MACHINE.replace("\"400 s\"", "\"400\""), "mtbf_host = \"400\""),
            (MACHINE.replace("\"400 s\"", "400"), "mtbf_host = 400"),
            (MACHINE.replace("\"400 s\"", "\"-4 s\""), "line 4"),
            (
                MACHINE.replace("\"400 s\"", "\"0 s\"") + SECTION,
                "line 4, key `machine.mtbf_host`: the MTBF of the host is 0",
            ),
            (
                format!("{MACHINE}{SECTION}").replace("\"2 s\"", "\"1e300 s\""),
                "line 7: section \"loop\": a profile has at most",
            ),
            (MACHINE.replace("storage", "storrage"), "unknown field `storrage`"),
            (format!("{MACHINE}{SECTION}"), "no points"),
            (
                points("{ name = \"a\", at = \"3 s\" }"),
                "line 11: section \"loop\": point \"a\" is reached after",
            ),
            (
                points("{ name = \"a\", at = \"1 s\" },\n{ name = \"b\", at = \"0 s\" }"),
                "line 12: section \"loop\": point \"b\" is reached before",
            ),
            (points("{ name = \"a\", at = \"1 s\", hosts = \"1 B\" }"), "unknown field `hosts`"),
            (points("{ name = \"a\", at = \"1 s\", host = \"1\" }"), "line 11"),
            (format!("{MACHINE}{SECTION}csv = \"none.csv\""), "line 10, key `csv`: none.csv: not there"),
            (
                points("{ name = \"a\", at = \"1 s\", device = \"1 B\" }").replace("bus = \"4 GB/s\"", ""),
                "line 11, key `device`: bytes of a device need `bus`",
            ),
            (
                points("{ name = \"a\", at = \"1 s\" }")
                    + "[[level]]\nname = \"disk\"\nbandwidth = \"1 B/s\"\nmtbf = \"0 s\"",
                "line 13, level \"disk\"",
            ),
        ] {
            let error = told(&text).unwrap_err();
            assert!(error.contains(words), "{error}\n---\n{text}");
        }
    }
}
