//! One statistic as statsd reads it: `name:value|kind`, with a sample rate and DogStatsD's tags where there are any.
//! Cadence writes it; what it takes for granted, a name that ends where it ends, is made so here.

use std::fmt::Write as _;

use cadence::{
    Counted as _, Gauged as _, Metric, MetricBuilder, MetricResult, NopMetricSink, StatsdClient,
    Timed as _,
    ext::{MetricValue, ToTimerValue},
};

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

/// Writes lines. They are sent by their pieces, so that it is known which of them were.
#[derive(Debug)]
pub(super) struct Writer(StatsdClient);

impl Default for Writer {
    fn default() -> Self {
        Self(StatsdClient::from_sink("", NopMetricSink))
    }
}

/// A time in parts of milliseconds too: the library's own are whole ones.
struct Millis(f64);

impl ToTimerValue for Millis {
    fn try_to_value(self) -> MetricResult<MetricValue> {
        Ok(MetricValue::Float(self.0))
    }
}

impl Writer {
    /// The line, without its end; `None` for a value that statsd has no form for, which none of ours is.
    pub(super) fn line(&self, options: &Options, name: &str, value: Value) -> Option<String> {
        let (name, tags) = match &options.dog {
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
        match value {
            Value::Counter(delta) => written(self.0.count_with_tags(&name, delta), &tags),
            Value::Gauge(now) => written(self.0.gauge_with_tags(&name, now), &tags),
            Value::Timer { millis, rate } => {
                let timer = self.0.time_with_tags(&name, Millis(millis));
                let timer = if rate < 1.0 {
                    timer.with_sampling_rate(rate)
                } else {
                    timer
                };
                written(timer, &tags)
            }
        }
    }
}

fn written<'t, M: Metric + From<String>>(
    mut metric: MetricBuilder<'t, '_, M>,
    tags: &'t [String],
) -> Option<String> {
    for tag in tags {
        metric = metric.with_tag_value(tag);
    }
    Some(metric.try_send().ok()?.as_metric_str().to_owned())
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
                "a.b.__az=1_a.__env=x_y:12|ms|@0.5",
            ),
        ] {
            let line = Writer::default().line(&options, "a.b", value);
            assert_eq!(line.as_deref(), Some(expected));
        }
        options.dog = Some(Mogrifiers::default());
        let line = Writer::default().line(&options, "a\nb", Value::Counter(1));
        assert_eq!(line.as_deref(), Some("a_b:1|c|#az:1.a,env:x:y"));
    }
}
