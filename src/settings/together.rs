//! What is wrong with settings together, or with the files they name: found before the start, all of it.

use std::env;

use super::{
    Settings,
    collect::{Given, Mistake},
    reference,
    servers::RedisArgs,
};
use crate::{
    store::{
        Redis,
        redis::{Config, ConfigError, TlsPart},
    },
    time::Clock,
};

impl Settings {
    /// Everything that is wrong with settings that are right one by one, and with the files they name.
    pub fn mistakes(&self, given: &Given) -> Vec<Mistake> {
        self.mistakes_in(given, |variable| env::var(variable).ok())
    }

    fn mistakes_in(
        &self,
        given: &Given,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Vec<Mistake> {
        let mut wrong = Vec::new();
        wrong.extend(self.redis_without_url(given, &variable));
        wrong.extend(self.store.redis.check());
        wrong.extend(self.store.seconds.check());
        let (clock, store) = (Clock::system(), &self.store);
        for (prefix, config) in [
            ("REDIS", store.redis(&clock)),
            ("REDIS_PERSECOND", store.per_second(&clock)),
        ] {
            let found = config.map_or_else(Vec::new, |config| {
                redis(prefix, &store.redis, &config, given)
            });
            for mistake in found {
                // The files are the same for both.
                if !wrong.contains(&mistake) {
                    wrong.push(mistake);
                }
            }
        }
        let tls = self.server.tls.check();
        wrong.extend(
            tls.into_iter()
                .map(|error| Mistake::of(error.setting, error.reason)),
        );
        if let Err(errors) = self.statsd.options(variable) {
            wrong.extend(
                errors
                    .into_iter()
                    .map(|error| Mistake::of(error.variable, error.reason)),
            );
        }
        for error in self.otlp.check(&self.traces) {
            let mistake = Mistake::of(error.setting(), &error);
            // Both signals have the same files, most of the time.
            if !wrong.contains(&mistake) {
                wrong.push(mistake);
            }
        }
        if let Err(error) = self.rules.source.source() {
            wrong.push(Mistake::of(
                "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
                format_args!("entry {} {}", error.entry, error.reason),
            ));
        }
        let files = self.rules.source.check_files();
        wrong.extend(
            files
                .into_iter()
                .map(|error| Mistake::of(error.setting, error.reason)),
        );
        wrong
    }

    /// Who says how a Redis is reached has one, and would get the limits once for each replica without it.
    fn redis_without_url(
        &self,
        given: &Given,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Option<Mistake> {
        if !self.store.redis.redis_url.is_empty() {
            return None;
        }
        // Those that are no settings of ours are found in the environment alone.
        let others = reference::ROWS
            .iter()
            .map(|row| row.variable)
            .filter(|name| variable(name).is_some_and(|value| !value.is_empty()));
        let names: Vec<&str> = given
            .variables()
            .chain(others)
            .filter(|name| name.starts_with("REDIS_"))
            // That there is no second one says nothing of a first.
            .filter(|name| *name != "REDIS_PERSECOND" || self.store.seconds.redis_persecond)
            .collect();
        (!names.is_empty()).then(|| {
            Mistake::of(
                names.join(", "),
                "there is no Redis without REDIS_URL, and counters in this process would grant each limit once for \
                 each replica: set REDIS_URL, or leave out what is named here",
            )
        })
    }
}

/// What is wrong with one Redis, by the names of its settings.
fn redis(prefix: &str, args: &RedisArgs, config: &Config, given: &Given) -> Vec<Mistake> {
    let kinds = ["TYPE", "SOCKET_TYPE"].map(|part| format!("{prefix}_{part}"));
    // Without them nobody can say what the address means.
    let unknown = kinds.iter().any(|variable| given.refused(variable));
    let wrong = Redis::check(config).into_iter();
    wrong
        .filter(|error| {
            let address = matches!(
                error,
                ConfigError::Address(_) | ConfigError::List(_) | ConfigError::TlsOnSocket
            );
            !(unknown && address)
        })
        .map(|error| Mistake::of(setting(prefix, args, &error), &error))
        .collect()
}

fn setting(prefix: &str, args: &RedisArgs, error: &ConfigError) -> String {
    let part = match error {
        ConfigError::Address(_) | ConfigError::List(_) => "URL",
        ConfigError::TlsOnSocket => "TLS",
        ConfigError::Zero("pool_size") => "POOL_SIZE",
        ConfigError::Zero("connect_timeout") => "TIMEOUT",
        // The rest is one for both.
        ConfigError::Zero("depth") => return "REDIS_CALLS_IN_FLIGHT".to_owned(),
        ConfigError::Zero("partitions") | ConfigError::Partitions => {
            return "REDIS_CLUSTER_PARTITIONS".to_owned();
        }
        ConfigError::Zero("slot_timeout") => return "REDIS_POOL_TIMEOUT".to_owned(),
        ConfigError::Zero(_) => return "STORE_TIMEOUT".to_owned(),
        ConfigError::Prefix => return "CACHE_KEY_PREFIX".to_owned(),
        ConfigError::Tls { part, file, .. } => {
            let part = match part {
                TlsPart::Authorities => "CACERT",
                TlsPart::Certificate => "CLIENT_CERT",
                TlsPart::Key => "CLIENT_KEY",
            };
            // Sentinels have the others' files where they have none of their own.
            let whose = if args.is_of_sentinels(file) {
                "REDIS_SENTINEL"
            } else {
                "REDIS"
            };
            return format!("{whose}_TLS_{part}");
        }
    };
    format!("{prefix}_{part}")
}
