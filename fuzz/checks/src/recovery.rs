//! Files that choose recoveries, as anybody may write them.

use everfold::recovery::RecoveryFile;

use crate::memory::bounded;

/// # Panics
/// If a file is accepted that is out of range, or says nothing.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match bounded((256 << 10) + 256 * data.len(), || RecoveryFile::parse(text)) {
        Ok(file) => {
            assert!((1 << 10..=1 << 48).contains(&file.result_log_bytes_max()));
            assert!(!file.to_string().is_empty());
        }
        Err(error) => assert!(error.to_string().contains("has a mistake")),
    }
}

pub fn samples() -> Vec<Vec<u8>> {
    [
        "",
        "process = \"ignore\"\n[repeated]\nfaults = 3\nwithin = \"1.5 h\"\nrecovery = \"restart\"\n",
        "process = \"restart\"\n[restart]\nstarts_max = 100\nfruitless_max = 8\npause = \"100 ms\"\npause_max = \"10 s\"\n\
         join_timeout = \"60 s\"\n[checkpoint]\ninterval = \"daly\"\nmtbf = \"1 d\"\nresult_log = \"1 GiB\"\n",
        "[located]\nfaults = [\"host_overloaded\", \"disk_failing\"]\nrecovery = [\"migrate\", \"restart\"]\n",
        "[checkpoint]\ninterval = \"5 min\"\n",
        "[checkpoint]\ninterval = \"1 s\"\nmtbf = \"1 d\"",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into()
}
