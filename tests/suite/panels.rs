//! Every panel of the dashboard and every alert has data behind it: a real Prometheus scrapes running services to which
//! everything happens that the panels show, and is asked each question word for word. A metric that is renamed, or a
//! label, leaves its panel empty.

use std::{collections::BTreeSet, fs, net::SocketAddr};

use palang::proto::{
    envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient,
    ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
    },
};
use serde::Deserialize;
use serde_json::Value;
use tonic::transport::Channel;

use crate::{
    debug_port::request,
    server_harness::post,
    support::{
        collector::Collector, eventually, process::Process, prometheus::Prometheus,
        redis::RedisServer, service::channel, xds::ControlPlane,
    },
};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: bucket
    rate_limit: {unit: hour, requests_per_unit: 1000000, algorithm: token_bucket}
  - key: quiet
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: local
    rate_limit: {unit: hour, requests_per_unit: 1000000, on_store_failure: local}
";

/// What is asked of Prometheus, and where it stands.
#[derive(Debug)]
struct Question {
    place: String,
    expression: String,
    /// Whether an answer is wanted; else only that there is something to judge.
    is_answered: bool,
}

#[derive(Deserialize)]
struct AlertFile {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Alert>,
}

#[derive(Deserialize)]
struct Alert {
    alert: String,
    expr: String,
}

