//! `palang bench` against the running service: its numbers, its check, its exit code.

use std::{
    process::{Command, Output},
    time::Duration,
};

use serde_json::Value;
use tempfile::NamedTempFile;

use crate::support::{eventually, pki::Pki, process::Process};

const RULES: &str = "
domain: d
descriptors:
  - key: plenty
    rate_limit: {unit: second, requests_per_unit: 1000000, algorithm: token_bucket}
  - key: few
    rate_limit: {unit: year, requests_per_unit: 20, algorithm: token_bucket}
  - key: total
    rate_limit: {unit: year, requests_per_unit: 30}
";

struct Running {
    _rules: NamedTempFile,
    process: Process,
    address: String,
}

async fn service() -> Running {
    let (rules, process) = start(&[]);
    Running {
        address: process.address("grpc").await.to_string(),
        _rules: rules,
        process,
    }
}

fn start(env: &[(&str, &str)]) -> (NamedTempFile, Process) {
    let rules = tempfile::Builder::new()
        .suffix(".yaml")
        .tempfile()
        .expect("a temporary file");
    std::fs::write(rules.path(), RULES).expect("the rules are written");
    let path = rules.path().to_str().expect("a UTF-8 path");
    let process = Process::start(&["serve", "--rules", path], env);
    (rules, process)
}

fn bench(address: &str, args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_palang"))
        .args(["bench", "--address", address, "--domain", "d"])
        // A debug build on a busy machine.
        .args(["--timeout", "20s", "--threads", "1"])
        .args(args.split_whitespace())
        .env_clear()
        .output()
        .expect("the binary runs")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|cause| {
        let said = String::from_utf8_lossy(&output.stderr);
        panic!("no JSON: {cause}\n{said}")
    })
}

#[tokio::test]
async fn both_loops_count_what_they_ask() {
    let service = service().await;
    let closed = bench(
        &service.address,
        "--descriptor plenty=% --descriptor none=% --duration 300ms --inflight 8 --json",
    );
    assert_eq!(closed.status.code(), Some(0), "{closed:?}");
    let closed = json(&closed);
    assert_eq!(closed["mode"], "closed");
    assert!(closed["calls"].as_u64() > Some(8), "{closed}");
    assert_eq!(closed["calls"], closed["allowed"]);
    assert_eq!(closed["calls"], closed["without_limit"]);
    assert!(closed["latency_us"]["p50"].as_u64() > Some(0), "{closed}");

    let open = bench(
        &service.address,
        "--descriptor plenty=% --duration 500ms --rate 200 --json",
    );
    assert_eq!(open.status.code(), Some(0), "{open:?}");
    let open = json(&open);
    assert_eq!(open["mode"], "open");
    assert_eq!(open["calls"], 100, "a call for each moment: {open}");
}

#[tokio::test]
async fn a_limit_that_holds_is_told_from_one_that_does_not() {
    let service = service().await;
    for (args, code) in [
        ("--descriptor few=% --limit 20", 0),
        ("--descriptor few=% --hits 3 --limit 20", 0),
        ("--descriptor few=% --descriptor total=% --limit 30", 1),
        ("--descriptor few=% --limit 19", 1),
        ("--descriptor few=% --limit 21", 1),
        ("--descriptor few=% --limit 10 --per 24h", 0),
        (
            "--descriptor few=% --limit 10 --per 24h --algorithm token_bucket",
            1,
        ),
        (
            "--descriptor few=% --limit 1 --per 24h --algorithm token_bucket --burst 20",
            0,
        ),
    ] {
        let args = format!("{args} --keys 3 --duration 500ms --json");
        let found = bench(&service.address, &args);
        assert_eq!(found.status.code(), Some(code), "{args}: {found:?}");
        let check = &json(&found)["check"];
        assert_eq!(check["held"], code == 0, "{args}: {check}");
        assert!(check["counters"].as_u64() >= Some(3), "{check}");
    }
}

