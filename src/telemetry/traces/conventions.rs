//! Names of spans and attributes. The conventions for RPC and Redis are not stable yet: what changes, changes here.

/// The method of the one call there is, which is also its span's name.
pub(in crate::telemetry) const METHOD: &str =
    "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Span of a round trip to the store.
pub(super) const STORE_SPAN: &str = "take counters";

pub(super) const RPC_SYSTEM: &str = "rpc.system.name";
pub(super) const RPC_METHOD: &str = "rpc.method";
pub(super) const RPC_STATUS: &str = "rpc.response.status_code";
pub(super) const ERROR_TYPE: &str = "error.type";

pub(super) const DOMAIN: &str = "palang.domain";
pub(super) const CODE: &str = "palang.code";
pub(super) const RULE: &str = "palang.rule";
pub(super) const DESCRIPTORS: &str = "palang.descriptors";
pub(super) const COUNTERS: &str = "palang.counters";

/// Statuses that are a server's fault.
pub(super) const SERVER_ERRORS: [&str; 6] = [
    "UNKNOWN",
    "DEADLINE_EXCEEDED",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
];
