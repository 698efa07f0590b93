//! Deployments of envoyproxy/ratelimit as others publish them, with nothing changed but the image: the whole
//! environment, ports, mounts and names, a root that is read only, nobody's uid.
//!
//! So a decision has the time that it has by itself, and on a busy machine one may be too late: where a limit is
//! measured, a value whose calls did not all come in time is left for another one.

use std::{fs, net::SocketAddr, os::unix::fs::symlink, path::PathBuf};

use palang::proto::ratelimit::config::ratelimit::v3::RateLimitUnit;
use tempfile::TempDir;

use crate::{
    server_harness::{get, post},
    support::{
        collector::{Collector, attribute},
        container::{Container, Running},
        eventually,
        pki::Pki,
        redis::RedisServer,
        statsd::Receiver,
        xds::{AfterPush, ControlPlane},
    },
    xds::{chain, config},
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
    value: \"/book/*\"
    rate_limit:
      unit: hour
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
    running: Running,
    map: ConfigMap,
    _redis: RedisServer,
    _home: TempDir,
}

impl Deployment {
    /// Starts with a ConfigMap at `/data/ratelimit/config` and a Redis called `redis`; `more` is what the environment
    /// has besides.
    async fn start(mut container: Container, more: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let map = ConfigMap::mount(home.path().join("ratelimit/config"), RULES);
        let redis = RedisServer::start();
        let url = container.name("redis", redis.open_at(container.neighbour(6379)));
        let rules = container.mount(&map.dir, "/data/ratelimit/config");
        let root = rules.trim_end_matches("/ratelimit/config").to_owned();
        let mut env = vec![
            ("LOG_LEVEL", "debug"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", url.as_str()),
            ("USE_STATSD", "false"),
            ("RUNTIME_ROOT", root.as_str()),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("RUNTIME_IGNOREDOTFILES", "true"),
        ];
        env.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
        env.extend(more);
        let running = container.run(&env);
        running.at("http", 8080).await;
        running.is_confined(&env);
        Self {
            running,
            map,
            _redis: redis,
            _home: home,
        }
    }
}

fn ask(path: &str) -> Vec<u8> {
    format!(r#"{{"domain":"ratelimit","descriptors":[{{"entries":[{{"key":"PATH","value":"{path}"}}]}}]}}"#)
        .into_bytes()
}

/// The answer that stays the same, once one comes in time.
async fn decided(http: SocketAddr, body: &[u8]) -> u16 {
    eventually("an answer", async || {
        let status = post(http, "/json", body).await.status;
        (status != 503).then_some(status)
    })
    .await
}

/// Finds, by the first value whose first call is answered in time, that one call is let in and no second. The value.
async fn lets_one_in(http: SocketAddr, body: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let fresh = eventually("a first call that is answered", async || {
        let body = body(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        match post(http, "/json", &body).await.status {
            503 => None,
            status => Some((status, body)),
        }
    })
    .await;
    assert_eq!(fresh.0, 200);
    assert_eq!(decided(http, &fresh.1).await, 429);
    fresh.1
}

/// The rules of the mount decide, and a new version of it is in force soon.
async fn serves_and_reloads(deployment: &mut Deployment) {
    let http = deployment.running.at("http", 8080).await;
    eventually("ready", async || {
        (get(http, "/healthcheck").await.status == 200).then_some(())
    })
    .await;
    let book = lets_one_in(http, |number| ask(&format!("/book/{number}"))).await;
    assert_eq!(decided(http, &ask("/other")).await, 200);
    let rules = RULES.replace("requests_per_unit: 1\n", "requests_per_unit: 500\n");
    deployment.map.update(&rules);
    // The debug port is on the loopback, which a neighbour does not reach.
    eventually("the new rules", async || {
        let page = deployment.running.page("debug", "127.0.0.1", "/rlconfig");
        page.await
            .contains("PATH_/productpage: unit=MINUTE requests_per_unit=500")
            .then_some(())
    })
    .await;
    assert_eq!(decided(http, &book).await, 200);
    let metrics = deployment.running.at("metrics", 9090).await;
    let metrics = get(metrics, "/metrics").await.body;
    assert!(metrics.contains("ratelimit_service_config_load_success 2"));
    assert!(metrics.contains("ratelimit_service_config_load_error 0"));
    let grpc = deployment.running.at("grpc", 8081).await;
    crate::server_harness::connect(grpc).await;
}

/// Istio's samples/ratelimit/rate-limit-service.yaml.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn istios_sample_deployment() {
    let all = [("HOST", "::"), ("GRPC_HOST", "::")];
    let mut deployment = Deployment::start(Container::new(), &all).await;
    serves_and_reloads(&mut deployment).await;
    // `::` is every address there is, of both kinds.
    for ip in ["127.0.0.1", "::1"] {
        let page = deployment.running.page("http", ip, "/healthcheck").await;
        assert_eq!(page, "OK", "{ip}");
    }
}

/// Contour's examples/ratelimit/02-ratelimit.yaml: no HOST.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn contours_sample_deployment() {
    let mut deployment = Deployment::start(Container::new(), &[]).await;
    serves_and_reloads(&mut deployment).await;
}

/// The reference's own docker-compose example: statsd over TCP, a runtime below /data, the root's link is swapped.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_references_compose_example() {
    let mut container = Container::new();
    let receiver = Receiver::tcp_at(container.neighbour(9125));
    let name = container.name("statsd", receiver.address());
    let (host, port) = name.rsplit_once(':').expect("a port");
    let deployment = Deployment::start(
        container,
        &[
            ("USE_STATSD", "true"),
            ("STATSD_HOST", host),
            ("STATSD_PORT", port),
            // Theirs is 10 seconds by default.
            ("STATS_FLUSH_INTERVAL", "50ms"),
        ],
    )
    .await;
    let http = deployment.running.at("http", 8080).await;
    assert_eq!(decided(http, &ask("/x")).await, 200);
    let hits = "ratelimit.service.rate_limit.ratelimit.PATH.total_hits";
    eventually("the hit", async || (receiver.sum(hits) > 0).then_some(())).await;
}

