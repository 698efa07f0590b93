//! The README's way from a metric to the reason for one refused call: its five commands, word for word, each of which
//! names the same rule.

use std::{collections::BTreeMap, net::SocketAddr, path::Path, process::Command, time::Duration};

use axum::{
    Router,
    extract::{self, State},
    routing::get,
};
use palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    debug_port::request,
    support::{
        collector::{Collector, attribute},
        eventually,
        process::Process,
        service::channel,
    },
};

/// The commands of that part of the README, comments taken off.
fn commands() -> Vec<String> {
    let readme = include_str!("../../README.md");
    let part = readme
        .split("\n## ")
        .find(|part| part.starts_with("See what it decided"));
    let part = part.expect("the part of the README");
    let block = part.split("```sh\n").nth(1).expect("a block of commands");
    let block = block.split("```").next().expect("its end");
    let lines = block.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// What Jaeger answers for a trace: its spans with their tags.
async fn trace(
    State(collector): State<Collector>,
    extract::Path(id): extract::Path<String>,
) -> String {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let spans = collector.spans().into_iter();
    let spans: Vec<Value> = spans
        .filter(|span| hex(&span.trace_id) == id)
        .map(|span| {
            let tags = span.attributes.iter();
            let tags: Vec<Value> = tags
                .map(|tag| json!({"key": tag.key, "value": attribute(&span.attributes, &tag.key)}))
                .collect();
            json!({"operationName": span.name, "tags": tags})
        })
        .collect();
    json!({"data": [{"traceID": id, "spans": spans}]}).to_string()
}

async fn jaeger(collector: Collector) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let app = Router::new()
        .route("/api/traces/{id}", get(trace))
        .with_state(collector);
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_commands_lead_from_the_metric_to_the_reason() {
    let commands = commands();
    assert_eq!(commands.len(), 5, "{commands:#?}");

    let (collector, endpoint) = Collector::http().await;
    let jaeger = jaeger(collector.clone()).await;
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart/rules.yaml");
    let process = Process::start(
        &["serve", "--rules", &rules.display().to_string()],
        &[
            ("TRACING_ENABLED", "true"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{endpoint}")),
            ("DENY_LOG_PER_SECOND", "10"),
        ],
    );
    let mut client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
    for _ in 0..4 {
        let asked = request("quickstart", &[&[("user", "ann")]]);
        client.should_rate_limit(asked).await.expect("decided");
    }
    eventually("the trace has arrived", async || {
        let mut spans = collector.spans().into_iter();
        let rule = |span: &opentelemetry_proto::tonic::trace::v1::Span| {
            attribute(&span.attributes, "palang.rule").is_some()
                && attribute(&span.attributes, "palang.code").as_deref() == Some("OVER_LIMIT")
        };
        spans.find(rule)
    })
    .await;

    // Where it runs is not where the README says: other ports, and a log of its own.
    let home = tempfile::tempdir().expect("a directory");
    let log = process.log().join("\n") + "\n";
    std::fs::write(home.path().join("palang.log"), log).expect("written");
    let places: BTreeMap<&str, SocketAddr> = [
        ("localhost:9090", process.address("metrics").await),
        ("localhost:6070", process.address("debug").await),
        ("localhost:16686", jaeger),
    ]
    .into();
    let mut script = String::from("set -e\n");
    for command in &commands {
        let mut command = command.clone();
        for (place, address) in &places {
            command = command.replace(place, &address.to_string());
        }
        script.push_str(&command);
        script.push_str("\necho =====\n");
    }
    let at = home.path().to_owned();
    let shell = move || {
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).current_dir(at).output()
    };
    let output = tokio::task::spawn_blocking(shell).await;
    let output = output.expect("no panic").expect("sh runs");
    let said = String::from_utf8(output.stdout).expect("text");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    let said: Vec<&str> = said.split("=====\n").collect();
    assert_eq!(said.len(), 6, "{said:#?}");
    for (command, said) in commands.iter().zip(&said) {
        assert!(said.contains("quickstart.user"), "{command}\nsaid\n{said}");
    }
    // The same call in the middle three, which its trace's id ties together.
    let id = said[1]
        .split("trace_id=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let id = id.expect("a trace id");
    assert_eq!(id.len(), 32, "{id}");
    for step in [2, 3] {
        assert!(said[step].contains(id), "{}", said[step]);
    }
    assert!(said[3].contains("user=ann") && said[3].contains("retry_after_ms"));
    assert!(said[4].contains("answer   OVER_LIMIT"), "{}", said[4]);
}

#[tokio::test]
async fn quickstart_has_its_rules_with_it() {
    let home = tempfile::tempdir().expect("a directory");
    let unpacked = || std::fs::read_dir(home.path()).expect("readable").count();
    let path = home.path().display().to_string();
    let arguments = [
        &format!("--chdir={path}"),
        env!("CARGO_BIN_EXE_palang"),
        "quickstart",
    ];
    let mut process = Process::start_as("env", &arguments, &[("TMPDIR", &path)]);
    process.ready().await;
    assert_eq!(unpacked(), 1);
    let mut client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
    let asked = request("quickstart", &[&[("user", "ann")]]);
    let said = client.should_rate_limit(asked).await.expect("decided");
    assert!(said.into_inner().statuses[0].current_limit.is_some());
    process.signal("TERM");
    process.wait(Duration::from_secs(30)).await;
    assert_eq!(unpacked(), 0, "they go with the process");
}
