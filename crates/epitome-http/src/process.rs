//! Metrics of the process. They have the same names as in the client libraries of Prometheus. They exist only on Linux,
//! because they are read from `/proc`.

use std::fs::{read_dir, read_to_string};

/// Number of clock ticks per second, the unit of times in `/proc`. This number (`USER_HZ`) is 100 on all architectures
/// for which Epitome is built.
const TICKS_PER_SECOND: f64 = 100.0;

/// Renders the metrics of this process in the Prometheus text format. Leaves out metrics that cannot be read.
pub(crate) fn render() -> String {
    let stat = read_to_string("/proc/self/stat").ok().and_then(|text| Stat::parse(&text));
    let boot = || read_to_string("/proc/stat").ok().and_then(|text| boot_seconds(&text));
    let start = stat.as_ref().and_then(|stat| Some(boot()? + stat.start_seconds));
    let resident = || resident_bytes(&read_to_string("/proc/self/status").ok()?);
    let max_fds = || max_open_files(&read_to_string("/proc/self/limits").ok()?);
    let metrics = [
        (
            "process_cpu_seconds_total",
            "counter",
            "CPU time used by the process, in user and system mode",
            stat.map(|stat| stat.cpu_seconds),
        ),
        ("process_resident_memory_bytes", "gauge", "Resident memory of the process", resident()),
        ("process_open_fds", "gauge", "Open file descriptors of the process", open_files()),
        ("process_max_fds", "gauge", "Limit of open file descriptors of the process", max_fds()),
        (
            "process_start_time_seconds",
            "gauge",
            "When the process started, in seconds since 1970-01-01 UTC",
            start,
        ),
    ];
    let mut text = String::new();
    for (name, kind, help, value) in metrics {
        if let Some(value) = value {
            text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
        }
    }
    text
}

/// The times in `/proc/self/stat`.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_seconds: f64,
    /// When the process started, in seconds since the system started.
    start_seconds: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may contain spaces and parentheses.
        let (_, fields) = text.rsplit_once(") ")?;
        // The manual page proc(5) counts fields from 1. The first field of this text is field 3.
        let seconds = |field: usize| {
            let ticks: f64 = fields.split_ascii_whitespace().nth(field - 3)?.parse().ok()?;
            Some(ticks / TICKS_PER_SECOND)
        };
        Some(Self { cpu_seconds: seconds(14)? + seconds(15)?, start_seconds: seconds(22)? })
    }
}

/// Returns when the system started, in seconds since 1970, from `/proc/stat`.
fn boot_seconds(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Returns the resident memory from `/proc/self/status`, in bytes.
fn resident_bytes(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024.0)
}

/// Returns the soft limit of open files from `/proc/self/limits`; `None` if their number is unlimited.
fn max_open_files(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Counts the open files.
#[expect(clippy::cast_precision_loss, reason = "a process has far fewer than 2^52 open files")]
fn open_files() -> Option<f64> {
    // The list also contains the folder itself, which is open while it is read. So one is subtracted.
    Some(read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_and_start_time_are_read_also_with_an_odd_program_name() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 12345 0 0";
        let expected = Stat { cpu_seconds: 2.0, start_seconds: 123.45 };
        assert_eq!(Stat::parse(&format!("42 (epitome) {fields}")), Some(expected));
        assert!(Stat::parse(&format!("42 (a) b (c) {fields}")).is_some());
        for text in ["", "42 (epitome)", "42 (epitome) S 1 2"] {
            assert_eq!(Stat::parse(text), None, "{text}");
        }
        assert_eq!(boot_seconds("cpu 1 2\nbtime 1794709024\nprocesses 3\n"), Some(1_794_709_024.0));
    }

    #[test]
    fn memory_and_limits_are_in_bytes_and_files() {
        assert_eq!(resident_bytes("VmSize:\t  99 kB\nVmRSS:\t    1024 kB\n"), Some(1_048_576.0));
        let limits =
            |soft| format!("Max open files            {soft}                 524288               files\n");
        assert_eq!(max_open_files(&limits("1024")), Some(1_024.0));
        assert_eq!(max_open_files(&limits("unlimited")), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn all_metrics_of_this_process_can_be_read() {
        let text = render();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 100_000.0);
        assert!((3.0..=value("process_max_fds")).contains(&value("process_open_fds")));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((now - 3_600.0..now + 2.0).contains(&value("process_start_time_seconds")), "{text}");
        assert!(value("process_cpu_seconds_total") >= 0.0);
    }
}
