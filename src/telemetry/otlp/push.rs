//! Sends the metrics to a collector, on the runtime of the admin ports and never on a decision's way. A collector that
//! is slow or gone costs the exports, and one line of the log a minute.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, header::CONTENT_TYPE};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry_http::HttpClient;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_proto::{
    tonic::{
        collector::metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_client::MetricsServiceClient,
        },
        resource::v1::Resource,
    },
    transform::common::tonic::ResourceAttributesWithSchema,
};
use prometheus_client::{
    collector::Collector as Collect,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
};
use prost::Message as _;
use tokio::{
    sync::mpsc::{self, Receiver, Sender as Told},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};
use tonic::{metadata::MetadataMap, transport::Channel};

use super::{
    Sender,
    args::{Args, Protocol},
    collector::{Collector, NotStarted, PATIENCE, chain},
    messages::{Times, messages},
};
use crate::{
    telemetry::{metrics::Metrics, throttle::Throttle},
    time::Clock,
};

/// Exports by what became of them.
#[derive(Debug, Default)]
pub(in crate::telemetry) struct Exports {
    exported: AtomicU64,
    failed: AtomicU64,
}

/// The task that sends.
#[derive(Debug)]
pub struct Pushing {
    task: JoinHandle<()>,
    stop: Told<()>,
}

impl Pushing {
    /// Starts to send `metrics`, on this runtime. `protocol` is how where no setting of OpenTelemetry's says.
    ///
    /// # Errors
    /// A collector that cannot be one.
    pub fn start(
        args: &Args,
        protocol: Protocol,
        sender: &Sender,
        metrics: Arc<Metrics>,
    ) -> Result<Self, NotStarted> {
        let collector = args.of_metrics(protocol);
        let line = match collector.protocol() {
            Protocol::Http => Line::Http(Box::new(collector.http()?), collector.header_map()?),
            Protocol::Grpc => {
                let client = MetricsServiceClient::new(collector.channel()?);
                Line::Grpc(client, collector.metadata()?)
            }
        };
        let attributes = ResourceAttributesWithSchema::from(&sender.0);
        let room = Room {
            line,
            collector,
            resource: Resource {
                attributes: attributes.attributes.0,
                ..Resource::default()
            },
            exports: Arc::default(),
            metrics,
            start: nanos(SystemTime::now()),
            complaints: Throttle::by_the_minute(Clock::system()),
        };
        room.metrics.show_exports(Arc::clone(&room.exports));
        let (stop, stopped) = mpsc::channel(1);
        let every = args.otel_metric_export_interval.0;
        let task = tokio::spawn(room.run(every, stopped));
        Ok(Self { task, stop })
    }

    /// Sends a last time, for so long at most, and ends.
    pub async fn finish(mut self, patience: Duration) {
        // An error says the same: it has ended.
        let _ = self.stop.try_send(());
        if timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

enum Line {
    Http(Box<HyperClient<HttpsConnector<HttpConnector>>>, HeaderMap),
    Grpc(MetricsServiceClient<Channel>, MetadataMap),
}

struct Room {
    line: Line,
    collector: Collector,
    resource: Resource,
    exports: Arc<Exports>,
    metrics: Arc<Metrics>,
    start: u64,
    complaints: Throttle,
}

impl Room {
    async fn run(mut self, every: Duration, mut stopped: Receiver<()>) {
        let mut due = interval_at(Instant::now() + every, every);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_last = false;
        while !is_last {
            tokio::select! {
                _ = stopped.recv() => is_last = true,
                _ = due.tick() => {}
            }
            self.export().await;
        }
    }

    async fn export(&mut self) {
        let times = Times {
            start: self.start,
            now: nanos(SystemTime::now()),
        };
        for message in messages(&self.metrics.prometheus(), &self.resource, times) {
            let sent = timeout(PATIENCE, self.send(message)).await;
            let cause = match sent {
                Ok(Ok(())) => {
                    self.exports.exported.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Ok(Err(cause)) => cause,
                Err(_) => "no answer in time".to_owned(),
            };
            self.exports.failed.fetch_add(1, Ordering::Relaxed);
            if let Some(not_shown) = self.complaints.pass() {
                let collector = self.collector.shown();
                tracing::warn!(
                    cause,
                    collector,
                    not_shown,
                    "metrics do not reach their collector"
                );
            }
            // The other messages would fare no better, and the next export says all of it again.
            return;
        }
    }

    async fn send(&mut self, message: ExportMetricsServiceRequest) -> Result<(), String> {
        let answer = match &mut self.line {
            Line::Http(client, headers) => {
                let mut request = Request::post(self.collector.endpoint())
                    .body(Bytes::from(message.encode_to_vec()))
                    .map_err(|error| error.to_string())?;
                *request.headers_mut() = headers.clone();
                let protobuf = HeaderValue::from_static("application/x-protobuf");
                request.headers_mut().insert(CONTENT_TYPE, protobuf);
                let answer = client.send_bytes(request).await;
                let answer = answer.map_err(|error| chain(&*error))?;
                if !answer.status().is_success() {
                    return Err(format!("the collector answers {}", answer.status()));
                }
                ExportMetricsServiceResponse::decode(answer.into_body())
                    .map_err(|error| error.to_string())?
            }
            Line::Grpc(client, metadata) => {
                let mut request = tonic::Request::new(message);
                *request.metadata_mut() = metadata.clone();
                let answer = client.export(request).await;
                answer.map_err(|status| chain(&status))?.into_inner()
            }
        };
        match answer.partial_success {
            Some(partial) if partial.rejected_data_points > 0 => Err(format!(
                "the collector refuses {} points: {}",
                partial.rejected_data_points, partial.error_message
            )),
            _ => Ok(()),
        }
    }
}

/// Counts of the exports, where metrics are sent.
#[derive(Debug)]
pub(in crate::telemetry) struct ExportCounts(pub(in crate::telemetry) Arc<OnceLock<Arc<Exports>>>);

impl Collect for ExportCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(exports) = self.0.get() else {
            return Ok(());
        };
        let mut family = encoder.encode_descriptor(
            "palang_metric_exports",
            "Messages with metrics to the collector, by what became of them",
            None,
            MetricType::Counter,
        )?;
        for (result, count) in [("exported", &exports.exported), ("failed", &exports.failed)] {
            family
                .encode_family(&[("result", result)])?
                .encode_counter::<NoLabelSet, u64, f64>(&count.load(Ordering::Relaxed), None)?;
        }
        Ok(())
    }
}

fn nanos(time: SystemTime) -> u64 {
    // Far from the year 2554, where nanoseconds end; before 1970 it is no time to tell.
    time.duration_since(UNIX_EPOCH).map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}
