//! Points of a section in a table that any tool can write.
//!
//! The first line names the columns: `name`, and for time, host and device one each, which ends in its unit:
//! `at_ms,host_mb,device_mb`. A point without a name is called after its section and line.

use everfold_planner::profile::Point;

/// The columns with a quantity, their units, and how many nanoseconds or bytes each of them is.
const COLUMNS: [(&str, &[(&str, f64)]); 3] = [
    ("at", &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)]),
    ("host", &[("bytes", 1.0), ("kb", 1e3), ("mb", 1e6), ("gb", 1e9)]),
    ("device", &[("bytes", 1.0), ("kb", 1e3), ("mb", 1e6), ("gb", 1e9)]),
];

/// Where a quantity stands, and what one is worth.
struct Column {
    title: String,
    index: usize,
    scale: f64,
}

/// Reads the points of `section`.
///
/// # Errors
/// Line, column, and what is wrong there.
pub fn read(text: &str, section: &str) -> Result<Vec<Point>, String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, header) = lines.next().ok_or("line 1: the table is empty; its first line names the columns")?;
    let titles: Vec<&str> = header.split(',').map(str::trim).collect();
    let known = |title: &str| {
        title == "name" || COLUMNS.iter().any(|(name, units)| unit(title, name, units).is_some())
    };
    if let Some(unknown) = titles.iter().find(|title| !known(title)) {
        return Err(format!(
            "line 1, column {unknown:?}: unknown; columns are name, at_ns (or _us, _ms, _s), host_bytes \
             and device_bytes (or _kb, _mb, _gb)"
        ));
    }
    let names = titles.iter().position(|title| *title == "name");
    let at = column(&titles, 0)?.ok_or("line 1: there is no column for the time, such as at_ms")?;
    let (host, device) = (column(&titles, 1)?, column(&titles, 2)?);
    let mut points = Vec::new();
    for (index, line) in lines {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if cells.len() != titles.len() {
            return Err(format!("line {}: {} cells in {} columns", index + 1, cells.len(), titles.len()));
        }
        let quantity = |column: &Option<Column>| column.as_ref().map_or(Ok(0), |it| it.read(&cells, index));
        let name = names.map(|names| cells[names]).filter(|name| !name.is_empty());
        points.push(Point {
            name: name.map_or_else(|| format!("{section}:{}", index + 1), str::to_owned),
            at_ns: at.read(&cells, index)?,
            host_bytes: quantity(&host)?,
            device_bytes: quantity(&device)?,
        });
        let [.., before, last] = points.as_slice() else { continue };
        if last.at_ns < before.at_ns {
            return Err(format!("line {}, column {:?}: earlier than the line above", index + 1, at.title));
        }
    }
    Ok(points)
}

/// What one of `units` is worth, if this is the title of a column of that name.
fn unit(title: &str, name: &str, units: &[(&str, f64)]) -> Option<f64> {
    let ending = title.strip_prefix(name)?.strip_prefix('_')?;
    units.iter().find(|(unit, _)| *unit == ending).map(|(_, scale)| *scale)
}

fn column(titles: &[&str], which: usize) -> Result<Option<Column>, String> {
    let (name, units) = COLUMNS[which];
    let columns = titles.iter().enumerate().filter_map(|(index, title)| {
        unit(title, name, units).map(|scale| Column { title: (*title).to_owned(), index, scale })
    });
    let mut columns: Vec<Column> = columns.collect();
    match columns.len() {
        0 | 1 => Ok(columns.pop()),
        _ => Err(format!("line 1: there are two columns for {name}")),
    }
}

impl Column {
    fn read(&self, cells: &[&str], index: usize) -> Result<u64, String> {
        let cell = cells[self.index];
        let number: f64 = cell.parse().unwrap_or(f64::NAN);
        let value = (number * self.scale).round();
        match (0.0..9e18).contains(&value) {
            true => Ok(value as u64),
            false => Err(format!(
                "line {}, column {:?}: {cell:?} is not a number of at least 0",
                index + 1,
                self.title
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_in_their_units() {
        let text = "name,at_ms,device_mb\nfirst,1.5,2\n\n,3,0.5\n";
        let points = read(text, "loop").unwrap();
        let told: Vec<_> =
            points.iter().map(|p| (p.name.as_str(), p.at_ns, p.host_bytes, p.device_bytes)).collect();
        assert_eq!(told, [("first", 1_500_000, 0, 2_000_000), ("loop:4", 3_000_000, 0, 500_000)]);
    }

    #[test]
    fn errors_name_line_and_column() {
        for (text, words) in [
            ("", "line 1: the table is empty"),
            ("name,at", "line 1, column \"at\": unknown"),
            ("name,host_mb\na,1", "no column for the time"),
            ("at_s,at_ms\n1,1", "two columns for at"),
            ("at_s,host_mb\n1,1\n2", "line 3: 1 cells in 2 columns"),
            ("at_s,host_mb\n1,-1", "line 2, column \"host_mb\": \"-1\""),
            ("at_s,host_mb\n1,nan", "line 2, column \"host_mb\": \"nan\""),
            ("at_s\n2\n1", "line 3, column \"at_s\": earlier"),
        ] {
            let told = read(text, "s").unwrap_err();
            assert!(told.contains(words), "{told}");
        }
    }
}