/// Envoy Gateway 1.9 with Prometheus, traces and a plain Redis: its complete environment, `/data` not mounted.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn envoy_gateways_deployment() {
    let mut container = Container::new();
    let home = tempfile::tempdir().expect("a directory");
    let pki = Pki::new();
    let certs = home.path().join("certs");
    fs::create_dir(&certs).expect("a directory");
    pki.install(&certs);
    // As the Secret is mounted: nobody may read it.
    for name in ["ca.crt", "tls.crt", "tls.key"] {
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o444);
        fs::set_permissions(certs.join(name), readable).expect("permissions");
    }
    let exporter = home.path().join("statsd-exporter");
    fs::create_dir(&exporter).expect("a directory");
    fs::write(exporter.join("conf.yaml"), "mappings: []\n").expect("written");
    let mut plane = ControlPlane::start_at(
        container.neighbour(18001),
        AfterPush::Stay,
        Some(pki.server()),
    );
    let server = container.name("envoy-gateway", plane.address());
    let (collector, traces) = Collector::http_at(container.neighbour(4318)).await;
    let traces = format!("http://{}", container.name("otel-collector", traces));
    let redis = RedisServer::start();
    let url = container.name("redis", redis.open_at(container.neighbour(6379)));
    let mounted = container.mount(&certs, "/certs");
    let [authority, certificate, key] =
        ["ca.crt", "tls.crt", "tls.key"].map(|name| format!("{mounted}/{name}"));
    let mapper = container.mount(&exporter, "/etc/statsd-exporter") + "/conf.yaml";
    let env = [
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_IGNOREDOTFILES", "true"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("LOG_LEVEL", "info"),
        ("USE_STATSD", "false"),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_SERVER_URL", &server),
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", &certificate),
        ("GRPC_SERVER_TLS_KEY", &key),
        ("GRPC_SERVER_TLS_CA_CERT", &authority),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", &certificate),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", &key),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &authority),
        ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", &url),
        ("USE_PROMETHEUS", "true"),
        ("PROMETHEUS_ADDR", ":19001"),
        ("PROMETHEUS_MAPPER_YAML", &mapper),
        ("TRACING_ENABLED", "true"),
        ("TRACING_SERVICE_NAME", "envoy-ratelimit"),
        ("TRACING_SERVICE_NAMESPACE", "envoy-gateway-system"),
        ("TRACING_SERVICE_INSTANCE_ID", "envoy-ratelimit-6c4f"),
        ("TRACING_SAMPLING_RATE", "1.0"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &traces),
    ];
    let running = container.run(&env);
    let (http, metrics) = (
        running.at("http", 8080).await,
        running.at("metrics", 19001).await,
    );
    running.is_confined(&env);
    // The probes pass before there are rules, and calls fail, which the gateway takes for its failure mode.
    eventually("ready", async || {
        (get(http, "/healthcheck").await.status == 200).then_some(())
    })
    .await;
    let ask = |user: usize| {
        format!(
            r#"{{"domain":"eg/http","descriptors":[{{"entries":[
                {{"key":"httproute/ns/backend/rule/0/match/0/host","value":"httproute/ns/backend/rule/0/match/0/host"}},
                {{"key":"rule-0-match-0","value":"user-{user}"}}]}}]}}"#
        )
        .into_bytes()
    };
    let shown = async |line: &str| {
        eventually(line, async || {
            let page = get(metrics, "/metrics").await.body;
            page.lines()
                .any(|found| found.starts_with(line))
                .then_some(())
        })
        .await;
    };
    assert_eq!(post(http, "/json", &ask(0)).await.status, 503);
    shown("palang_xds_last_update_age_seconds ").await;
    shown("palang_xds_version_info{version=\"\"} 1").await;

    let route = "httproute/ns/backend/rule/0/match/0/host";
    // Distinct values: the key without a value, each with a counter of its own.
    let distinct = [(route, route), ("rule-0-match-0", "")];
    let rule = chain(&distinct, (RateLimitUnit::Week, 1), false);
    plane.push(&[config("eg/http", vec![rule])]);
    shown("palang_xds_version_info{version=\"1\"} 1").await;
    let spent = lets_one_in(http, ask).await;
    lets_one_in(http, |user| ask(user + 1_000)).await;

    // As Envoy there: it trusts the authority, and takes any name that it vouches for.
    let grpc = running.at("grpc", 8081).await;
    let handshake = std::process::Command::new("openssl")
        .args(["s_client", "-verify_return_error", "-alpn", "h2"])
        .args(["-connect", &grpc.to_string()])
        .arg("-CAfile")
        .arg(certs.join("ca.crt"))
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl runs");
    let said = String::from_utf8_lossy(&handshake.stdout);
    assert!(
        handshake.status.success() && said.contains("ALPN protocol: h2"),
        "{said}"
    );

    shown("palang_xds_connected 1").await;
    shown("palang_xds_last_update_age_seconds ").await;
    shown("palang_xds_rejected_total 0").await;
    eventually("who sends the traces", async || {
        (!collector.spans().is_empty()).then_some(())
    })
    .await;
    for (name, text) in [
        ("service.name", "envoy-ratelimit"),
        ("service.namespace", "envoy-gateway-system"),
        ("service.instance.id", "envoy-ratelimit-6c4f"),
    ] {
        let resource = collector.resource().expect("who sent it");
        let found = attribute(&resource.attributes, name);
        assert_eq!(found.as_deref(), Some(text), "{name}");
    }

    // A push that is no good changes nothing but what operators see.
    let twice = chain(&distinct, (RateLimitUnit::Week, 9), false);
    plane.push(&[config("eg/http", vec![twice.clone(), twice])]);
    shown("ratelimit_service_config_load_error 1").await;
    let body = get(metrics, "/metrics").await.body;
    // The control plane insists: it may have been refused several times by now.
    assert!(!body.contains("palang_xds_rejected_total 0"), "{body}");
    shown("palang_xds_version_info{version=\"1\"} 1").await;
    let page = running.page("debug", "127.0.0.1", "/rlconfig").await;
    assert!(
        page.starts_with("# stale, all as they last were: "),
        "{page}"
    );
    assert!(page.contains("unit=WEEK requests_per_unit=1,"), "{page}");
    assert_eq!(decided(http, &spent).await, 429);
}