/// The panels' queries as Grafana sends them, with everything chosen in its lists.
fn panels() -> Vec<Question> {
    let text = include_str!("../../helm/palang/dashboards/palang.json");
    let dashboard: Value = serde_json::from_str(text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let filled = |query: &str| {
        let mut query = query.replace("$__rate_interval", "10s");
        for list in ["namespace", "job", "instance", "domain"] {
            query = query.replace(&format!("\"${list}\""), "\".*\"");
        }
        assert!(!query.contains('$'), "{query}");
        query
    };
    let mut found = Vec::new();
    for panel in panels {
        for target in panel["targets"].as_array().into_iter().flatten() {
            found.push(Question {
                place: format!("panel {}", panel["title"]),
                expression: filled(target["expr"].as_str().expect("a query")),
                is_answered: true,
            });
        }
    }
    // The lists at the top: each is of a label that these series have.
    for list in dashboard["templating"]["list"].as_array().expect("lists") {
        if list["type"] == "query" {
            let query = filled(list["query"]["query"].as_str().expect("a query"));
            let inner = query
                .strip_prefix("label_values(")
                .and_then(|rest| rest.strip_suffix(')'))
                .expect("label_values");
            let (selector, label) = inner.rsplit_once(", ").expect("a label");
            found.push(Question {
                place: format!("list {}", list["name"]),
                expression: format!(
                    "count by ({label}) ({selector}) and on ({label}) {{{label}!=\"\"}}"
                ),
                is_answered: true,
            });
        }
    }
    found
}

fn alerts() -> Vec<Question> {
    let text = include_str!("../../helm/palang/alerts/palang.yaml");
    let file: AlertFile = serde_saphyr::from_str(text).expect("YAML");
    let rules = file.groups.into_iter().flat_map(|group| group.rules);
    rules
        .map(|rule| Question {
            place: format!("alert {}", rule.alert),
            expression: rule.expr,
            is_answered: false,
        })
        .collect()
}

/// The series that an expression reads: each metric of ours with its labels.
fn selectors(expression: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    let mut rest = expression;
    while let Some(start) = rest.find(is_name) {
        let word = &rest[start..];
        let (name, after) = word.split_at(word.find(|c| !is_name(c)).unwrap_or(word.len()));
        let labels = match after.strip_prefix('{') {
            Some(_) => &after[..=after.find('}').expect("a closing brace")],
            None => "",
        };
        if name.starts_with("palang_") || name.starts_with("process_") {
            found.insert(format!("{name}{labels}"));
        }
        rest = &after[labels.len()..];
    }
    found
}

/// Whether Prometheus answers with a number.
async fn answers(prometheus: &Prometheus, expression: &str) -> bool {
    let escaped: String = expression
        .bytes()
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    let found = prometheus
        .api(&format!("/api/v1/query?query={escaped}"))
        .await;
    let found = found.unwrap_or_default();
    let rows = found["result"].as_array().into_iter().flatten();
    let mut values = rows.filter_map(|row| row["value"][1].as_str()?.parse::<f64>().ok());
    values.any(f64::is_finite)
}

/// What becomes of a question in the end: nothing, or why it has no data.
async fn missing(prometheus: &Prometheus, question: &Question) -> Option<String> {
    let read = selectors(&question.expression);
    assert!(!read.is_empty(), "{question:?} asks for nothing of ours");
    for selector in read {
        if !answers(prometheus, &selector).await {
            return Some(format!("{}: no {selector}", question.place));
        }
    }
    let is_empty = question.is_answered && !answers(prometheus, &question.expression).await;
    is_empty.then(|| format!("{}: nothing for {}", question.place, question.expression))
}

/// A service with counters in Redis, to which everything happens.
struct Stored {
    redis: RedisServer,
    process: Process,
    client: RateLimitServiceClient<Channel>,
    _rules: tempfile::TempDir,
}

impl Stored {
    async fn start(collector: SocketAddr) -> Self {
        let redis = RedisServer::start();
        let rules = tempfile::tempdir().expect("a directory for the rules");
        fs::write(rules.path().join("shop.yaml"), RULES).expect("the rules are written");
        let path = rules.path().display().to_string();
        let process = Process::start(
            &["serve"],
            &[
                ("PALANG_RULES", &*path),
                ("REDIS_SOCKET_TYPE", "unix"),
                ("REDIS_URL", &redis.url()),
                ("LOCAL_CACHE_SIZE_IN_BYTES", "100000"),
                ("TRACING_ENABLED", "true"),
                (
                    "OTEL_EXPORTER_OTLP_ENDPOINT",
                    &format!("http://{collector}"),
                ),
            ],
        );
        process.ready().await;
        let client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
        let stored = Self {
            redis,
            process,
            client,
            _rules: rules,
        };
        let mistake = stored._rules.path().join("wrong.yaml");
        fs::write(mistake, "domain: wrong\ndescriptors: [{kee: x}]\n").expect("written");
        stored
    }

    /// A bit of everything. Fails where the store is away, as it should.
    async fn traffic(&self) {
        for entry in [
            ("user", "7"),
            ("bucket", "b"),
            ("quiet", "q"),
            ("local", "l"),
            ("nothing", "n"),
        ] {
            let asked = request("shop", &[&[entry]]);
            drop(self.client.clone().should_rate_limit(asked).await);
        }
        let bad = request("", &[]);
        drop(self.client.clone().should_rate_limit(bad).await);
    }

    /// Redis goes away until the breaker has opened, and comes back.
    async fn outage(&mut self) {
        self.redis.kill();
        let this = &*self;
        eventually("the breaker opens", async || {
            this.traffic().await;
            let opened = "palang_store_breaker_opened_total{store=\"main\"}";
            (this.process.metric(opened).await > 0).then_some(())
        })
        .await;
        self.redis.restart();
        let this = &*self;
        eventually("the breaker closes", async || {
            this.traffic().await;
            let closed = "palang_store_breaker{store=\"main\",state=\"closed\"}";
            (this.process.metric(closed).await == 1).then_some(())
        })
        .await;
    }
}

/// A service with counters in memory and rules of a control plane.
fn from_a_control_plane(plane: &mut ControlPlane) -> Process {
    let server = plane.address().to_string();
    let process = Process::start(
        &["serve"],
        &[
            ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
            ("CONFIG_GRPC_XDS_SERVER_URL", &server),
            ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ],
    );
    plane.push(&[RateLimitConfig {
        name: "d".to_owned(),
        domain: "d".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            key: "k".to_owned(),
            rate_limit: Some(RateLimitPolicy {
                unit: RateLimitUnit::Hour.into(),
                requests_per_unit: 100_000,
                ..RateLimitPolicy::default()
            }),
            ..RateLimitDescriptor::default()
        }],
    }]);
    process
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_panel_and_every_alert_has_data_behind_it() {
    let (_collector, collector) = Collector::http().await;
    let mut plane = ControlPlane::start();
    let pushed = from_a_control_plane(&mut plane);
    let mut stored = Stored::start(collector).await;
    let prometheus = Prometheus::scraping(&[
        stored.process.address("metrics").await,
        pushed.address("metrics").await,
    ]);
    pushed.ready().await;
    stored.outage().await;

    let mut questions = panels();
    assert!(questions.len() > 60, "{questions:?}");
    let alerts = alerts();
    assert!(alerts.len() > 15, "{alerts:?}");
    questions.extend(alerts);
    let http = pushed.address("http").await;
    let mut without = vec!["not asked yet".to_owned()];
    let until = tokio::time::Instant::now() + crate::support::PATIENCE;
    while !without.is_empty() && tokio::time::Instant::now() < until {
        stored.traffic().await;
        let body = br#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
        post(http, "/json", body).await;
        without.clear();
        for question in &questions {
            without.extend(missing(&prometheus, question).await);
        }
    }
    assert!(without.is_empty(), "without data:\n{}", without.join("\n"));

    // The way to find out works: it misses what is not there.
    let renamed = Question {
        place: "a panel".to_owned(),
        expression: "sum by (rule) (rate(palang_decisions_renamed_total{code=\"ok\"}[10s]))"
            .to_owned(),
        is_answered: true,
    };
    let said = missing(&prometheus, &renamed).await;
    assert_eq!(
        said.as_deref(),
        Some("a panel: no palang_decisions_renamed_total{code=\"ok\"}")
    );
}
