//! One statistic as statsd reads it: `name:value|kind`, with a sample rate and DogStatsD's tags where there are any.

use std::fmt::Write as _;

use super::{Options, mogrify};

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// What was added since the last report.
    Counter(u64),
    /// What it is now.
    Gauge(u64),
    /// Milliseconds, of which this is one of so many.
    Timer { millis: f64, rate: f64 },
}

/// The line, without its end.
pub(super) fn line(options: &Options, name: &str, value: Value) -> String {
    let (mut line, tags) = match &options.dog {
        None => (name_only(name) + &suffix(options), Vec::new()),
        Some(mogrifiers) => {
            let mogrified = mogrifiers.apply(name);
            let extra = options
                .tags
                .iter()
                .map(|(tag, value)| format!("{tag}:{}", mogrify::clean(value)));
            (
                name_only(&mogrified.name),
                extra.chain(mogrified.tags).collect(),
            )
        }
    };
    // A String takes every write.
    let _ = match value {
        Value::Counter(delta) => write!(line, ":{delta}|c"),
        Value::Gauge(now) => write!(line, ":{now}|g"),
        Value::Timer { millis, rate } if rate < 1.0 => write!(line, ":{millis}|ms|@{rate:.6}"),
        Value::Timer { millis, .. } => write!(line, ":{millis}|ms"),
    };
    if !tags.is_empty() {
        let _ = write!(line, "|#{}", tags.join(","));
    }
    line
}

/// The tags as the reference's library hangs them on a name.
fn suffix(options: &Options) -> String {
    options
        .tags
        .iter()
        .fold(String::new(), |mut text, (tag, value)| {
            let _ = write!(text, ".__{tag}={}", value.replace(['.', ':', '|'], "_"));
            text
        })
}

/// A name that ends where it ends.
fn name_only(name: &str) -> String {
    name.replace([':', '|', '\n', '\r'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::statsd::Mogrifiers;

    #[test]
    fn lines_are_the_references() {
        let mut options = Options {
            tags: vec![
                ("az".to_owned(), "1.a".to_owned()),
                ("env".to_owned(), "x:y".to_owned()),
            ],
            ..Options::default()
        };
        for (value, expected) in [
            (Value::Counter(3), "a.b.__az=1_a.__env=x_y:3|c"),
            (Value::Gauge(7), "a.b.__az=1_a.__env=x_y:7|g"),
            (
                Value::Timer {
                    millis: 0.42,
                    rate: 1.0,
                },
                "a.b.__az=1_a.__env=x_y:0.42|ms",
            ),
            (
                Value::Timer {
                    millis: 12.0,
                    rate: 0.5,
                },
                "a.b.__az=1_a.__env=x_y:12|ms|@0.500000",
            ),
        ] {
            assert_eq!(line(&options, "a.b", value), expected);
        }
        options.dog = Some(Mogrifiers::default());
        assert_eq!(
            line(&options, "a\nb", Value::Counter(1)),
            "a_b:1|c|#az:1.a,env:x:y"
        );
    }
}
