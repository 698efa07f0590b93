//! What the system says of this process, under the names every Prometheus client gives them. Linux only: elsewhere
//! nothing is written.

use std::fs;

use super::exposition::{line, typed_head};

/// Writes what can be read.
pub(super) fn write(text: &mut String) {
    if let Ok(status) = fs::read_to_string("/proc/self/status") {
        for (field, name, help) in [
            ("VmRSS:", "process_resident_memory_bytes", "Resident memory"),
            ("VmSize:", "process_virtual_memory_bytes", "Virtual memory"),
        ] {
            let kibibytes = status
                .lines()
                .find_map(|line| line.strip_prefix(field))
                .and_then(|rest| rest.split_whitespace().next())
                .and_then(|number| number.parse::<u64>().ok());
            if let Some(kibibytes) = kibibytes {
                typed_head(text, name, help, "gauge");
                line(text, name, kibibytes.saturating_mul(1_024));
            }
        }
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        let name = "process_open_fds";
        typed_head(text, name, "Open file descriptors", "gauge");
        // The listing itself holds one.
        line(text, name, open.count().saturating_sub(1));
    }
}
