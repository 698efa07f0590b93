//! Settings values as Go programs write them: booleans, durations, addresses. Knows no setting by name.
//!
//! A deployment made for envoyproxy/ratelimit brings such values along (`REDIS_TIMEOUT=150ms`,
//! `PROMETHEUS_ADDR=:19001`, `MERGE_DOMAIN_CONFIG=T`), so they have to mean the same here. Each error says what is
//! allowed: the command line puts the variable's name and the value in front of it.

use std::{fmt, time::Duration};

use crate::secret::Secret;

/// Why a value was refused: what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

impl Malformed {
    /// A value that is not `allowed`.
    pub fn new(allowed: impl Into<String>) -> Self {
        Self(allowed.into())
    }
}

/// Anything, kept out of sight.
///
/// # Errors
/// Never.
pub fn secret(text: &str) -> Result<Secret, Malformed> {
    Ok(Secret::from(text))
}

/// A boolean as Go's `strconv.ParseBool` reads it.
///
/// # Errors
/// Any other text.
pub fn boolean(text: &str) -> Result<bool, Malformed> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(Malformed::new(
            "expected true or false (or 1, t, T, 0, f, F)",
        )),
    }
}

/// A whole number as Go's `strconv.ParseUint(_, 0, 64)` reads it: `0x`, `0o`, `0b` and a leading `0` choose the base,
/// `_` may stand between digits.
///
/// # Errors
/// Text that is not such a number, or one that is too large.
pub fn integer(text: &str) -> Result<u64, Malformed> {
    let wrong = || Malformed::new("expected a whole number, such as 8080");
    let (digits, base) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', b'o' | b'O', ..] => (&text[2..], 8),
        [b'0', b'b' | b'B', ..] => (&text[2..], 2),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    if digits.is_empty() || digits.starts_with(['+', '-']) || digits.ends_with('_') {
        return Err(wrong());
    }
    u64::from_str_radix(&digits.replace('_', ""), base).map_err(|_| wrong())
}

/// A TCP port; 0 lets the system choose one.
///
/// # Errors
/// Text that is not a number from 0 to 65535.
pub fn port(text: &str) -> Result<u16, Malformed> {
    integer(text)
        .ok()
        .and_then(|port| u16::try_from(port).ok())
        .ok_or_else(|| Malformed::new("expected a port, 0 to 65535"))
}

/// A number of things, of which there must be at least one.
///
/// # Errors
/// Text that is not a whole number from 1 on.
pub fn count(text: &str) -> Result<usize, Malformed> {
    integer(text)
        .ok()
        .and_then(|count| usize::try_from(count).ok())
        .filter(|&count| count > 0)
        .ok_or_else(|| Malformed::new("expected a whole number, at least 1"))
}

/// A duration as Go's `time.ParseDuration` reads it: `10s`, `150us`, `1h30m`, `1.5s`, `0`. Not negative.
///
/// # Errors
/// A number without a unit, an unknown unit, or a negative one.
pub fn duration(text: &str) -> Result<Duration, Malformed> {
    let wrong = || {
        Malformed::new(
            "expected a duration such as 10s, 150us, 1h30m or 0 (units ns, us, ms, s, m, h)",
        )
    };
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(wrong)?;
        let (digits, tail) = rest.split_at(number);
        let unit = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let scale: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(wrong()),
        };
        nanos += scaled(digits, scale).ok_or_else(wrong)?;
        rest = tail;
    }
    // Go's own bound: an int64 of nanoseconds, about 292 years.
    let nanos = u64::try_from(nanos)
        .ok()
        .filter(|&nanos| i64::try_from(nanos).is_ok())
        .ok_or_else(wrong)?;
    Ok(Duration::from_nanos(nanos))
}

/// A time that bounds something, of which Go programs let 0 mean that there is no bound: a year, then.
///
/// # Errors
/// As [`duration`].
pub fn bound(text: &str) -> Result<Duration, Malformed> {
    let time = duration(text)?;
    Ok(if time.is_zero() { UNBOUNDED } else { time })
}

/// Longer than any process waits, and short enough to be added to any time.
const UNBOUNDED: Duration = Duration::from_secs(365 * 24 * 3_600);

