//! Microseconds as the wires show them.

use crate::time::SECOND;

/// Whole seconds, rounded up and at least 1: a caller that comes back then never comes too early.
pub(super) const fn whole_seconds(micros: u64) -> u64 {
    let seconds = micros.div_ceil(SECOND);
    if seconds == 0 { 1 } else { seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_never_zero() {
        for (micros, seconds) in [
            (0, 1),
            (1, 1),
            (SECOND, 1),
            (SECOND + 1, 2),
            (3_600 * SECOND, 3_600),
        ] {
            assert_eq!(whole_seconds(micros), seconds, "{micros}");
        }
    }
}
