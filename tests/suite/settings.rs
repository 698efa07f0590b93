//! Settings as deployments of envoyproxy/ratelimit write them.

use std::process::{Command, Output};

use crate::{
    server_harness::{get, post},
    support::{eventually, pki::Pki, process::Process},
};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: {unit: hour, requests_per_unit: 2}
";

const ASK: &[u8] = br#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;

fn refused(env: &[(&str, &str)]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_palang"))
        .arg("serve")
        .env_clear()
        .envs(env.iter().copied())
        .output()
        .expect("the binary runs");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn memcached_is_refused_with_a_sentence() {
    let (code, said) = refused(&[
        ("BACKEND_TYPE", "memcache"),
        ("MEMCACHE_HOST_PORT", "memcached:11211"),
    ]);
    assert_eq!(code, Some(64));
    for variable in ["BACKEND_TYPE", "MEMCACHE_HOST_PORT"] {
        assert!(said.contains(&format!("{variable}: ")), "{said}");
    }
    assert!(said.contains("keep counters in Redis"), "{said}");
}

/// Counters in memory by mistake would grant each limit once for each replica.
#[test]
fn settings_of_a_redis_without_its_address_are_refused() {
    for settings in [
        &[("REDIS_TYPE", "SENTINEL")][..],
        &[("REDIS_AUTH", "hunter2"), ("REDIS_TLS", "true")],
        &[("REDIS_POOL_SIZE", "20"), ("REDIS_URL", "")],
        &[("REDIS_SOCKET_TYPE", "tcp")],
        &[("REDIS_PIPELINE_WINDOW", "150us")],
        &[("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", "true")],
        &[("REDIS_PERSECOND", "true"), ("REDIS_PERSECOND_URL", "a:1")],
        &[("REDIS_PERSECOND_URL", "a:1")],
        &[("REDIS_TYPE", "RING")],
    ] {
        let (code, said) = refused(settings);
        assert_eq!(code, Some(64), "{settings:?}: {said}");
        let line = said.lines().find(|line| line.contains("set REDIS_URL"));
        let line = line.unwrap_or_else(|| panic!("{settings:?}: {said}"));
        for (name, _) in settings.iter().filter(|(name, _)| *name != "REDIS_URL") {
            assert!(line.contains(name), "{name} in {line}");
        }
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn every_mistake_of_several_settings_and_files_is_told_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let (no_pem, absent) = (file("no.pem", "nothing"), "/nowhere/ca.pem");
    let (code, said) = refused(&[
        ("PORT", "http"),
        ("BACKEND_TYPE", "memcache"),
        ("REDIS_TYPE", "sentinel"),
        ("REDIS_URL", "hunter2"),
        ("REDIS_TLS", "true"),
        ("REDIS_TLS_CACERT", absent),
        ("REDIS_TLS_CLIENT_CERT", &no_pem),
        ("REDIS_TLS_CLIENT_KEY", &no_pem),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_URL", "redis://:hunter2@:70000"),
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_KEY", &no_pem),
        ("GRPC_CLIENT_TLS_CACERT", absent),
        ("USE_DOG_STATSD", "true"),
        ("USE_DOG_STATSD_MOGRIFIERS", "A"),
        ("DOG_STATSD_MOGRIFIER_A_PATTERN", "("),
        ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "hunter2"),
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "http://user:hunter2@collector:4318",
        ),
        ("TOP_KEYS", "10001"),
    ]);
    assert_eq!(code, Some(64), "{said}");
    let starts: Vec<&str> = said
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(": ").map(|(setting, _)| setting))
        .collect();
    assert_eq!(
        starts,
        [
            "PORT",
            "TOP_KEYS",
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "BACKEND_TYPE",
            "REDIS_URL",
            "REDIS_TLS_CACERT",
            "REDIS_TLS_CLIENT_CERT",
            "REDIS_TLS_CLIENT_KEY",
            "REDIS_PERSECOND_URL",
            "GRPC_SERVER_TLS_CERT",
            "GRPC_SERVER_TLS_KEY",
            "GRPC_CLIENT_TLS_CACERT",
            "DOG_STATSD_MOGRIFIER_A_NAME",
            "DOG_STATSD_MOGRIFIER_A_PATTERN",
            "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        ],
        "{said}"
    );
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn files_for_the_control_plane_are_looked_at_before_the_start() {
    let (pki, other) = (Pki::new(), Pki::new());
    let path = |pki: &Pki, name| pki.file(name).display().to_string();
    let (certificate, key) = (path(&pki, "tls.crt"), path(&pki, "tls.key"));
    let foreign = path(&other, "tls.key");
    for (files, expected) in [
        (
            ["/nowhere/ca.pem", "", ""],
            "CONFIG_GRPC_XDS_SERVER_TLS_CACERT: ",
        ),
        ([&*key, "", ""], "CONFIG_GRPC_XDS_SERVER_TLS_CACERT: "),
        (
            ["", &certificate, ""],
            "CONFIG_GRPC_XDS_CLIENT_TLS_KEY: is not set",
        ),
        (
            ["", "", &key],
            "CONFIG_GRPC_XDS_CLIENT_TLS_CERT: is not set",
        ),
        (
            ["", &certificate, &certificate],
            "CONFIG_GRPC_XDS_CLIENT_TLS_KEY: ",
        ),
        (
            ["", &certificate, &foreign],
            "CONFIG_GRPC_XDS_CLIENT_TLS_CERT, CONFIG_GRPC_XDS_CLIENT_TLS_KEY: ",
        ),
    ] {
        let [authority, certificate, key] = files;
        let (code, said) = refused(&[
            ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", authority),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", certificate),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", key),
        ]);
        assert_eq!(code, Some(64), "{files:?}: {said}");
        assert!(said.contains(expected), "{files:?}: {said}");
    }
}

