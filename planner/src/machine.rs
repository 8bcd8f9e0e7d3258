//! What a program runs on: how fast it writes, and how often it fails (CP-1, CP-2).

use serde::{Deserialize, Serialize};

/// Whose live bytes a checkpoint saves, and whose failures it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Host and device together.
    Whole,
    /// The host alone.
    Host,
    /// The device alone.
    Device,
}

/// What a program runs on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Bandwidth from the host to stable storage, in bytes per second (the paper's B).
    pub storage_bytes_per_s: f64,
    /// Bandwidth between device and host, in bytes per second (the paper's B2); infinite without a device.
    pub bus_bytes_per_s: f64,
    /// Mean time between two failures of the host, in seconds.
    pub mtbf_host_s: f64,
    /// Mean time between two failures of the device, in seconds; infinite without a device.
    pub mtbf_device_s: f64,
    /// How long it takes after a failure until a checkpoint can be read, in seconds.
    pub restart_s: f64,
    /// How long reading a checkpoint takes, in parts of writing it.
    pub reread: f64,
}

/// Why a machine cannot be.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{what} is {value}; it has to be {least}")]
pub struct MachineError {
    /// The key under which profiles have it.
    pub key: &'static str,
    /// What is wrong.
    pub what: &'static str,
    /// What it is.
    pub value: f64,
    least: &'static str,
}

impl Machine {
    /// Sees whether there can be such a machine.
    ///
    /// # Errors
    /// The first quantity that makes no sense.
    pub fn check(&self) -> Result<(), MachineError> {
        let (least, finite) = ("at least 0", |value: f64| value >= 0.0 && value.is_finite());
        let (more, positive) = ("greater than 0", |value: f64| value > 0.0);
        let real = |value: f64| value > 0.0 && value.is_finite();
        let all = [
            (
                "storage",
                "the bandwidth to storage",
                self.storage_bytes_per_s,
                real(self.storage_bytes_per_s),
                more,
            ),
            ("bus", "the bandwidth of the bus", self.bus_bytes_per_s, positive(self.bus_bytes_per_s), more),
            ("mtbf_host", "the MTBF of the host", self.mtbf_host_s, real(self.mtbf_host_s), more),
            ("mtbf_device", "the MTBF of the device", self.mtbf_device_s, positive(self.mtbf_device_s), more),
            ("restart", "the restart", self.restart_s, finite(self.restart_s), least),
            ("reread", "reading again", self.reread, finite(self.reread), least),
        ];
        match all.into_iter().find(|(_, _, _, holds, _)| !holds) {
            Some((key, what, value, _, least)) => Err(MachineError { key, what, value, least }),
            None => Ok(()),
        }
    }

    /// Mean time between two failures of a part. Host and device in series fail when either does (CP-2, eq. 2-2).
    pub fn mtbf_s(&self, part: Part) -> f64 {
        match part {
            Part::Whole => in_series([self.mtbf_host_s, self.mtbf_device_s]),
            Part::Host => self.mtbf_host_s,
            Part::Device => self.mtbf_device_s,
        }
    }

    /// How long a checkpoint of these live bytes takes (CP-1): all go to storage, those of the device over the
    /// bus before.
    pub fn write_ns(&self, part: Part, host_bytes: u64, device_bytes: u64) -> u64 {
        let (host, device) = match part {
            Part::Whole => (host_bytes as f64, device_bytes as f64),
            Part::Host => (host_bytes as f64, 0.0),
            Part::Device => (0.0, device_bytes as f64),
        };
        let write_s = (host + device) / self.storage_bytes_per_s + device / self.bus_bytes_per_s;
        libm::round(write_s * 1e9) as u64
    }
}

impl Part {
    /// Which of a point's live bytes a checkpoint of this part saves.
    pub fn bytes(self, host_bytes: u64, device_bytes: u64) -> u64 {
        match self {
            Self::Whole => host_bytes + device_bytes,
            Self::Host => host_bytes,
            Self::Device => device_bytes,
        }
    }
}

/// Mean time between failures of parts of which none may fail (CP-2, eq. 2-1).
pub fn in_series(mtbfs_s: impl IntoIterator<Item = f64>) -> f64 {
    1.0 / mtbfs_s.into_iter().map(|mtbf_s| 1.0 / mtbf_s).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine {
        storage_bytes_per_s: 1e8,
        bus_bytes_per_s: 4e9,
        mtbf_host_s: 400.0,
        mtbf_device_s: 240.0,
        restart_s: 0.0,
        reread: 1.0,
    };

    #[test]
    fn parts_in_series_fail_as_the_paper_says() {
        assert!((MACHINE.mtbf_s(Part::Whole) - 150.0).abs() < 1e-9);
        assert!((in_series([300.0, 300.0, 300.0]) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn bytes_of_the_device_take_the_bus_and_the_storage() {
        assert_eq!(MACHINE.write_ns(Part::Whole, 100_000_000, 400_000_000), 5_100_000_000);
        assert_eq!(MACHINE.write_ns(Part::Host, 100_000_000, 400_000_000), 1_000_000_000);
        assert_eq!(MACHINE.write_ns(Part::Device, 100_000_000, 400_000_000), 4_100_000_000);
    }

    #[test]
    fn absurd_machines_are_refused() {
        for machine in [
            Machine { storage_bytes_per_s: 0.0, ..MACHINE },
            Machine { bus_bytes_per_s: -1.0, ..MACHINE },
            Machine { mtbf_host_s: f64::NAN, ..MACHINE },
            Machine { mtbf_host_s: f64::INFINITY, ..MACHINE },
            Machine { restart_s: -1.0, ..MACHINE },
        ] {
            assert!(machine.check().is_err(), "{machine:?}");
        }
        assert_eq!(MACHINE.check(), Ok(()));
    }
}
