//! A real Envoy in front of a backend of our own, asking a rate limit service at an address the test gives.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{eventually, http};

/// A running Envoy; killed when dropped.
#[derive(Debug)]
pub(crate) struct Envoy {
    process: Child,
    front: SocketAddr,
    // Holds the configuration and the logs for as long as the process reads and writes them.
    _home: TempDir,
}

/// What Envoy does when the rate limit service gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureMode {
    Allow,
    Deny,
}

impl Envoy {
    /// Starts Envoy on free ports, with `routes` in front of `backend` and the service at `limiter`.
    pub(crate) async fn start(
        limiter: SocketAddr,
        backend: SocketAddr,
        failure_mode: FailureMode,
        routes: Value,
    ) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        let config = home.path().join("envoy.json");
        let admin = home.path().join("admin");
        let document = bootstrap(limiter, backend, failure_mode, &routes);
        std::fs::write(&config, document.to_string()).expect("the configuration is written");
        let log = std::fs::File::create(home.path().join("log")).expect("a log file");
        let process = Command::new(binary())
            .args(["--use-dynamic-base-id", "--concurrency", "1"])
            .arg("--config-path")
            .arg(&config)
            .arg("--admin-address-path")
            .arg(&admin)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("Envoy starts: `make tools` installs it");
        let mut envoy = Self {
            process,
            front: SocketAddr::from(([127, 0, 0, 1], 0)),
            _home: home,
        };
        let admin: SocketAddr = eventually("Envoy names its admin port", async || {
            std::fs::read_to_string(&admin).ok()?.trim().parse().ok()
        })
        .await;
        envoy.front = eventually("Envoy listens", async || {
            let answer = http::get(admin, "/listeners?format=json", &[]).await.ok()?;
            let listeners: Value = serde_json::from_str(&answer.body).ok()?;
            let address = &listeners["listener_statuses"][0]["local_address"]["socket_address"];
            let port = u16::try_from(address["port_value"].as_u64()?).ok()?;
            Some(SocketAddr::from(([127, 0, 0, 1], port)))
        })
        .await;
        envoy
    }

    /// A GET through Envoy.
    pub(crate) async fn get(&self, path: &str, headers: &[(&str, &str)]) -> http::Answer {
        http::get(self.front, path, headers)
            .await
            .expect("Envoy answers")
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn binary() -> PathBuf {
    let installed = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/tools/bin/envoy");
    if installed.exists() {
        installed
    } else {
        PathBuf::from("envoy")
    }
}

fn bootstrap(
    limiter: SocketAddr,
    backend: SocketAddr,
    failure_mode: FailureMode,
    routes: &Value,
) -> Value {
    json!({
        "admin": {"address": socket(SocketAddr::from(([127, 0, 0, 1], 0)))},
        "static_resources": {
            "listeners": [{
                "name": "front",
                "address": socket(SocketAddr::from(([127, 0, 0, 1], 0))),
                "filter_chains": [{"filters": [{
                    "name": "http",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                        "stat_prefix": "front",
                        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
                        "http_filters": [
                            {
                                "name": "envoy.filters.http.ratelimit",
                                "typed_config": {
                                    "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
                                    "domain": "edge",
                                    "failure_mode_deny": failure_mode == FailureMode::Deny,
                                    // Envoy's default is 20 ms; a debug build on a busy test machine gets more.
                                    "timeout": format!("{}s", Duration::from_secs(2).as_secs()),
                                    "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
                                    "enable_retry_after_header": true,
                                    "rate_limit_service": {
                                        "transport_api_version": "V3",
                                        "grpc_service": {"envoy_grpc": {"cluster_name": "palang"}}
                                    }
                                }
                            },
                            {
                                "name": "envoy.filters.http.router",
                                "typed_config": {
                                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
                                }
                            }
                        ]
                    }
                }]}]
            }],
            "clusters": [
                cluster("backend", backend),
                http2(cluster("palang", limiter))
            ]
        }
    })
}

fn http2(mut cluster: Value) -> Value {
    cluster["typed_extension_protocol_options"] = json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}}
        }
    });
    cluster
}

fn cluster(name: &str, at: SocketAddr) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket(at)}}]}]
        }
    })
}

fn socket(at: SocketAddr) -> Value {
    json!({"socket_address": {"address": at.ip().to_string(), "port_value": at.port()}})
}
