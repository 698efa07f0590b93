//! envoyproxy/ratelimit's settings, all of them: what it calls them, what they are when not set, and what is different
//! here. A test holds this list against ours, so that none is forgotten.

use super::unsupported::{Row, fatal, needless};

/// One of the reference's settings.
pub(super) struct Theirs {
    pub(super) variable: &'static str,
    pub(super) default: &'static str,
    /// How and why ours differs; empty when it does not, but for the default.
    pub(super) remark: &'static str,
}

const fn same(variable: &'static str, default: &'static str) -> Theirs {
    differs(variable, default, "")
}

const fn differs(variable: &'static str, default: &'static str, remark: &'static str) -> Theirs {
    Theirs {
        variable,
        default,
        remark,
    }
}

pub(super) const THEIRS: &[Theirs] = &[
    same("HOST", "0.0.0.0"),
    same("PORT", "8080"),
    differs(
        "DEBUG_HOST",
        "0.0.0.0",
        "the debug port shows rules and counters, so it is open to the network only where somebody says so",
    ),
    same("DEBUG_PORT", "6070"),
    same("GRPC_HOST", "0.0.0.0"),
    same("GRPC_PORT", "8081"),
    same("GRPC_UDS", ""),
    differs(
        "GRPC_MAX_CONNECTION_AGE",
        "24h",
        "proxies keep a connection for as long as it lasts, and so would miss new replicas for a day",
    ),
    differs(
        "GRPC_MAX_CONNECTION_AGE_GRACE",
        "1h",
        "a decision takes milliseconds",
    ),
    same("GRPC_SERVER_USE_TLS", "false"),
    same("GRPC_SERVER_TLS_CERT", ""),
    same("GRPC_SERVER_TLS_KEY", ""),
    same("GRPC_CLIENT_TLS_CACERT", ""),
    same("GRPC_CLIENT_TLS_SAN", ""),
    differs(
        "LOG_LEVEL",
        "WARN",
        "the lines at the start and at each change of the rules say what is in force",
    ),
    differs(
        "LOG_FORMAT",
        "text",
        "who reads a log is a person at a terminal and a program elsewhere",
    ),
    same("CONFIG_TYPE", "FILE"),
    differs(
        "FORCE_START_WITHOUT_INITIAL_CONFIG",
        "false",
        "the ports are open at once either way; this decides whether the process calls itself ready",
    ),
    same("CONFIG_GRPC_XDS_NODE_ID", "default"),
    same("CONFIG_GRPC_XDS_NODE_METADATA", ""),
    same("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"),
    differs(
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        "3s",
        "it is used: the reference reads it and never retries by it",
    ),
    same("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", ""),
    same("CONFIG_GRPC_XDS_SERVER_USE_TLS", "false"),
    same("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", ""),
    same("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", ""),
    same("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", ""),
    same("CONFIG_GRPC_XDS_SERVER_TLS_SAN", ""),
    same("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s"),
    same("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s"),
    differs(
        "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
        "0.5",
        "the reference takes it for the growth, so that its default never grows",
    ),
    same("XDS_CLIENT_BACKOFF_JITTER", "true"),
    differs(
        "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        "4194304",
        "a gateway with a few thousand rules pushes more",
    ),
    same("USE_DOG_STATSD", "false"),
    same("USE_DOG_STATSD_MOGRIFIERS", ""),
    differs(
        "USE_STATSD",
        "true",
        "by default nothing is sent to a receiver nobody named: it is on when this, STATSD_HOST or STATSD_PORT is set",
    ),
    differs(
        "STATSD_HOST",
        "localhost",
        "localhost as well, when statsd is on and this is not set",
    ),
    differs(
        "STATSD_PORT",
        "8125",
        "8125 as well, when statsd is on and this is not set",
    ),
    same("STATSD_PROTOCOL", "tcp"),
    differs(
        "EXTRA_TAGS",
        "",
        "for statsd only, as in the reference; Prometheus puts labels of its own on what it scrapes",
    ),
    same("STATS_FLUSH_INTERVAL", "10s"),
    differs(
        "DISABLE_STATS",
        "false",
        "as there it wins over all others: nothing is sent, and no metrics port is open",
    ),
    differs(
        "USE_PROMETHEUS",
        "false",
        "the metrics port is there unless this is false, beside statsd too: a dashboard that read it goes on, and one \
         that read statsd may change over",
    ),
    same("PROMETHEUS_ADDR", ":9090"),
    same("PROMETHEUS_PATH", "/metrics"),
    same("PROMETHEUS_MAPPER_YAML", ""),
    same("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "false"),
    differs(
        "RUNTIME_ROOT",
        "/srv/runtime_data/current",
        "a slash at its end changes nothing: the reference then never reloads",
    ),
    differs(
        "RUNTIME_SUBDIRECTORY",
        "",
        "an empty one is left out: the reference then has no rules at all",
    ),
    differs(
        "RUNTIME_APPDIRECTORY",
        "config",
        "an empty one is left out: the reference then has no rules at all",
    ),
    same("RUNTIME_IGNOREDOTFILES", "false"),
    same("RUNTIME_WATCH_ROOT", "true"),
    same("MERGE_DOMAIN_CONFIG", "false"),
    same("EXPIRATION_JITTER_MAX_SECONDS", "300"),
    differs(
        "LOCAL_CACHE_SIZE_IN_BYTES",
        "0",
        "exact, a raised limit admits at once; so it is on (8 MiB) in front of Redis unless this is 0",
    ),
    same("NEAR_LIMIT_RATIO", "0.8"),
    same("CACHE_KEY_PREFIX", ""),
    same("BACKEND_TYPE", "redis"),
    differs(
        "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        "false",
        "all or nothing, atomically: the counter that refuses does not grow either",
    ),
    same("LIMIT_RESPONSE_HEADERS_ENABLED", "false"),
    same("LIMIT_LIMIT_HEADER", "RateLimit-Limit"),
    same("LIMIT_REMAINING_HEADER", "RateLimit-Remaining"),
    same("LIMIT_RESET_HEADER", "RateLimit-Reset"),
    same("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "false"),
    same("SHADOW_MODE", "false"),
    same("QUOTA_MODE", "false"),
    same("RESPONSE_DYNAMIC_METADATA", "false"),
    differs(
        "REDIS_SOCKET_TYPE",
        "unix",
        "an address with a port is the common case; what begins with / is a socket's path either way",
    ),
    same("REDIS_TYPE", "SINGLE"),
    differs(
        "REDIS_URL",
        "/var/run/nutcracker/ratelimit.sock",
        "without a Redis counters live in this process, so that it can be tried at once",
    ),
    same("REDIS_POOL_SIZE", "10"),
    same("REDIS_AUTH", ""),
    same("REDIS_TLS", "false"),
    same("REDIS_TLS_CLIENT_CERT", ""),
    same("REDIS_TLS_CLIENT_KEY", ""),
    same("REDIS_TLS_CACERT", ""),
    same("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false"),
    same("REDIS_PIPELINE_WINDOW", "0"),
    same("REDIS_PIPELINE_LIMIT", "0"),
    same("REDIS_CLUSTER_PIPELINE_PARALLELISM", "1"),
    same("REDIS_SENTINEL_AUTH", ""),
    differs(
        "REDIS_TIMEOUT",
        "10s",
        "bounds connecting, as in the reference, so that another address is tried soon; STORE_TIMEOUT bounds what the \
         reference leaves unbounded",
    ),
    same("REDIS_POOL_ON_EMPTY_BEHAVIOR", "WAIT"),
    differs(
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        "false",
        "the breaker in front of the store decides, not the number of connections",
    ),
    same("REDIS_STARTUP_INITIAL_INTERVAL", "1s"),
    same("REDIS_STARTUP_MAX_INTERVAL", "30s"),
    same("REDIS_STARTUP_MAX_ELAPSED_TIME", "0"),
    same("REDIS_PERSECOND", "false"),
    differs(
        "REDIS_PERSECOND_SOCKET_TYPE",
        "unix",
        "as REDIS_SOCKET_TYPE",
    ),
    same("REDIS_PERSECOND_TYPE", "SINGLE"),
    differs(
        "REDIS_PERSECOND_URL",
        "/var/run/nutcracker/ratelimitpersecond.sock",
        "as REDIS_URL: nothing is asked for at a socket nobody named",
    ),
    same("REDIS_PERSECOND_POOL_SIZE", "10"),
    same("REDIS_PERSECOND_AUTH", ""),
    same("REDIS_PERSECOND_TLS", "false"),
    same("REDIS_PERSECOND_SENTINEL_AUTH", ""),
    same("REDIS_PERSECOND_PIPELINE_WINDOW", "0"),
    same("REDIS_PERSECOND_PIPELINE_LIMIT", "0"),
    same("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "1"),
    differs("REDIS_PERSECOND_TIMEOUT", "10s", "as REDIS_TIMEOUT"),
    same("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "WAIT"),
    same("MEMCACHE_HOST_PORT", ""),
    same("MEMCACHE_SRV", ""),
    same("MEMCACHE_SRV_REFRESH", "0"),
    same("MEMCACHE_MAX_IDLE_CONNS", "2"),
    same("MEMCACHE_TLS", "false"),
    same("MEMCACHE_TLS_CLIENT_CERT", ""),
    same("MEMCACHE_TLS_CLIENT_KEY", ""),
    same("MEMCACHE_TLS_CACERT", ""),
    same("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false"),
    same("TRACING_ENABLED", "false"),
    same("TRACING_EXPORTER_PROTOCOL", "http"),
    same("TRACING_SERVICE_NAME", "RateLimit"),
    same("TRACING_SERVICE_NAMESPACE", ""),
    same("TRACING_SERVICE_INSTANCE_ID", ""),
    same("TRACING_SAMPLING_RATE", "1"),
];

/// Settings that mean something only beside another: where that one is refused or has no effect, so have they.
pub(super) const PARTS: &[(&str, &str)] = &[
    ("GRPC_SERVER_TLS_", "GRPC_SERVER_USE_TLS"),
    ("GRPC_CLIENT_TLS_", "GRPC_SERVER_USE_TLS"),
    ("REDIS_TLS_", "REDIS_TLS"),
    ("REDIS_SENTINEL_", "REDIS_TYPE"),
    ("REDIS_PERSECOND_", "REDIS_PERSECOND"),
    ("TRACING_", "TRACING_ENABLED"),
];

const MEMCACHED: &str = "memcached can neither count and compare in one step nor say what time it is; keep counters in \
                         Redis (REDIS_URL) or in this process";

/// What we will not have, and what nobody needs to set here.
pub(super) const ROWS: &[Row] = &[
    fatal("MEMCACHE_HOST_PORT", &[""], MEMCACHED),
    fatal("MEMCACHE_SRV", &[""], MEMCACHED),
    fatal("MEMCACHE_SRV_REFRESH", &["", "0", "0s"], MEMCACHED),
    fatal("MEMCACHE_MAX_IDLE_CONNS", &["", "2"], MEMCACHED),
    fatal("MEMCACHE_TLS", &["", "0", "f", "false"], MEMCACHED),
    fatal("MEMCACHE_TLS_CLIENT_CERT", &[""], MEMCACHED),
    fatal("MEMCACHE_TLS_CLIENT_KEY", &[""], MEMCACHED),
    fatal("MEMCACHE_TLS_CACERT", &[""], MEMCACHED),
    fatal(
        "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION",
        &["", "0", "f", "false"],
        MEMCACHED,
    ),
    needless(
        "RUNTIME_WATCH_ROOT",
        &["", "1", "t", "true"],
        "every change is seen, whichever way the files are swapped",
    ),
    needless(
        "RUNTIME_IGNOREDOTFILES",
        &["", "0", "f", "false"],
        "names that begin with a dot are never read",
    ),
    needless(
        "EXPIRATION_JITTER_MAX_SECONDS",
        &["", "300"],
        "counters expire one by one as it is",
    ),
    needless(
        "PROMETHEUS_MAPPER_YAML",
        &[""],
        "the names and labels of the default mapping are built in",
    ),
    needless(
        "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        &["", "0", "f", "false"],
        "ratelimit_service_response_time_seconds is in seconds, as it says",
    ),
    needless(
        "REDIS_POOL_ON_EMPTY_BEHAVIOR",
        &["", "wait"],
        "a request waits for a connection, STORE_TIMEOUT at most",
    ),
    needless(
        "REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR",
        &["", "wait"],
        "a request waits for a connection, STORE_TIMEOUT at most",
    ),
    needless(
        "REDIS_PIPELINE_WINDOW",
        &["", "0", "0s"],
        "requests that arrive while a call is in flight share the next one",
    ),
    needless(
        "REDIS_PIPELINE_LIMIT",
        &["", "0"],
        "requests that arrive while a call is in flight share the next one",
    ),
    needless(
        "REDIS_CLUSTER_PIPELINE_PARALLELISM",
        &["", "1"],
        "the counters of a request are asked for at once",
    ),
    needless(
        "REDIS_PERSECOND_PIPELINE_WINDOW",
        &["", "0", "0s"],
        "requests that arrive while a call is in flight share the next one",
    ),
    needless(
        "REDIS_PERSECOND_PIPELINE_LIMIT",
        &["", "0"],
        "requests that arrive while a call is in flight share the next one",
    ),
    needless(
        "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
        &["", "1"],
        "the counters of a request are asked for at once",
    ),
    needless(
        "REDIS_STARTUP_INITIAL_INTERVAL",
        &["", "1s"],
        "the ports are open while Redis is not there, and each call tries it",
    ),
    needless(
        "REDIS_STARTUP_MAX_INTERVAL",
        &["", "30s"],
        "the ports are open while Redis is not there, and each call tries it",
    ),
    needless(
        "REDIS_STARTUP_MAX_ELAPSED_TIME",
        &["", "0", "0s"],
        "the ports are open while Redis is not there, and each call tries it",
    ),
];
