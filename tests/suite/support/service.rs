//! The service inside the test's process, on free ports, with its clock in the test's hand.

use std::{collections::BTreeMap, net::SocketAddr, thread::JoinHandle, time::Duration};

use bytes::Bytes;
use clap::{CommandFactory as _, Parser};
use palang::{
    app::{Addresses, App},
    proto::{
        envoy::service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse, rate_limit_service_client::RateLimitServiceClient,
        },
        grpc::health::v1::{
            HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
        },
    },
    settings::Settings,
    shutdown::{Reload, Shutdown},
    time::{Clock, SECOND, Timestamp},
};
use prost_types::{Struct, value::Kind};
use serde_json::Value;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

use super::{eventually, http};

/// Where a service's counters live.
#[derive(Clone, Debug)]
pub(crate) enum StoreKind {
    Memory,
    /// A Redis at this socket.
    Redis {
        socket: String,
        prefix: String,
    },
}

impl StoreKind {
    /// The same store, with keys of its own for `name`.
    pub(crate) fn isolated(&self, name: &str) -> Self {
        match self {
            Self::Memory => Self::Memory,
            Self::Redis { socket, prefix } => Self::Redis {
                socket: socket.clone(),
                prefix: format!("{prefix}{name}:"),
            },
        }
    }
}

/// What a [`Service`] is started with.
#[derive(Debug)]
pub(crate) struct Builder {
    rules: Vec<(String, String)>,
    store: StoreKind,
    settings: Vec<(String, String)>,
    clock: Clock,
}

/// A running service. Stopped when dropped.
#[derive(Debug)]
pub(crate) struct Service {
    at: Addresses,
    clock: Clock,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
    client: RateLimitServiceClient<Channel>,
    // Holds the rule files.
    _rules: TempDir,
}

/// An answer of the HTTP port.
#[derive(Clone, Debug)]
pub(crate) struct HttpAnswer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: String,
}

#[derive(Debug, Parser)]
struct Words {
    #[command(flatten)]
    settings: Settings,
}

impl Builder {
    pub(crate) fn rules(mut self, files: &[(String, String)]) -> Self {
        self.rules = files.to_vec();
        self
    }

    pub(crate) fn store(mut self, store: StoreKind) -> Self {
        self.store = store;
        self
    }

    /// Settings by the names of their variables.
    pub(crate) fn settings(mut self, settings: &BTreeMap<String, String>) -> Self {
        self.settings = settings.clone().into_iter().collect();
        self
    }

    /// Seconds since the epoch at which the clock stands.
    pub(crate) fn clock_at(self, seconds: u64) -> Self {
        self.clock.set(Timestamp::from_micros(seconds * SECOND));
        self
    }

    /// The real clock.
    pub(crate) fn system_clock(mut self) -> Self {
        self.clock = Clock::system();
        self
    }

    pub(crate) async fn start(self) -> Service {
        let rules = tempfile::tempdir().expect("a directory for the rules");
        for (name, text) in &self.rules {
            std::fs::write(rules.path().join(name), text).expect("the rules are written");
        }
        let settings = self.words(&rules.path().display().to_string());
        let app = App::bind(settings, self.clock.clone()).expect("the ports are free");
        let at = app.addresses();
        let shutdown = Shutdown::default();
        let asked = shutdown.clone();
        let thread = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime")
                .block_on(app.run(asked, Reload::default()))
                .expect("the service ends well");
        });
        Service {
            client: RateLimitServiceClient::new(channel(at.grpc).await),
            at,
            clock: self.clock,
            shutdown,
            thread: Some(thread),
            _rules: rules,
        }
    }

    fn words(&self, rules: &str) -> Settings {
        let mut settings: Vec<(&str, &str)> = vec![
            ("HOST", "127.0.0.1"),
            ("PORT", "0"),
            ("GRPC_HOST", "127.0.0.1"),
            ("GRPC_PORT", "0"),
            ("DEBUG_PORT", "0"),
            ("PROMETHEUS_ADDR", "127.0.0.1:0"),
            ("WORKERS", "1"),
            ("PALANG_RULES", rules),
            // A debug build on a busy machine is given more time than Envoy would give.
            ("STORE_TIMEOUT", "5s"),
        ];
        if let StoreKind::Redis { socket, prefix } = &self.store {
            settings.extend([
                ("REDIS_SOCKET_TYPE", "unix"),
                ("REDIS_URL", socket.as_str()),
                ("CACHE_KEY_PREFIX", prefix.as_str()),
            ]);
        }
        for (name, value) in &self.settings {
            settings.retain(|(other, _)| other != name);
            settings.push((name, value));
        }
        let command = Words::command();
        let words = settings.iter().map(|(name, value)| {
            let flag = command
                .get_arguments()
                .find(|argument| argument.get_env().is_some_and(|env| env == *name))
                .and_then(clap::Arg::get_long)
                .unwrap_or_else(|| panic!("no setting {name}"));
            format!("--{flag}={value}")
        });
        Words::parse_from(std::iter::once("palang".to_owned()).chain(words)).settings
    }
}

