//! The reference's settings that we do not have. One that changes what the service is (encrypted, elsewhere, shared)
//! must not be passed over in silence; one that only changes how it is watched is told, and the service starts.

use std::env;

use super::{collect::Mistake, reference};

/// What an unsupported setting means for the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// Serving without it would not be what was asked for.
    Fatal,
    /// Serving without it is what was asked for, seen from elsewhere.
    Told,
    /// Nothing is missing: what it asks for is so, or is better.
    Needless,
}

pub(super) struct Row {
    pub(super) variable: &'static str,
    /// Values that ask for nothing we lack; any case.
    harmless: &'static [&'static str],
    pub(super) weight: Weight,
    pub(super) instead: &'static str,
}

const ROWS: &[Row] = &[
    fatal(
        "BACKEND_TYPE",
        &["", "redis"],
        "expected redis: memcached can neither count and compare in one step nor say what time it is; keep counters in \
         Redis (REDIS_URL) or in this process",
    ),
    needless(
        "GRPC_SERVER_TLS_CA_CERT",
        &[""],
        "the reference does not read it either: GRPC_CLIENT_TLS_CACERT asks for client certificates",
    ),
];

pub(super) const fn fatal(
    variable: &'static str,
    harmless: &'static [&'static str],
    instead: &'static str,
) -> Row {
    Row {
        variable,
        harmless,
        weight: Weight::Fatal,
        instead,
    }
}

pub(super) const fn needless(
    variable: &'static str,
    harmless: &'static [&'static str],
    instead: &'static str,
) -> Row {
    Row {
        variable,
        harmless,
        weight: Weight::Needless,
        instead,
    }
}

pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().chain(reference::ROWS)
}

/// What the environment asks for and we do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsupported {
    /// The process must not start with these.
    pub fatal: Vec<Mistake>,
    /// For the log.
    pub told: Vec<Mistake>,
    /// Set, and not needed.
    pub needless: Vec<Mistake>,
}

impl Unsupported {
    /// Looks through the environment of the process.
    pub fn in_environment() -> Self {
        Self::of(|variable| env::var(variable).ok())
    }

    fn of(value: impl Fn(&str) -> Option<String>) -> Self {
        let mut found = Self::default();
        for row in rows() {
            let Some(value) = value(row.variable) else {
                continue;
            };
            if row.harmless.contains(&value.to_ascii_lowercase().as_str()) {
                continue;
            }
            let list = match row.weight {
                Weight::Fatal => &mut found.fatal,
                Weight::Told => &mut found.told,
                Weight::Needless => &mut found.needless,
            };
            list.push(Mistake {
                setting: row.variable.to_owned(),
                value: Some(value),
                allowed: row.instead.to_owned(),
            });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memcached_at_its_defaults_asks_for_nothing() {
        let given = |value: &'static str| {
            move |variable: &str| {
                let value = match variable {
                    "BACKEND_TYPE" => "redis",
                    "MEMCACHE_SRV_REFRESH" => "0",
                    "MEMCACHE_MAX_IDLE_CONNS" => "2",
                    "MEMCACHE_TLS" | "MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION" => value,
                    _ => return None,
                };
                Some(value.to_owned())
            }
        };
        assert_eq!(Unsupported::of(given("false")), Unsupported::default());
        assert_eq!(Unsupported::of(given("true")).fatal.len(), 2);
    }

    #[test]
    fn what_would_be_another_service_is_fatal() {
        let environment = |variable: &str| {
            let value = match variable {
                "BACKEND_TYPE" => "memcache",
                "CONFIG_TYPE" => "FILE",
                "RUNTIME_WATCH_ROOT" => "false",
                "EXPIRATION_JITTER_MAX_SECONDS" => "300",
                "MEMCACHE_SRV" => "_memcache._tcp.local",
                "MEMCACHE_TLS" => "",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let found = Unsupported::of(environment);
        let names = |list: &[Mistake]| -> Vec<String> {
            list.iter().map(|mistake| mistake.setting.clone()).collect()
        };
        assert!(names(&found.fatal).contains(&"BACKEND_TYPE".to_owned()));
        assert!(names(&found.fatal).contains(&"MEMCACHE_SRV".to_owned()));
        assert_eq!(names(&found.told), [""; 0]);
        assert_eq!(names(&found.needless), ["RUNTIME_WATCH_ROOT"]);
        assert_eq!(Unsupported::of(|_| None), Unsupported::default());
    }
}
