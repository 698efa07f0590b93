//! The log of the real process: which level what is at, and which form it has for whom.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use serde_json::Value;

use crate::{
    debug_port::request,
    support::{eventually, process::Process, service::channel},
};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1}
";

#[tokio::test]
async fn a_decision_is_at_debug_a_change_of_state_at_info_and_what_to_act_on_at_warn() {
    let rules = tempfile::tempdir().expect("a directory for the rules");
    std::fs::write(rules.path().join("shop.yaml"), RULES).expect("the rules are written");
    let path = rules.path().display().to_string();
    let env = [("PALANG_RULES", &*path), ("LOG_LEVEL", "debug")];
    let mut process = Process::start(&["serve"], &env);
    let mut client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
    process.ready().await;
    for domain in ["shop", "nobody"] {
        let asked = client.should_rate_limit(request(domain, &[&[("user", "7")]]));
        asked.await.expect("decided");
    }
    let about = |what: &str| -> Option<Value> {
        let mut records = process.records().into_iter();
        records.find(|record| record.to_string().contains(what))
    };
    let unknown = eventually("the unknown domain is told of", async || {
        about("no rules for this domain")
    })
    .await;
    assert_eq!(unknown["level"], "warning", "{unknown}");
    let decided = about("\"decided\"").expect("the decision is told of");
    assert_eq!(decided["level"], "debug", "{decided}");
    let listening = about("\"listening\"").expect("the start is told of");
    assert_eq!(listening["level"], "info", "{listening}");
    process.signal("TERM");
    assert!(process.wait(Duration::from_secs(10)).await.success());
    let stopped = process.records().pop().expect("the end is told of");
    assert_eq!(stopped["level"], "info", "{stopped}");
}

/// The log of a start on a terminal, whose command may lead it elsewhere by `plumbing`.
fn start_on_a_terminal(plumbing: &str) -> String {
    let command = format!(
        "sh -c '{} serve & echo pid=$! >&2; wait' {plumbing}",
        env!("CARGO_BIN_EXE_palang")
    );
    let mut script = Command::new("script")
        .args(["--quiet", "--command", &command, "/dev/null"])
        .envs([
            ("GRPC_PORT", "0"),
            ("PORT", "0"),
            ("DEBUG_PORT", "0"),
            ("PROMETHEUS_ADDR", "127.0.0.1:0"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script is part of util-linux");
    let output = script.stdout.take().expect("stdout is piped");
    let (mut log, mut pid) = (String::new(), None);
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if let Some((_, number)) = line.split_once("pid=") {
            pid = Some(number.trim().to_owned());
        }
        log.push_str(&line);
        log.push('\n');
        if log.contains("listening")
            && let Some(pid) = pid.take()
        {
            let kill = Command::new("kill").args(["-s", "TERM", &pid]).status();
            assert!(kill.expect("kill runs").success());
        }
    }
    script.wait().expect("it ends");
    log
}

#[test]
fn a_terminal_gets_text_and_a_program_json() {
    let text = start_on_a_terminal("");
    assert!(text.contains("listening") && !text.contains('{'), "{text}");
    let json = start_on_a_terminal("2>&1 | cat");
    assert!(json.contains("\"@message\":\"listening\""), "{json}");
}