#[test]
fn several_addresses_are_no_single_redis() {
    let (code, said) = refused(&[("REDIS_URL", "a:1,b:2")]);
    assert_eq!(code, Some(64), "{said}");
    assert!(
        said.contains("REDIS_URL: ")
            && said.contains("several addresses need REDIS_TYPE cluster or sentinel"),
        "{said}"
    );
}

/// What decides the address's meaning is wrong: nothing is said of the address.
#[test]
fn an_address_is_not_judged_by_a_type_that_is_none() {
    let (code, said) = refused(&[("REDIS_TYPE", "RING"), ("REDIS_URL", "mymaster,a:1,b:2")]);
    assert_eq!(code, Some(64));
    assert!(
        said.contains("REDIS_TYPE: \"RING\" is not allowed"),
        "{said}"
    );
    assert!(!said.contains("REDIS_URL"), "{said}");
}

#[tokio::test]
async fn what_is_not_needed_is_accepted_and_said_once() {
    let redis = crate::support::redis::RedisServer::start();
    let url = format!("127.0.0.1:{}", redis.open_port());
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("rules.yaml"), RULES).expect("written");
    let process = Process::start(
        &["serve"],
        &[
            ("PALANG_RULES", dir.path().to_str().expect("UTF-8")),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("RUNTIME_IGNOREDOTFILES", "T"),
            ("EXPIRATION_JITTER_MAX_SECONDS", "0x10"),
            ("REDIS_URL", &url),
            ("REDIS_PIPELINE_WINDOW", "150us"),
            ("REDIS_PIPELINE_LIMIT", "0"),
            ("REDIS_PERSECOND", "false"),
            ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
            ("GRPC_SERVER_TLS_CA_CERT", "/certs/ca.crt"),
        ],
    );
    process.address("http").await;
    let said: Vec<String> = process
        .records()
        .iter()
        .filter(|record| {
            record["@message"]
                .as_str()
                .is_some_and(|text| text.contains("not needed here"))
        })
        .map(|record| record["setting"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        said,
        [
            "GRPC_SERVER_TLS_CA_CERT",
            "RUNTIME_WATCH_ROOT",
            "RUNTIME_IGNOREDOTFILES",
            "EXPIRATION_JITTER_MAX_SECONDS",
            "PROMETHEUS_MAPPER_YAML",
            "REDIS_PIPELINE_WINDOW",
        ]
    );
}

#[tokio::test]
async fn a_variable_that_is_set_to_nothing_is_not_set() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("ratelimit/config");
    std::fs::create_dir_all(&config).expect("a directory");
    std::fs::write(config.join("rules.yaml"), RULES).expect("written");
    let process = Process::start(
        &["serve"],
        &[
            ("RUNTIME_ROOT", dir.path().to_str().expect("UTF-8")),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("PALANG_RULES", ""),
            ("REDIS_URL", ""),
            ("REDIS_POOL_SIZE", ""),
            ("REDIS_PERSECOND", "false"),
            ("SHADOW_MODE", ""),
            ("NEAR_LIMIT_RATIO", ""),
            ("LIMIT_LIMIT_HEADER", ""),
            ("CONFIG_TYPE", ""),
            ("STATSD_HOST", ""),
            ("STATSD_PORT", ""),
            ("STATS_FLUSH_INTERVAL", ""),
            ("MEMCACHE_HOST_PORT", ""),
            ("BACKEND_TYPE", ""),
            ("GRPC_MAX_CONNECTION_AGE", ""),
        ],
    );
    let http = process.address("http").await;
    assert_eq!(post(http, "/json", ASK).await.status, 200);
}

