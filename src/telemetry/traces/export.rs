//! Sends spans to a collector, beside everything else: a call puts its span into a bounded box and goes on. A collector
//! that is slow or gone costs the spans, never a call, and one line of the log a minute.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol as Encoding, SpanExporter, WithExportConfig as _,
};
use opentelemetry_sdk::{
    Resource,
    trace::{IdGenerator as _, RandomIdGenerator, SpanData, SpanExporter as _},
};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{Args, Protocol, Traces};
use crate::time::{Clock, SECOND, Timestamp};

/// Most spans that wait to be sent.
const ROOM: usize = 4_096;

/// Most spans in one message.
const BATCH: usize = 512;

/// How long the first span of a message waits for others.
const GATHER: Duration = Duration::from_millis(500);

/// Longest time a collector may take for a message.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two lines of the log about a collector.
const QUIET: u64 = 60 * SECOND;

/// The exporter cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("OTEL_EXPORTER_OTLP_ENDPOINT cannot be used: {0}")]
pub struct NotStarted(#[from] ExporterBuildError);

/// Spans on their way out.
#[derive(Debug)]
pub(super) struct Outbox {
    spans: Sender<SpanData>,
    pub(super) scope: InstrumentationScope,
    pub(super) exported: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// The task that sends.
#[derive(Debug)]
pub struct Exporting {
    task: JoinHandle<()>,
    stop: Sender<()>,
}

impl Outbox {
    pub(super) fn send(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Traces {
    /// Starts to send traces, on this runtime.
    ///
    /// # Errors
    /// An endpoint that is no address.
    pub fn start(args: &Args) -> Result<(Arc<Self>, Exporting), NotStarted> {
        let mut exporter = exporter(args)?;
        exporter.set_resource(&resource(args));
        let (spans, waiting) = mpsc::channel(ROOM);
        let (stop, stopped) = mpsc::channel(1);
        let clock = Clock::system();
        let outbox = Arc::new(Outbox {
            spans,
            scope: InstrumentationScope::builder("palang")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
            exported: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let task = tokio::spawn(run(
            exporter,
            waiting,
            stopped,
            Arc::clone(&outbox),
            clock.clone(),
        ));
        let traces = Arc::new(Self {
            outbox,
            rate: args.tracing_sampling_rate,
            clock,
        });
        Ok((traces, Exporting { task, stop }))
    }
}

impl Exporting {
    /// Sends what waits, for so long at most, and ends.
    pub async fn finish(mut self, patience: Duration) {
        // An error says the same: it has ended.
        let _ = self.stop.try_send(());
        if timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

async fn run(
    exporter: SpanExporter,
    mut waiting: Receiver<SpanData>,
    mut stopped: Receiver<()>,
    outbox: Arc<Outbox>,
    clock: Clock,
) {
    let mut told: Option<Timestamp> = None;
    let mut is_last = false;
    while !is_last {
        let mut batch = Vec::new();
        tokio::select! {
            _ = stopped.recv() => is_last = true,
            Some(first) = waiting.recv() => {
                batch.push(first);
                tokio::select! {
                    _ = stopped.recv() => is_last = true,
                    () = sleep(GATHER) => {}
                }
            }
        }
        loop {
            while batch.len() < BATCH
                && let Ok(span) = waiting.try_recv()
            {
                batch.push(span);
            }
            let count = batch.len() as u64;
            if count == 0 {
                break;
            }
            let sent = timeout(PATIENCE, exporter.export(std::mem::take(&mut batch))).await;
            let cause = match sent {
                Ok(Ok(())) => {
                    outbox.exported.fetch_add(count, Ordering::Relaxed);
                    continue;
                }
                Ok(Err(cause)) => cause.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            outbox.failed.fetch_add(count, Ordering::Relaxed);
            let now = clock.now();
            let is_due = told.is_none_or(|told| now.as_micros() - told.as_micros() >= QUIET);
            if is_due {
                told = Some(now);
                let lost = outbox.failed.load(Ordering::Relaxed);
                tracing::warn!(cause, lost, "traces do not reach their collector");
            }
        }
    }
}

fn exporter(args: &Args) -> Result<SpanExporter, ExporterBuildError> {
    let endpoint = args.otel_exporter_otlp_endpoint.trim_end_matches('/');
    match args.tracing_exporter_protocol {
        Protocol::Grpc => {
            let exporter = SpanExporter::builder().with_tonic().with_timeout(PATIENCE);
            if endpoint.is_empty() {
                exporter.build()
            } else {
                exporter.with_endpoint(endpoint).build()
            }
        }
        Protocol::Http => {
            let exporter = SpanExporter::builder()
                .with_http()
                .with_protocol(Encoding::HttpBinary)
                .with_timeout(PATIENCE);
            if endpoint.is_empty() {
                exporter.build()
            } else {
                exporter
                    .with_endpoint(format!("{endpoint}/v1/traces"))
                    .build()
            }
        }
    }
}

/// Who sends.
fn resource(args: &Args) -> Resource {
    let instance = if args.tracing_service_instance_id.is_empty() {
        RandomIdGenerator::default().new_trace_id().to_string()
    } else {
        args.tracing_service_instance_id.clone()
    };
    let mut attributes = vec![
        KeyValue::new("service.instance.id", instance),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
    ];
    if !args.tracing_service_namespace.is_empty() {
        let namespace = args.tracing_service_namespace.clone();
        attributes.push(KeyValue::new("service.namespace", namespace));
    }
    Resource::builder()
        .with_service_name(args.tracing_service_name.clone())
        .with_attributes(attributes)
        .build()
}
