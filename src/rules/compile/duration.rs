//! Durations as Go writes them: `30s`, `1h30m`, `1.5s`, `250ms`.

const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
];

/// Microseconds; what is wrong with the text otherwise.
pub(super) fn micros(text: &str) -> Result<u64, &'static str> {
    const SHAPE: &str =
        "a duration is a number with a unit (us, ms, s, m, h), such as 30s, 250ms or 1h30m";
    if text.is_empty() {
        return Err(SHAPE);
    }
    let mut nanos: u128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or(SHAPE)?;
        let (number, tail) = rest.split_at(digits);
        let letters = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit).ok_or(SHAPE)?;
        nanos = nanos
            .checked_add(scaled(number, *unit).ok_or(SHAPE)?)
            .ok_or(SHAPE)?;
        rest = tail;
    }
    if !nanos.is_multiple_of(1_000) {
        return Err("a duration is a whole number of microseconds");
    }
    u64::try_from(nanos / 1_000).map_err(|_| SHAPE)
}

/// `number * unit` nanoseconds, `None` when the number is none or has more than 18 digits on a side of its point.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || whole.len() > 18 || fraction.len() > 18 {
        return None;
    }
    let parse = |digits: &str| {
        if digits.is_empty() {
            Some(0)
        } else {
            digits.parse::<u128>().ok()
        }
    };
    let ten = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    Some(parse(whole)? * unit + parse(fraction)? * unit / ten)
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
