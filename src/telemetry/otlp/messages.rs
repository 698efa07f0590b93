//! The page as OTLP: counters as monotonic sums since the start, gauges, and histograms with their bounds.

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value::Value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
        ResourceMetrics, ScopeMetrics, Sum, metric::Data, number_data_point,
    },
    resource::v1::Resource,
};

use super::page::{self, Family, Sample};

/// Most points of one message: collectors take 4 MiB over gRPC unless told otherwise.
const POINTS: usize = 5_000;

/// The time of a page, nanoseconds since the epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// When counting began.
    pub(super) start: u64,
    /// When the page was made.
    pub(super) now: u64,
}

/// The messages that say what the page says.
pub(super) fn messages(
    page: &str,
    resource: &Resource,
    times: Times,
) -> Vec<ExportMetricsServiceRequest> {
    let mut messages = Vec::new();
    let (mut metrics, mut points) = (Vec::new(), 0);
    for family in page::families(page) {
        for samples in parts(&family) {
            if points > 0 && points + samples.len() > POINTS {
                messages.push(message(std::mem::take(&mut metrics), resource));
                points = 0;
            }
            points += samples.len();
            metrics.push(metric(&family, samples, times));
        }
    }
    if !metrics.is_empty() {
        messages.push(message(metrics, resource));
    }
    messages
}

/// The lines of a metric, in parts that a message holds. The lines of one point of a histogram stay together; all its
/// points have as many.
fn parts<'f, 'p>(family: &'f Family<'p>) -> std::slice::Chunks<'f, Sample<'p>> {
    let lines = &family.samples;
    let is_count = |line: &&Sample<'_>| line.name.strip_prefix(family.name) == Some("_count");
    let together = match lines.iter().filter(is_count).count() {
        0 => 1,
        points => (lines.len() / points).max(1),
    };
    lines.chunks((POINTS / together).max(1) * together)
}

fn message(metrics: Vec<Metric>, resource: &Resource) -> ExportMetricsServiceRequest {
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource.clone()),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "palang".to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    ..InstrumentationScope::default()
                }),
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
}