#[tokio::test]
async fn nobody_there_is_an_exit_code_of_its_own() {
    let found = bench("127.0.0.1:1", "--descriptor few=% --duration 1s");
    assert_eq!(found.status.code(), Some(2));
    let said = String::from_utf8_lossy(&found.stderr);
    assert!(said.contains("cannot reach 127.0.0.1:1"), "{said}");
}

#[tokio::test]
async fn people_get_lines() {
    let service = service().await;
    let found = bench(
        &service.address,
        "--descriptor few=% --distribution one --duration 300ms --limit 20",
    );
    let text = String::from_utf8_lossy(&found.stdout);
    assert!(text.contains("allowed    20\n"), "{text}");
    assert!(
        text.contains("held: 1 counters, 1 asked for more"),
        "{text}"
    );
    assert!(text.contains("p99.9"), "{text}");
    assert!(
        text.contains("granted 20 of ")
            && text.contains("at most 20 (20, the window outlasts the run)"),
        "{text}"
    );
    assert_eq!(found.status.code(), Some(0), "{text}");
}

#[tokio::test]
async fn it_speaks_tls_with_a_certificate() {
    let pki = Pki::new();
    let [authority, certificate, key, own, own_key] =
        ["ca.crt", "server.crt", "server.key", "tls.crt", "tls.key"]
            .map(|name| pki.file(name).display().to_string());
    let (_rules, process) = start(&[
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &certificate),
        ("GRPC_SERVER_TLS_KEY", &key),
        ("GRPC_CLIENT_TLS_CACERT", &authority),
    ]);
    let address = format!("localhost:{}", process.address("grpc").await.port());
    let ask = format!(
        "--descriptor plenty=% --duration 300ms --json --grpc-use-tls --grpc-server-ca-file {authority}"
    );
    let known = format!("{ask} --grpc-cert-file {own} --grpc-key-file {own_key}");
    let found = bench(&address, &known);
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert!(json(&found)["allowed"].as_u64() > Some(0));
    // Nobody without a certificate gets an answer.
    let unknown = bench(&address, &ask);
    assert_ne!(unknown.status.code(), Some(0), "{unknown:?}");
}

#[tokio::test]
async fn it_speaks_through_a_unix_socket() {
    let home = tempfile::tempdir().expect("a directory");
    let socket = home.path().join("grpc.sock").display().to_string();
    let (_rules, process) = start(&[("GRPC_UDS", &socket)]);
    process.ready().await;
    let found = bench(
        &format!("unix://{socket}"),
        "--descriptor plenty=% --duration 300ms --json",
    );
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    assert!(json(&found)["allowed"].as_u64() > Some(0));
}

/// Only one call may be in flight, so that only one meets the stall itself: one of 300, which no p99 shows. The calls
/// that were due meanwhile are a seventh of all.
#[tokio::test]
async fn a_stall_shows_in_the_times_of_all_who_would_have_met_it() {
    let service = service().await;
    let address = service.address.clone();
    let run = tokio::task::spawn_blocking(move || {
        bench(
            &address,
            "--descriptor plenty=% --duration 1500ms --rate 200 --inflight 1 --json",
        )
    });
    eventually("calls are answered", async || {
        let answered = service
            .process
            .metric("ratelimit_service_rate_limit_total_hits{domain=\"d\",key1=\"plenty\"}")
            .await;
        (answered >= 20).then_some(())
    })
    .await;
    service.process.signal("STOP");
    tokio::time::sleep(Duration::from_millis(200)).await;
    service.process.signal("CONT");
    let found = run.await.expect("the run ends");
    assert_eq!(found.status.code(), Some(0), "{found:?}");
    let found = json(&found);
    assert_eq!(found["calls"], 300, "{found}");
    assert!(
        found["latency_us"]["p99"].as_u64() >= Some(150_000),
        "{found}"
    );
}
