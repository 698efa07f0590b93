//! Who sends: the same for traces and for metrics.

use opentelemetry::KeyValue;
use opentelemetry_sdk::{
    Resource,
    trace::{IdGenerator as _, RandomIdGenerator},
};

use crate::telemetry::traces;

/// The process as a resource, with `OTEL_RESOURCE_ATTRIBUTES`.
#[derive(Clone, Debug)]
pub struct Sender(pub(in crate::telemetry) Resource);

impl Sender {
    /// The process by its settings. An instance without an id gets one that nobody else has.
    pub fn new(args: &traces::Args) -> Self {
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
        Self(
            Resource::builder()
                .with_service_name(args.tracing_service_name.clone())
                .with_attributes(attributes)
                .build(),
        )
    }
}
