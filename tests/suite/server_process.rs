//! The real binary: settings, names, signals, commands.

use std::{
    process::{Command, Output},
    time::{Duration, Instant},
};

use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    failure_floods::{DATA, END_HEADERS, HEADERS, PING, PREFACE, SETTINGS, frame, head},
    server_harness::{get, post},
    support::{eventually, process::Process, rules::file as rules, service::channel},
};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: {unit: hour, requests_per_unit: 2}
";

fn path(file: &NamedTempFile) -> &str {
    file.path().to_str().expect("a UTF-8 path")
}

/// Runs the binary to its end.
fn run(args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_palang"))
        .args(args)
        .env_clear()
        .envs(env.iter().copied())
        .output()
        .expect("the binary runs")
}

#[tokio::test]
async fn signals_stop_it_with_exit_code_0() {
    for signal in ["TERM", "INT"] {
        let file = rules(RULES);
        let mut process = Process::start(&["serve", "--rules", path(&file)], &[]);
        let http = process.address("http").await;
        assert_eq!(get(http, "/healthcheck").await.status, 200);
        process.signal(signal);
        let status = process.wait(Duration::from_secs(5)).await;
        assert_eq!(status.code(), Some(0), "SIG{signal}");
    }
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let file = rules(RULES);
    let mut process = Process::start(
        &["serve", "--rules", path(&file)],
        &[("SHUTDOWN_DELAY", "60s")],
    );
    process.address("http").await;
    process.signal("TERM");
    eventually("it says that it stops", async || {
        process
            .records()
            .iter()
            .any(|record| record["@message"] == "stopping")
            .then_some(())
    })
    .await;
    process.signal("INT");
    let status = process.wait(Duration::from_secs(5)).await;
    assert_eq!(status.code(), Some(130));
}

#[tokio::test]
async fn half_sent_messages_do_not_hold_up_the_stop() {
    let file = rules(RULES);
    let mut process = Process::start(&["serve", "--rules", path(&file)], &[]);
    process.ready().await;
    let mut grpc = TcpStream::connect(process.address("grpc").await)
        .await
        .expect("accepted");
    let mut bytes = PREFACE.to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    frame(&mut bytes, HEADERS, END_HEADERS, 1, &head());
    // Ten bytes are announced, and one comes.
    frame(&mut bytes, DATA, 0, 1, &[0, 0, 0, 0, 10, 1]);
    frame(&mut bytes, PING, 0, 0, b"halfsent");
    grpc.write_all(&bytes).await.expect("written");
    let mut heard = Vec::new();
    while !heard.windows(8).any(|bytes| bytes == b"halfsent") {
        assert_ne!(grpc.read_buf(&mut heard).await.expect("open"), 0);
    }
    let mut http = TcpStream::connect(process.address("http").await)
        .await
        .expect("accepted");
    http.write_all(b"POST /json HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\n{\"domain")
        .await
        .expect("written");
    eventually("the body is waited for", async || {
        (process.metric("palang_in_flight").await == 1).then_some(())
    })
    .await;
    process.signal("TERM");
    let since = Instant::now();
    let status = process.wait(Duration::from_secs(9)).await;
    assert_eq!(status.code(), Some(0));
    // A receiving caller has 10 s, and a stop 30.
    assert!(since.elapsed() < Duration::from_secs(4), "{since:?}");
    assert!(process.log().join("\n").contains("every call finished"));
}

#[tokio::test]
async fn messages_that_never_end_hold_so_much_together() {
    let file = rules(RULES);
    let process = Process::start(
        &["serve", "--rules", path(&file)],
        &[("MAX_UNFINISHED_SIZE", "3000000")],
    );
    process.ready().await;
    let at = process.address("http").await;
    let mut half = b"POST /json HTTP/1.1\r\nHost: test\r\nContent-Length: 1048576\r\n\r\n".to_vec();
    half.resize(half.len() + 900_000, b' ');
    let mut sent = JoinSet::new();
    for _ in 0..4 {
        let half = half.clone();
        sent.spawn(async move {
            let mut one = TcpStream::connect(at).await.expect("accepted");
            // One that is refused may be cut off while it still writes.
            let _ = one.write_all(&half).await;
            let mut heard = Vec::new();
            let _ = one.read_to_end(&mut heard).await;
            String::from_utf8_lossy(&heard).into_owned()
        });
    }
    // Three of them fit, and wait.
    let heard = sent.join_next().await.expect("four").expect("no panic");
    assert!(heard.starts_with("HTTP/1.1 503 "), "{heard}");
    let refused = "palang_bad_requests_total{bound=\"unfinished\"}";
    assert_eq!(process.metric(refused).await, 1);
    sent.shutdown().await;
    eventually("there is room again", async || {
        let mut again = TcpStream::connect(at).await.expect("accepted");
        let body = br#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
        let head = format!(
            "POST /json HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len() + 700_000
        );
        let mut whole = head.into_bytes();
        whole.resize(whole.len() + 700_000, b' ');
        whole.extend_from_slice(body);
        let _ = again.write_all(&whole).await;
        let mut heard = Vec::new();
        let _ = again.read_to_end(&mut heard).await;
        heard.starts_with(b"HTTP/1.1 200 ").then_some(())
    })
    .await;
}

