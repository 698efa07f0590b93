//! Names of spans and attributes. The conventions for RPC and Redis are not stable yet: what changes, changes here.

/// The method of the one call there is, which is also its span's name.
pub(in crate::telemetry) const METHOD: &str =
    "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Span of what a call waits for.
pub(super) const STORE_SPAN: &str = "take counters";

pub(super) const RPC_SYSTEM: &str = "rpc.system.name";
pub(super) const RPC_METHOD: &str = "rpc.method";
pub(super) const RPC_STATUS: &str = "rpc.response.status_code";
pub(super) const DB_SYSTEM: &str = "db.system.name";
pub(super) const DB_OPERATION: &str = "db.operation.name";
pub(super) const DB_STATUS: &str = "db.response.status_code";
pub(super) const ERROR_TYPE: &str = "error.type";

pub(super) const DOMAIN: &str = "palang.domain";
pub(super) const CODE: &str = "palang.code";
pub(super) const RULE: &str = "palang.rule";
pub(super) const DESCRIPTORS: &str = "palang.descriptors";
pub(super) const COUNTERS: &str = "palang.counters";
pub(super) const REQUESTS: &str = "palang.requests";

/// Statuses that are a server's fault.
pub(super) const SERVER_ERRORS: [&str; 6] = [
    "UNKNOWN",
    "DEADLINE_EXCEEDED",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
];