impl Service {
    /// A service with the rules of one file, on the store, with settings by the names of their variables. Its clock
    /// stands at the beginning of an hour.
    pub(crate) async fn of(rules: &str, store: StoreKind, settings: &[(&str, &str)]) -> Self {
        let settings = settings
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Self::builder()
            .rules(&[("shop.yaml".to_owned(), rules.to_owned())])
            .store(store)
            .settings(&settings)
            .clock_at(1_767_571_200)
            .start()
            .await
    }

    /// A service without rules, with counters in memory and the clock at the epoch.
    pub(crate) fn builder() -> Builder {
        Builder {
            rules: Vec::new(),
            store: StoreKind::Memory,
            settings: Vec::new(),
            clock: Clock::manual(Timestamp::from_micros(0)),
        }
    }

    pub(crate) fn grpc(&self) -> SocketAddr {
        self.at.grpc
    }

    pub(crate) fn advance_seconds(&self, seconds: u64) {
        let now = self.clock.now().as_micros();
        self.clock
            .set(Timestamp::from_micros(now + seconds * SECOND));
    }

    pub(crate) async fn should_rate_limit(
        &self,
        request: RateLimitRequest,
    ) -> Result<RateLimitResponse, tonic::Status> {
        self.client
            .clone()
            .should_rate_limit(request)
            .await
            .map(tonic::Response::into_inner)
    }

    pub(crate) async fn http(&self, method: &str, path: &str, body: Option<&str>) -> HttpAnswer {
        let body = Bytes::from(body.unwrap_or_default().to_owned());
        let answer = http::send(self.at.http, method, path, &[], body)
            .await
            .expect("the service answers");
        HttpAnswer {
            status: answer.status,
            content_type: answer.header("content-type").unwrap_or_default().to_owned(),
            body: answer.body,
        }
    }

    /// An answer of the debug port.
    pub(crate) async fn debug(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> HttpAnswer {
        let answer = http::send(self.at.debug, method, path, headers, Bytes::new())
            .await
            .expect("the debug port answers");
        HttpAnswer {
            status: answer.status,
            content_type: answer.header("content-type").unwrap_or_default().to_owned(),
            body: answer.body,
        }
    }

    pub(crate) fn metrics_address(&self) -> SocketAddr {
        self.at.metrics.expect("a metrics port")
    }

    /// All of the metrics port.
    pub(crate) async fn metrics(&self) -> String {
        http::get(self.at.metrics.expect("a metrics port"), "/metrics", &[])
            .await
            .expect("the metrics port answers")
            .body
    }

    /// The counters on the debug port, by the reference's names.
    pub(crate) async fn stats(&self) -> BTreeMap<String, u64> {
        http::get(self.at.debug, "/stats", &[])
            .await
            .expect("the debug port answers")
            .body
            .lines()
            .filter_map(|line| {
                let (name, value) = line.rsplit_once(": ")?;
                Some((name.to_owned(), value.parse().ok()?))
            })
            .collect()
    }

    /// Whether the process answers at all, ready or not.
    pub(crate) async fn is_alive(&self) -> bool {
        let mut health = HealthClient::new(channel(self.at.grpc).await);
        let request = HealthCheckRequest::default();
        health
            .check(request)
            .await
            .is_ok_and(|answer| answer.into_inner().status() != ServingStatus::Unknown)
    }

    /// Ends it and waits for that.
    pub(crate) async fn stop(mut self) {
        self.shutdown.begin();
        if let Some(thread) = self.thread.take() {
            tokio::task::spawn_blocking(move || thread.join())
                .await
                .expect("joining does not panic")
                .expect("the service does not panic");
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shutdown.begin();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the service panicked");
        }
    }
}

/// A connection to `address`, which may still have to open its port.
pub(crate) async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .expect("an address makes a URI")
        .connect_timeout(Duration::from_secs(5));
    eventually("a connection", async || endpoint.connect().await.ok()).await
}

/// A protobuf Struct as JSON.
pub(crate) fn struct_to_json(fields: &Struct) -> Value {
    fields
        .fields
        .iter()
        .map(|(name, value)| (name.clone(), value_to_json(value.kind.as_ref())))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn value_to_json(kind: Option<&Kind>) -> Value {
    match kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) => Value::from(*number),
        Some(Kind::StringValue(text)) => Value::from(text.clone()),
        Some(Kind::BoolValue(truth)) => Value::from(*truth),
        Some(Kind::StructValue(fields)) => struct_to_json(fields),
        Some(Kind::ListValue(list)) => list
            .values
            .iter()
            .map(|value| value_to_json(value.kind.as_ref()))
            .collect(),
    }
}