#[tokio::test]
async fn peers_that_vanished_are_found_by_pings() {
    let file = rules(RULES);
    let process = Process::start(
        &["serve", "--rules", path(&file)],
        &[
            ("KEEPALIVE_INTERVAL", "100ms"),
            ("KEEPALIVE_TIMEOUT", "200ms"),
        ],
    );
    process.ready().await;
    let at = process.address("grpc").await;
    // It speaks HTTP/2, and answers no ping.
    let mut vanished = TcpStream::connect(at).await.expect("accepted");
    let mut bytes = PREFACE.to_vec();
    frame(&mut bytes, SETTINGS, 0, 0, &[]);
    vanished.write_all(&bytes).await.expect("written");
    let mut honest = channel(at).await;
    tower::ServiceExt::<http::Request<tonic::body::Body>>::ready(&mut honest)
        .await
        .expect("connected");
    eventually("both are open", async || {
        (process.metric("palang_connections{port=\"grpc\"}").await == 2).then_some(())
    })
    .await;
    let mut heard = Vec::new();
    let ended = vanished.read_to_end(&mut heard);
    let ended = tokio::time::timeout(Duration::from_secs(5), ended).await;
    assert!(ended.is_ok(), "it is still open");
    eventually("only the other one is open", async || {
        (process.metric("palang_connections{port=\"grpc\"}").await == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_same_signal_twice_at_once_is_one_wish() {
    let file = rules(RULES);
    let mut process = Process::start(
        &["serve", "--rules", path(&file)],
        &[("SHUTDOWN_DELAY", "1s")],
    );
    process.address("http").await;
    process.signal("TERM");
    process.signal("TERM");
    let status = process.wait(Duration::from_secs(15)).await;
    assert_eq!(status.code(), Some(0), "it drained");
}

#[tokio::test]
async fn hangup_reloads_and_a_bad_file_changes_nothing() {
    let file = rules(RULES);
    let process = Process::start(&["serve", "--rules", path(&file)], &[]);
    let debug = process.address("debug").await;
    let before = get(debug, "/rlconfig").await.body;
    std::fs::write(file.path(), "domain: d\nbogus: 1\n").expect("the rules are written");
    process.signal("HUP");
    eventually("the mistake is counted", async || {
        let stats = get(debug, "/stats").await.body;
        let line = "ratelimit.service.config_load_error: ";
        let counted = stats
            .lines()
            .any(|found| found.starts_with(line) && !found.ends_with(" 0"));
        counted.then_some(())
    })
    .await;
    let after = get(debug, "/rlconfig").await.body;
    let (stale, rules) = after.split_once('\n').expect("a line about the mistake");
    assert!(
        stale.starts_with("# stale, all as they last were: ") && stale.contains("bogus"),
        "{stale}"
    );
    assert_eq!(rules, before);
    let better = RULES.replace("requests_per_unit: 2", "requests_per_unit: 7");
    std::fs::write(file.path(), better).expect("the rules are written");
    process.signal("HUP");
    eventually("the new rules are in force", async || {
        let dump = get(debug, "/rlconfig").await.body;
        dump.contains("requests_per_unit=7").then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_commands_ask_a_running_service() {
    let file = rules(RULES);
    let process = Process::start(&["serve", "--rules", path(&file)], &[]);
    let grpc = process.address("grpc").await.to_string();
    let asked = [
        "decide",
        "--address",
        &grpc,
        "--domain",
        "d",
        "--descriptor",
        "k=v",
    ];
    let ask = || {
        let output = run(&asked, &[]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = ask();
    assert_eq!(code, Some(0));
    assert!(
        text.starts_with("allowed\n  k=v: allowed, 1 of 2 per hour left, resets in "),
        "{text}"
    );
    ask();
    let (code, text) = ask();
    assert_eq!(code, Some(1));
    assert!(text.starts_with("over limit\n"), "{text}");
    assert_eq!(
        run(&["healthcheck", "--address", &grpc], &[]).status.code(),
        Some(0)
    );

    let nobody = "127.0.0.1:1";
    let output = run(
        &[
            "decide",
            "--address",
            nobody,
            "--domain",
            "d",
            "--descriptor",
            "k=v",
        ],
        &[],
    );
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        run(&["healthcheck", "--address", nobody], &[])
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn every_wrong_setting_is_named_at_once() {
    let output = run(
        &["serve"],
        &[
            ("PORT", "http"),
            ("SHADOW_MODE", "maybe"),
            ("STORE_TIMEOUT", "10"),
            ("REDIS_URL", "redis://:hunter2@nowhere"),
        ],
    );
    assert_eq!(output.status.code(), Some(64));
    let text = String::from_utf8_lossy(&output.stderr);
    for said in [
        "PORT: \"http\" is not allowed: expected a port",
        "SHADOW_MODE: \"maybe\" is not allowed: expected true or false",
        "STORE_TIMEOUT: \"10\" is not allowed: expected a duration",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_port_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let output = run(
        &["serve"],
        &[("GRPC_HOST", "127.0.0.1"), ("GRPC_PORT", &port)],
    );
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("GRPC_HOST, GRPC_PORT"), "{text}");
}

#[test]
fn without_arguments_it_explains_itself() {
    let output = run(&[], &[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("Usage: palang <COMMAND>"), "{text}");
}

#[tokio::test]
async fn under_the_references_name_it_serves() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let binary = home.path().join("ratelimit");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_palang"), &binary).expect("a link");
    let config = home.path().join("data/ratelimit/config");
    std::fs::create_dir_all(&config).expect("a directory");
    std::fs::write(config.join("rules.yaml"), RULES).expect("the rules are written");
    let root = home.path().join("data");
    let process = Process::start_as(
        binary.to_str().expect("a UTF-8 path"),
        &[],
        &[
            ("RUNTIME_ROOT", root.to_str().expect("a UTF-8 path")),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("RUNTIME_IGNOREDOTFILES", "true"),
            ("HOST", "::"),
            ("GRPC_HOST", "::"),
        ],
    );
    let mut http = process.address("http").await;
    http.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    let body = br#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
    assert_eq!(post(http, "/json", body).await.status, 200);
}
