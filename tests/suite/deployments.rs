//! Deployments of envoyproxy/ratelimit as others publish them, with nothing changed but the image: environment, mounts
//! and paths. The binary is called `ratelimit` and gets no arguments, as in theirs.

use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
};

use palang::proto::ratelimit::config::ratelimit::v3::RateLimitUnit;
use tempfile::TempDir;

use crate::{
    server_harness::{get, post},
    support::{
        eventually,
        pki::Pki,
        process::Process,
        redis::RedisServer,
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
            // Theirs is not set. A debug build on a busy machine is given more time than a proxy would give.
            ("STORE_TIMEOUT", "5s"),
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
    eventually("ready", async || {
        (get(http, "/healthcheck").await.status == 200).then_some(())
    })
    .await;
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

/// The container of Envoy Gateway 1.9: its complete environment, nobody's uid, no directory to write to, `/data` not
/// mounted.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn envoy_gateways_deployment() {
    let home = tempfile::tempdir().expect("a directory");
    let pki = Pki::new();
    let certs = home.path().join("certs");
    fs::create_dir(&certs).expect("a directory");
    pki.install(&certs);
    let files = ["ca.crt", "tls.crt", "tls.key"].map(|name| certs.join(name));
    for (path, mode) in files
        .iter()
        .map(|file| (file.as_path(), 0o444))
        .chain([(home.path(), 0o555), (certs.as_path(), 0o555)])
    {
        // The link of the binary comes first.
        if path == home.path() {
            named_ratelimit(path);
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    }
    let [authority, certificate, key] = files.map(|file| file.display().to_string());
    let mut plane = ControlPlane::start_with(AfterPush::Stay, Some(pki.server()));
    let server = format!("localhost:{}", plane.address().port());
    let redis = RedisServer::start();
    let url = format!("127.0.0.1:{}", redis.open_port());
    let binary = home.path().join("ratelimit").display().to_string();
    let mut command = nobody();
    command.push(binary.as_str());
    let process = Process::start_as(
        command[0],
        &command[1..],
        &[
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
            ("STORE_TIMEOUT", "5s"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", &url),
            ("USE_PROMETHEUS", "true"),
            ("PROMETHEUS_ADDR", ":0"),
            ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
        ],
    );
    let [http, metrics] = [
        process.address("http").await,
        process.address("metrics").await,
    ]
    .map(|address| SocketAddr::from((Ipv4Addr::LOCALHOST, address.port())));
    // The probes pass before there are rules, and calls fail, which the gateway takes for its failure mode.
    eventually("ready", async || {
        (get(http, "/healthcheck").await.status == 200).then_some(())
    })
    .await;
    let ask = |user: &str| {
        format!(
            r#"{{"domain":"eg/http","descriptors":[{{"entries":[
                {{"key":"httproute/ns/backend/rule/0/match/0/host","value":"httproute/ns/backend/rule/0/match/0/host"}},
                {{"key":"rule-0-match-0","value":"{user}"}}]}}]}}"#
        )
        .into_bytes()
    };
    assert_eq!(post(http, "/json", &ask("ann")).await.status, 503);

    let route = "httproute/ns/backend/rule/0/match/0/host";
    // Distinct values: the key without a value, each with a counter of its own.
    let distinct = [(route, route), ("rule-0-match-0", "")];
    let rule = chain(&distinct, (RateLimitUnit::Week, 1), false);
    plane.push(&[config("eg/http", vec![rule])]);
    eventually("the first decision", async || {
        (post(http, "/json", &ask("ann")).await.status == 200).then_some(())
    })
    .await;
    assert_eq!(post(http, "/json", &ask("ann")).await.status, 429);
    assert_eq!(post(http, "/json", &ask("bob")).await.status, 200);

    // As Envoy there: it trusts the authority, and takes any name that it vouches for.
    let grpc = process.address("grpc").await.port();
    let handshake = std::process::Command::new("openssl")
        .args(["s_client", "-verify_return_error", "-alpn", "h2"])
        .args(["-connect", &format!("127.0.0.1:{grpc}")])
        .args(["-CAfile", &authority])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl runs");
    let said = String::from_utf8_lossy(&handshake.stdout);
    assert!(
        handshake.status.success() && said.contains("ALPN protocol: h2"),
        "{said}"
    );

    let shown = async |line: &str| {
        eventually(line, async || {
            let page = get(metrics, "/metrics").await.body;
            page.lines()
                .any(|found| found.starts_with(line))
                .then_some(())
        })
        .await;
    };
    shown("palang_xds_connected 1").await;
    shown("palang_xds_version_info{version=\"1\"} 1").await;
    shown("palang_xds_last_update_age_seconds ").await;
    shown("palang_xds_rejected_total 0").await;

    // A push that is no good changes nothing but what operators see.
    let twice = chain(&distinct, (RateLimitUnit::Week, 9), false);
    plane.push(&[config("eg/http", vec![twice.clone(), twice])]);
    shown("ratelimit_service_config_load_error 1").await;
    let body = get(metrics, "/metrics").await.body;
    // The control plane insists: it may have been refused several times by now.
    assert!(!body.contains("palang_xds_rejected_total 0"), "{body}");
    shown("palang_xds_version_info{version=\"1\"} 1").await;
    let debug = process.address("debug").await;
    let page = get(debug, "/rlconfig").await.body;
    assert!(
        page.starts_with("# stale, all as they last were: "),
        "{page}"
    );
    assert!(page.contains("unit=WEEK requests_per_unit=1,"), "{page}");
    assert_eq!(post(http, "/json", &ask("bob")).await.status, 429);
}

/// What runs a command without any rights, as far as this test's own rights allow to give some up.
fn nobody() -> Vec<&'static str> {
    let setpriv = "/usr/bin/setpriv";
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if root && Path::new(setpriv).exists() {
        vec![setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"]
    } else {
        vec!["/usr/bin/env"]
    }
}