/// `digits` (with or without a fraction) times `scale`, without going through a float.
fn scaled(digits: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || digits.len() > 30 {
        return None;
    }
    let number = |text: &str| {
        if text.is_empty() {
            Some(0)
        } else {
            text.parse::<u128>().ok()
        }
    };
    // More digits than nanoseconds can hold change nothing.
    let fraction = &fraction[..fraction.len().min(15)];
    let power = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    number(whole)?
        .checked_mul(scale)?
        .checked_add(number(fraction)?.checked_mul(scale)? / power)
}

/// A host and a port as Go's `net.Listen` takes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Empty: every interface, over IPv6 and IPv4.
    pub host: String,
    /// 0: the system chooses.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// `host:port`, `:port`, `[::1]:port`.
///
/// # Errors
/// Text without a port, or an IPv6 address without brackets.
pub fn address(text: &str) -> Result<Address, Malformed> {
    let wrong = || Malformed::new("expected host:port, :port or [ipv6]:port");
    let (host, port_text) = text.rsplit_once(':').ok_or_else(wrong)?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']').ok_or_else(wrong)?,
        None if host.contains([':', ']']) => return Err(wrong()),
        None => host,
    };
    Ok(Address {
        host: host.to_owned(),
        port: port(port_text).map_err(|_| wrong())?,
    })
}

/// A host without a port: a name, an IPv4 or an IPv6 address, the latter with or without brackets.
///
/// # Errors
/// Text with a space, a slash or unpaired brackets.
pub fn host(text: &str) -> Result<String, Malformed> {
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']'),
        None => Some(text),
    };
    bare.filter(|host| !host.contains(|c: char| c.is_whitespace() || "/[]".contains(c)))
        .map(str::to_owned)
        .ok_or_else(|| {
            Malformed::new("expected a host name or an IP address, such as 0.0.0.0 or ::")
        })
}

/// A time that can be waited for, such as `15ms`.
///
/// # Errors
/// What is no duration, or less than a microsecond.
pub fn patience(text: &str) -> Result<Duration, Malformed> {
    duration(text)
        .ok()
        .filter(|time| time.as_micros() > 0)
        .ok_or_else(|| Malformed::new("expected a duration of at least 1us, such as 15ms"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_gos() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(boolean(text), Ok(true), "{text}");
        }
        for text in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(boolean(text), Ok(false), "{text}");
        }
        for text in ["", "yes", "on", "tRUE", " true"] {
            assert!(boolean(text).is_err(), "{text}");
        }
    }

    #[test]
    fn integers_choose_their_base() {
        for (text, number) in [
            ("0", 0),
            ("8080", 8080),
            ("0x10", 16),
            ("010", 8),
            ("0b11", 3),
            ("1_000", 1000),
        ] {
            assert_eq!(integer(text), Ok(number), "{text}");
        }
        for text in [
            "",
            "-1",
            "+1",
            "1.0",
            "x",
            "0x",
            "18446744073709551616",
            "1_",
        ] {
            assert!(integer(text).is_err(), "{text}");
        }
        assert_eq!(port("65535"), Ok(65535));
        assert!(port("65536").is_err());
        assert!(count("0").is_err());
    }

    #[test]
    fn durations_are_gos() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("10s", 10_000_000_000),
            ("150us", 150_000),
            ("150µs", 150_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1m0.25s", 60_250_000_000),
            ("15ms", 15_000_000),
            ("+1ns", 1),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "10",
            "-1s",
            "1d",
            "s",
            ".s",
            "1s1",
            "1..5s",
            "9999999999h",
            "1 s",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_bound_of_0_is_none() {
        assert_eq!(bound("150ms"), Ok(Duration::from_millis(150)));
        assert!(bound("0").is_ok_and(|time| time > Duration::from_secs(24 * 3_600)));
        assert_eq!(bound("0s"), bound("0"));
        assert!(bound("-1s").is_err());
    }

    #[test]
    fn addresses_have_a_port() {
        for (text, host, port) in [
            (":9090", "", 9090),
            ("127.0.0.1:0", "127.0.0.1", 0),
            ("[::1]:80", "::1", 80),
            ("[::]:80", "::", 80),
            ("localhost:6070", "localhost", 6070),
        ] {
            let address = address(text).unwrap();
            assert_eq!(
                (address.host.as_str(), address.port),
                (host, port),
                "{text}"
            );
        }
        for text in ["", "9090", "::1:80", "[::1:80", "host:", "host:http"] {
            assert!(address(text).is_err(), "{text}");
        }
        assert_eq!(host("[::1]"), Ok("::1".to_owned()));
        assert!(host("http://x").is_err());
    }
}