fn metric(family: &Family<'_>, samples: &[Sample<'_>], times: Times) -> Metric {
    let numbers = || samples.iter().map(|sample| number(sample, times)).collect();
    let data = match family.kind {
        // The page calls the reference's counters untyped, because their names lack `_total`.
        "counter" | "untyped" => Data::Sum(Sum {
            data_points: numbers(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        }),
        "histogram" => Data::Histogram(Histogram {
            data_points: histograms(family.name, samples, times),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
        }),
        _ => Data::Gauge(Gauge {
            data_points: numbers(),
        }),
    };
    Metric {
        name: family.name.to_owned(),
        description: family.help.trim_end_matches('.').to_owned(),
        unit: unit(family.name).to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// The unit that a name ends with, as UCUM writes it.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    for (suffix, unit) in [("_seconds", "s"), ("_bytes", "By"), ("_ratio", "1")] {
        if name.ends_with(suffix) {
            return unit;
        }
    }
    ""
}

fn number(sample: &Sample<'_>, times: Times) -> NumberDataPoint {
    let value = match sample.value.parse::<i64>() {
        Ok(whole) => number_data_point::Value::AsInt(whole),
        Err(_) => number_data_point::Value::AsDouble(float(sample.value)),
    };
    NumberDataPoint {
        attributes: attributes(&sample.labels),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        value: Some(value),
        ..NumberDataPoint::default()
    }
}

/// The points of a histogram, from lines whose buckets hold all below them.
fn histograms(name: &str, samples: &[Sample<'_>], times: Times) -> Vec<HistogramDataPoint> {
    let mut points: Vec<(Vec<(&str, String)>, HistogramDataPoint)> = Vec::new();
    for sample in samples {
        let mut labels = sample.labels.clone();
        let mut bound = None;
        labels.retain(|(label, value)| {
            let is_bound = *label == "le";
            if is_bound {
                bound = Some(float(value));
            }
            !is_bound
        });
        if points.last().is_none_or(|(last, _)| *last != labels) {
            let point = HistogramDataPoint {
                attributes: attributes(&labels),
                start_time_unix_nano: times.start,
                time_unix_nano: times.now,
                ..HistogramDataPoint::default()
            };
            points.push((labels, point));
        }
        let Some((_, point)) = points.last_mut() else {
            continue;
        };
        match (sample.name.strip_prefix(name), bound) {
            (Some("_sum"), _) => point.sum = Some(float(sample.value)),
            (Some("_count"), _) => point.count = whole(sample.value),
            (Some("_bucket"), Some(bound)) => {
                let below: u64 = point.bucket_counts.iter().sum();
                let here = whole(sample.value).saturating_sub(below);
                point.bucket_counts.push(here);
                if bound.is_finite() {
                    point.explicit_bounds.push(bound);
                }
            }
            _ => {}
        }
    }
    points.into_iter().map(|(_, point)| point).collect()
}

/// We wrote it ourselves; what makes no sense shows as that.
fn float(text: &str) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}

fn whole(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

fn attributes(labels: &[(&str, String)]) -> Vec<KeyValue> {
    labels
        .iter()
        .map(|(name, value)| KeyValue {
            key: (*name).to_owned(),
            value: Some(AnyValue {
                value: Some(Value::StringValue(value.clone())),
            }),
            ..KeyValue::default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { start: 1, now: 2 };

    #[test]
    fn a_long_page_is_told_in_several_messages() {
        let mut page = String::from("# TYPE a_total counter\n");
        for number in 0..2 * POINTS + 1 {
            page.push_str(&format!("a_total{{x=\"{number}\"}} {number}\n"));
        }
        page.push_str("# TYPE b gauge\nb 1\n");
        let messages = messages(&page, &Resource::default(), TIMES);
        assert_eq!(messages.len(), 3);
        let names = |message: &ExportMetricsServiceRequest| -> Vec<String> {
            let metrics = &message.resource_metrics[0].scope_metrics[0].metrics;
            metrics.iter().map(|metric| metric.name.clone()).collect()
        };
        assert_eq!(names(&messages[2]), ["a_total", "b"]);
    }

    #[test]
    fn a_point_of_a_histogram_is_never_torn() {
        let mut page = String::from("# TYPE h histogram\n");
        for number in 0..POINTS {
            page.push_str(&format!(
                "h_sum{{k=\"{number}\"}} 1\nh_count{{k=\"{number}\"}} 1\nh_bucket{{k=\"{number}\",le=\"+Inf\"}} 1\n"
            ));
        }
        let messages = messages(&page, &Resource::default(), TIMES);
        let points = messages.iter().map(|message| {
            let metric = &message.resource_metrics[0].scope_metrics[0].metrics[0];
            match &metric.data {
                Some(Data::Histogram(histogram)) => histogram.data_points.len(),
                other => panic!("{other:?}"),
            }
        });
        let points: Vec<usize> = points.collect();
        assert!(points.len() > 1);
        assert_eq!(points.iter().sum::<usize>(), POINTS, "{points:?}");
    }

    #[test]
    fn a_bucket_holds_only_what_is_its_own() {
        let page = "# TYPE h_seconds histogram\nh_seconds_sum{k=\"v\"} 1.5\nh_seconds_count{k=\"v\"} 4\n\
                    h_seconds_bucket{k=\"v\",le=\"0.1\"} 1\nh_seconds_bucket{k=\"v\",le=\"1.0\"} 3\n\
                    h_seconds_bucket{k=\"v\",le=\"+Inf\"} 4\n";
        let messages = messages(page, &Resource::default(), TIMES);
        let metric = &messages[0].resource_metrics[0].scope_metrics[0].metrics[0];
        assert_eq!(metric.unit, "s");
        let Some(Data::Histogram(histogram)) = &metric.data else {
            panic!("{metric:?}");
        };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum), (4, Some(1.5)));
        assert_eq!(point.bucket_counts, [1, 2, 1]);
        assert_eq!(point.explicit_bounds, [0.1, 1.0]);
        assert_eq!(point.attributes.len(), 1);
    }
}
