//! Deployments of envoyproxy/ratelimit as others publish them, with nothing changed but the image: environment, mounts
//! and paths. The binary is called `ratelimit` and gets no arguments, as in theirs.

use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    server_harness::{get, post},
    support::{eventually, process::Process, redis::RedisServer},
};

const RULES: &str = "\
domain: ratelimit
descriptors:
  - key: PATH
    value: \"/productpage\"
    rate_limit:
      unit: minute
      requests_per_unit: 1
  - key: PATH
    rate_limit:
      unit: minute
      requests_per_unit: 100
";

/// A ConfigMap as the kubelet mounts it: the files are links through `..data`, which is swapped.
struct ConfigMap {
    dir: PathBuf,
    version: usize,
}

impl ConfigMap {
    fn mount(dir: PathBuf, text: &str) -> Self {
        fs::create_dir_all(&dir).expect("a directory");
        let mut map = Self { dir, version: 0 };
        map.update(text);
        symlink("..data/config.yaml", map.dir.join("config.yaml")).expect("a link");
        map
    }

    fn update(&mut self, text: &str) {
        let old = format!("..2026_11_30_{}", self.version);
        self.version += 1;
        let new = format!("..2026_11_30_{}", self.version);
        fs::create_dir(self.dir.join(&new)).expect("a directory");
        fs::write(self.dir.join(&new).join("config.yaml"), text).expect("written");
        let data = self.dir.join("..data_tmp");
        symlink(&new, &data).expect("a link");
        fs::rename(&data, self.dir.join("..data")).expect("the link is swapped");
        // The first version has no predecessor.
        let _ = fs::remove_dir_all(self.dir.join(old));
    }
}

struct Deployment {
    process: Process,
    map: ConfigMap,
    _redis: RedisServer,
    _home: TempDir,
}

impl Deployment {
    /// Starts with `/data/ratelimit/config` mounted, a Redis over TCP, and this environment besides.
    fn start(env: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let map = ConfigMap::mount(home.path().join("data/ratelimit/config"), RULES);
        let redis = RedisServer::start();
        let url = format!("127.0.0.1:{}", redis.open_port());
        let root = home.path().join("data");
        let binary = named_ratelimit(home.path());
        let mut all = vec![
            ("LOG_LEVEL", "debug"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", url.as_str()),
            ("USE_STATSD", "false"),
            ("RUNTIME_ROOT", root.to_str().expect("a UTF-8 path")),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("RUNTIME_IGNOREDOTFILES", "true"),
        ];
        all.extend(env);
        let process = Process::start_as(binary.to_str().expect("a UTF-8 path"), &[], &all);
        Self {
            process,
            map,
            _redis: redis,
            _home: home,
        }
    }

    async fn port(&self, name: &str, ip: impl Into<std::net::IpAddr>) -> SocketAddr {
        SocketAddr::new(ip.into(), self.process.address(name).await.port())
    }
}

fn named_ratelimit(home: &Path) -> PathBuf {
    let binary = home.join("ratelimit");
    symlink(env!("CARGO_BIN_EXE_palang"), &binary).expect("a link");
    binary
}

fn ask(path: &str) -> Vec<u8> {
    format!(r#"{{"domain":"ratelimit","descriptors":[{{"entries":[{{"key":"PATH","value":"{path}"}}]}}]}}"#)
        .into_bytes()
}

/// The rules of the mount decide, and a new version of it is in force soon.
async fn serves_and_reloads(deployment: &mut Deployment, http: SocketAddr, debug: SocketAddr) {
    assert_eq!(get(http, "/healthcheck").await.status, 200);
    let decide = async |path: &str| post(http, "/json", &ask(path)).await.status;
    // The first call may find the connection to Redis still being made.
    eventually("the first decision", async || {
        (decide("/productpage").await == 200).then_some(())
    })
    .await;
    assert_eq!(decide("/productpage").await, 429);
    assert_eq!(decide("/other").await, 200);
    let rules = RULES.replace("requests_per_unit: 1\n", "requests_per_unit: 5\n");
    deployment.map.update(&rules);
    eventually("the new rules", async || {
        let page = get(debug, "/rlconfig").await.body;
        page.contains("PATH_/productpage: unit=MINUTE requests_per_unit=5")
            .then_some(())
    })
    .await;
    assert_eq!(decide("/productpage").await, 200);
    let metrics = deployment.port("metrics", Ipv4Addr::LOCALHOST).await;
    let metrics = get(metrics, "/metrics").await.body;
    assert!(metrics.contains("ratelimit_service_config_load_success 2"));
    assert!(metrics.contains("ratelimit_service_config_load_error 0"));
}

/// Istio's samples/ratelimit/rate-limit-service.yaml.
#[tokio::test]
async fn istios_sample_deployment() {
    let mut deployment = Deployment::start(&[("HOST", "::"), ("GRPC_HOST", "::")]);
    let http = deployment.port("http", Ipv4Addr::LOCALHOST).await;
    let debug = deployment.port("debug", Ipv4Addr::LOCALHOST).await;
    serves_and_reloads(&mut deployment, http, debug).await;
    // `::` is every address there is, of both kinds.
    let http = deployment.port("http", Ipv6Addr::LOCALHOST).await;
    assert_eq!(get(http, "/healthcheck").await.body, "OK");
    for ip in ["127.0.0.1", "::1"] {
        let grpc = deployment
            .port("grpc", ip.parse::<std::net::IpAddr>().expect("an address"))
            .await;
        crate::server_harness::connect(grpc).await;
    }
}

/// Contour's examples/ratelimit/02-ratelimit.yaml: no HOST, and debug port and gRPC port as they are by themselves.
#[tokio::test]
async fn contours_sample_deployment() {
    let mut deployment = Deployment::start(&[]);
    let http = deployment.port("http", Ipv4Addr::LOCALHOST).await;
    let debug = deployment.port("debug", Ipv4Addr::LOCALHOST).await;
    serves_and_reloads(&mut deployment, http, debug).await;
}

/// The reference's own docker-compose example: statsd over TCP, a runtime below /data, the root's link is swapped.
#[tokio::test]
async fn the_references_compose_example() {
    let receiver = crate::support::statsd::Receiver::tcp();
    let port = receiver.address().port().to_string();
    let deployment = Deployment::start(&[
        ("USE_STATSD", "true"),
        ("STATSD_HOST", "127.0.0.1"),
        ("STATSD_PORT", &port),
        ("STATS_FLUSH_INTERVAL", "50ms"),
    ]);
    let http = deployment.port("http", Ipv4Addr::LOCALHOST).await;
    eventually("a decision", async || {
        (post(http, "/json", &ask("/x")).await.status == 200).then_some(())
    })
    .await;
    receiver
        .line("ratelimit.service.rate_limit.ratelimit.PATH.total_hits:1|c")
        .await;
}
