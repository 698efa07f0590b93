//! Durations in rules: Go's form, in whole microseconds.

use crate::go_values;

/// Microseconds; what is wrong with the text otherwise.
pub(super) fn micros(text: &str) -> Result<u64, &'static str> {
    const SHAPE: &str =
        "a duration is a number with a unit (us, ms, s, m, h), such as 30s, 250ms or 1h30m";
    let time = go_values::duration(text).map_err(|_| SHAPE)?;
    if !time.as_nanos().is_multiple_of(1_000) {
        return Err("a duration is a whole number of microseconds");
    }
    u64::try_from(time.as_micros()).map_err(|_| SHAPE)
}

#[cfg(test)]
mod tests {
    use super::micros;

    #[test]
    fn durations_are_those_of_go() {
        for (text, expected) in [
            ("30s", 30_000_000),
            ("1h30m", 5_400_000_000),
            ("1.5s", 1_500_000),
            (".5s", 500_000),
            ("250ms", 250_000),
            ("1m0.25s", 60_250_000),
            ("5µs", 5),
            ("8760h", crate::algorithm::MAX_WINDOW),
        ] {
            assert_eq!(micros(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "30",
            "s",
            "1.2.3s",
            "1d",
            "-5s",
            "5 s",
            "1500ns",
            "9999999999999999999s",
            "1s2",
            ".",
        ] {
            assert!(micros(text).is_err(), "{text}");
        }
    }
}