/// The reference silently stops to reload when RUNTIME_ROOT ends in a slash.
#[tokio::test]
async fn slashes_around_the_parts_of_the_path_say_nothing() {
    let home = tempfile::tempdir().expect("a directory");
    for (version, limit) in [("one", "2"), ("two", "7")] {
        let config = home.path().join(version).join("ratelimit/config");
        std::fs::create_dir_all(&config).expect("a directory");
        let rules = RULES.replace(
            "requests_per_unit: 2",
            &format!("requests_per_unit: {limit}"),
        );
        std::fs::write(config.join("rules.yaml"), rules).expect("written");
    }
    let current = home.path().join("current");
    std::os::unix::fs::symlink("one", &current).expect("a link");
    let root = format!("{}/", current.display());
    let process = Process::start(
        &["serve"],
        &[
            ("RUNTIME_ROOT", &root),
            ("RUNTIME_SUBDIRECTORY", "/ratelimit/"),
            ("RUNTIME_APPDIRECTORY", "config/"),
            ("MERGE_DOMAIN_CONFIG", "T"),
        ],
    );
    let debug = process.address("debug").await;
    let shows = async |limit: &str| {
        let wanted = format!("requests_per_unit={limit}");
        eventually(&wanted, async || {
            let body = get(debug, "/rlconfig").await.body;
            body.contains(&wanted).then_some(())
        })
        .await;
    };
    shows("2").await;
    let next = home.path().join("next");
    std::os::unix::fs::symlink("two", &next).expect("a link");
    std::fs::rename(&next, &current).expect("the link is swapped");
    shows("7").await;
}

#[tokio::test]
async fn a_stale_file_shows_on_the_pages_of_operators() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("good.yaml"), RULES).expect("written");
    let other = dir.path().join("other.yaml");
    std::fs::write(&other, RULES.replace("domain: d", "domain: e")).expect("written");
    let process = Process::start(
        &["serve"],
        &[("PALANG_RULES", dir.path().to_str().expect("UTF-8"))],
    );
    let (debug, metrics) = (
        process.address("debug").await,
        process.address("metrics").await,
    );
    let metric = async |line: &str| {
        eventually(line, async || {
            let body = get(metrics, "/metrics").await.body;
            body.lines().any(|other| other == line).then_some(())
        })
        .await;
    };
    metric("palang_rules_stale_files 0").await;
    metric("ratelimit_service_config_load_error 0").await;
    std::fs::write(&other, "domain: e\ndescriptors: [{key: k, oops: 1}]\n").expect("written");
    metric("palang_rules_stale_files 1").await;
    metric("ratelimit_service_config_load_error 1").await;
    let page = get(debug, "/rlconfig").await.body;
    let first = page.lines().next().unwrap_or_default();
    assert!(
        first.starts_with("# stale, as it last was: ")
            && first.contains("other.yaml:2:")
            && first.contains("oops"),
        "{page}"
    );
    assert!(
        page.contains("\nd.k: unit=HOUR requests_per_unit=2") && page.contains("\ne.k: "),
        "{page}"
    );
    std::fs::write(&other, RULES.replace("domain: d", "domain: e")).expect("written");
    metric("palang_rules_stale_files 0").await;
    assert!(!get(debug, "/rlconfig").await.body.contains('#'));
}

/// The reference's log keys, for whoever parses them.
#[tokio::test]
async fn a_log_line_has_the_references_keys() {
    let process = Process::start(&["serve"], &[("LOG_LEVEL", "INFO"), ("LOG_FORMAT", "json")]);
    process.address("http").await;
    let records = process.records();
    let record = records
        .iter()
        .find(|record| record["@message"] == "listening")
        .expect("a line");
    for key in ["@timestamp", "@message", "level"] {
        assert!(record[key].is_string(), "{key} in {record}");
    }
    assert_eq!(record["level"], "info");
    let time = record["@timestamp"].as_str().unwrap_or_default();
    assert!(
        time.contains('T') && time.ends_with('Z'),
        "RFC 3339: {time}"
    );
}

/// In Go no bound is written as 0.
#[tokio::test]
async fn a_bound_of_0_is_none() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("rules.yaml"), RULES).expect("written");
    let redis = crate::support::redis::RedisServer::start();
    let url = format!("127.0.0.1:{}", redis.open_port());
    let process = Process::start(
        &["serve"],
        &[
            ("PALANG_RULES", dir.path().to_str().expect("UTF-8")),
            ("REDIS_URL", &url),
            ("REDIS_TIMEOUT", "0"),
            ("STORE_TIMEOUT", "5s"),
            ("GRPC_MAX_CONNECTION_AGE", "0"),
            ("GRPC_MAX_CONNECTION_AGE_GRACE", "0s"),
        ],
    );
    let http = process.address("http").await;
    eventually("a decision", async || {
        (post(http, "/json", ASK).await.status == 200).then_some(())
    })
    .await;
    let grpc = process.address("grpc").await;
    let channel = crate::server_harness::connect(grpc).await;
    let mut client = palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient::new(channel);
    for _ in 0..3 {
        let request =
            crate::server_harness::request(vec![crate::server_harness::descriptor("k", "v")]);
        client
            .should_rate_limit(request)
            .await
            .expect("the connection stays");
    }
}
