//! What Debian's Prometheus makes of our metrics, and its tool's opinion of them.

use std::{
    io::Write as _,
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{
    server_harness::{get, post},
    support::{eventually, process::Process},
};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    value: v
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: idle
    rate_limit: {unit: hour, requests_per_unit: 2}
";

/// A private Prometheus that scrapes one target each second. Killed when dropped.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _home: tempfile::TempDir,
}

impl Prometheus {
    fn scraping(target: SocketAddr) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let config = home.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n  - job_name: palang\n    static_configs:\n      - \
             targets: ['{target}']\n"
        );
        std::fs::write(&config, text).expect("the configuration is written");
        let address = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                home.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus is installed: scripts/tools.sh");
        Self {
            child,
            address,
            _home: home,
        }
    }

    /// The value of the only series that an expression gives; `None` while there is none.
    async fn query(&self, expression: &str) -> Option<f64> {
        let escaped: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect();
        let path = format!("/api/v1/query?query={escaped}");
        let answer = crate::support::http::get(self.address, &path, &[])
            .await
            .ok()?;
        let body: Value = serde_json::from_str(&answer.body).ok()?;
        let series = body["data"]["result"].as_array()?;
        match series.as_slice() {
            [one] => one["value"][1].as_str()?.parse().ok(),
            _ => None,
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn service(rules: &tempfile::TempDir) -> Process {
    std::fs::write(rules.path().join("rules.yaml"), RULES).expect("the rules are written");
    let path = rules.path().to_str().expect("a UTF-8 path");
    let process = Process::start(
        &["serve"],
        &[("PALANG_RULES", path), ("USE_PROMETHEUS", "true")],
    );
    let body = br#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
    for _ in 0..3 {
        post(process.address("http").await, "/json", body).await;
    }
    process
}

#[tokio::test]
async fn a_real_prometheus_reads_the_series_that_dashboards_ask_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let process = service(&dir).await;
    let prometheus = Prometheus::scraping(process.address("metrics").await);
    for (expression, value) in [
        (
            "ratelimit_service_rate_limit_total_hits{domain=\"d\",key1=\"k_v\"}",
            3.0,
        ),
        (
            "ratelimit_service_rate_limit_over_limit{domain=\"d\",key1=\"k_v\"}",
            1.0,
        ),
        (
            "ratelimit_service_rate_limit_within_limit{domain=\"d\",key1=\"k_v\"}",
            2.0,
        ),
        (
            "ratelimit_service_rate_limit_near_limit{domain=\"d\",key1=\"k_v\"}",
            1.0,
        ),
        (
            "ratelimit_service_rate_limit_shadow_mode{domain=\"d\",key1=\"k_v\"}",
            0.0,
        ),
        (
            "ratelimit_service_rate_limit_total_hits{domain=\"d\",key1=\"idle\"}",
            0.0,
        ),
        ("ratelimit_service_config_load_success", 1.0),
        ("ratelimit_service_config_load_error", 0.0),
        ("palang_rules_stale_files", 0.0),
        (
            "count(ratelimit_service_response_time_seconds_bucket{grpc_method=\"ShouldRateLimit\",le=\"1.0\"}) or \
          count(ratelimit_service_response_time_seconds_bucket{grpc_method=\"ShouldRateLimit\",le=\"1\"})",
            1.0,
        ),
        ("up{job=\"palang\"}", 1.0),
    ] {
        eventually(&format!("{expression} is {value}"), async || {
            (prometheus.query(expression).await == Some(value)).then_some(())
        })
        .await;
    }
    let memory = prometheus.query("process_resident_memory_bytes").await;
    assert!(memory.is_some_and(|bytes| bytes > 1e6), "{memory:?}");
}

#[tokio::test]
async fn promtool_finds_nothing_wrong() {
    let dir = tempfile::tempdir().expect("a directory");
    let process = service(&dir).await;
    let metrics = get(process.address("metrics").await, "/metrics").await.body;
    let mut tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed: scripts/tools.sh");
    tool.stdin
        .take()
        .expect("stdin is piped")
        .write_all(metrics.as_bytes())
        .expect("promtool reads");
    let output = tool.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

/// The port is somebody else's: only a process that wants it minds.
#[tokio::test]
async fn no_metrics_port_is_open_where_nobody_wants_one() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let start = |settings: &[(&str, &str)]| {
        let all = [&[("PROMETHEUS_ADDR", address.as_str())], settings].concat();
        Process::start(&["serve"], &all)
    };
    for without in [
        &[("USE_PROMETHEUS", "false")][..],
        &[("USE_PROMETHEUS", "F"), ("USE_STATSD", "false")],
        &[("DISABLE_STATS", "true")],
        &[("DISABLE_STATS", "true"), ("USE_PROMETHEUS", "true")],
    ] {
        let process = start(without);
        process.address("debug").await;
        let open: Vec<_> = process
            .records()
            .into_iter()
            .filter(|record| record["@message"] == "listening")
            .map(|record| record["port"].clone())
            .collect();
        assert_eq!(open, ["grpc", "http", "debug"], "{without:?}");
    }
    for with in [
        &[][..],
        &[("USE_PROMETHEUS", "")],
        &[("USE_PROMETHEUS", "true")],
        &[("USE_STATSD", "false")],
        &[("USE_STATSD", "true")],
    ] {
        let mut process = start(with);
        let status = process.wait(std::time::Duration::from_secs(20)).await;
        assert_eq!(status.code(), Some(1), "{with:?}: the port is taken");
    }
}
