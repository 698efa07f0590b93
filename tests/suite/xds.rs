//! Rules from a control plane that behaves as Envoy Gateway's, good and bad, here and gone.

use std::{
    net::TcpListener,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use http::{HeaderMap, HeaderValue};
use palang::{
    proto::ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
    },
    request::{Descriptor, Entry, Request},
    rules::{
        Modes, Rules, Step, compile,
        source::{
            Followed, Loaded, Reload, Source,
            xds::{Backoff, Node, Options, Server, Status, Tls},
        },
    },
    unit::Unit,
};
use prost_types::Any;

use crate::{
    server_harness::{get, post},
    support::{
        PATIENCE,
        pki::Pki,
        process::Process,
        xds::{AfterPush, ControlPlane, Seen, TYPE_URL},
    },
};

struct Following {
    followed: Option<Followed>,
    status: Arc<Status>,
    reloads: Receiver<Reload>,
}

impl Following {
    fn new(options: Options) -> Self {
        let (sender, reloads) = channel();
        let followed = Source::Xds(Box::new(options))
            .follow(move |reload| {
                // The test may be over.
                let _ = sender.send(reload);
            })
            .expect("a thread");
        Self {
            status: followed.xds().expect("a control plane"),
            followed: Some(followed),
            reloads,
        }
    }

    #[track_caller]
    fn loaded(&self) -> Loaded {
        match self.reloads.recv_timeout(PATIENCE) {
            Ok(Reload::Loaded(loaded)) => loaded,
            Ok(Reload::Failed(error)) => panic!("refused: {error}"),
            Err(error) => panic!("nothing came: {error}"),
        }
    }

    #[track_caller]
    fn refused(&self) -> String {
        match self.reloads.recv_timeout(PATIENCE) {
            Ok(Reload::Failed(error)) => error.to_string(),
            Ok(Reload::Loaded(loaded)) => panic!("loaded:\n{}", loaded.rules.dump()),
            Err(error) => panic!("nothing came: {error}"),
        }
    }
}

fn options(plane: &ControlPlane) -> Options {
    at(&plane.address().to_string())
}

fn at(authority: &str) -> Options {
    Options {
        server: Server {
            authority: authority.to_owned(),
            ..Server::default()
        },
        node: Node {
            id: "envoy-ratelimit".to_owned(),
            metadata: vec![("team".to_owned(), "edge".to_owned())],
        },
        headers: HeaderMap::new(),
        backoff: Backoff {
            initial: Duration::from_millis(100),
            unreachable: Duration::from_millis(100),
            max: Duration::from_millis(400),
            growth: 2.0,
            jitter: 0.0,
        },
        max_message_bytes: 64 << 20,
        compile: compile::Options::default(),
    }
}

fn tls(dir: &Path, server_name: Option<&str>) -> Tls {
    Tls {
        ca: Some(dir.join("ca.crt")),
        identity: Some((dir.join("tls.crt"), dir.join("tls.key"))),
        server_name: server_name.map(str::to_owned),
    }
}

#[track_caller]
fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The first thing said that `wanted` picks.
#[track_caller]
fn saw(plane: &ControlPlane, what: &str, wanted: impl Fn(&Seen) -> bool) -> Seen {
    eventually(what, || plane.seen().into_iter().find(|seen| wanted(seen)))
}

#[track_caller]
fn saw_ack(plane: &ControlPlane, version: &str) -> Seen {
    saw(plane, "an acknowledgement", |seen| {
        seen.request.version_info == version && seen.refusal().is_none()
    })
}

/// A descriptor as Envoy Gateway writes it: `shadow_mode` on every level, a limit on the last one.
pub(crate) fn chain(
    levels: &[(&str, &str)],
    limit: (RateLimitUnit, u32),
    shadow: bool,
) -> RateLimitDescriptor {
    let ((key, value), below) = levels.split_first().expect("a level");
    RateLimitDescriptor {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
        rate_limit: below.is_empty().then(|| RateLimitPolicy {
            unit: limit.0.into(),
            requests_per_unit: limit.1,
            ..RateLimitPolicy::default()
        }),
        descriptors: if below.is_empty() {
            Vec::new()
        } else {
            vec![chain(below, limit, shadow)]
        },
        shadow_mode: shadow,
        ..RateLimitDescriptor::default()
    }
}

pub(crate) fn config(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitConfig {
    RateLimitConfig {
        name: domain.to_owned(),
        domain: domain.to_owned(),
        descriptors,
    }
}

fn simple(domain: &str, requests: u32) -> RateLimitConfig {
    config(
        domain,
        vec![chain(
            &[("k", "")],
            (RateLimitUnit::Minute, requests),
            false,
        )],
    )
}

/// `a=3 b=5`: each domain with the number of its first rule.
fn describe(rules: &Rules) -> String {
    let mut domains: Vec<String> = rules
        .rules()
        .iter()
        .map(|rule| {
            let domain = rule.path.split('.').next().unwrap_or_default();
            let limit = rule.limit.as_ref().expect("a limit");
            format!("{domain}={}", limit.requests_per_unit)
        })
        .collect();
    domains.sort();
    domains.join(" ")
}

#[test]
fn rules_of_every_shape_that_envoy_gateway_emits_are_found() {
    let mut plane = ControlPlane::start();
    let following = Following::new(options(&plane));
    let route = "httproute/ns/name/rule/0/match/0/host";
    let mut root = chain(
        &[
            (route, route),
            ("rule-0-match-0", "rule-0-match-0"),
            ("masked_remote_address", "10.0.0.0/8"),
            ("remote_address", ""),
        ],
        (RateLimitUnit::Week, 3),
        true,
    );
    for below in [
        chain(&[("rule-1-match-0", "")], (RateLimitUnit::Hour, 0), false),
        chain(
            &[("rule-2-match--1", "rule-2-match--1")],
            (RateLimitUnit::Second, u32::MAX),
            false,
        ),
    ] {
        root.descriptors.push(below);
    }
    plane.push(&[config("ns/gateway/listener", vec![root])]);
    let loaded = following.loaded();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);

    let found = |entries: &[(&str, &str)]| {
        let entries = [&[(route, route)], entries].concat();
        let request = Request {
            domain: "ns/gateway/listener".to_owned(),
            descriptors: vec![Descriptor {
                entries: entries
                    .into_iter()
                    .map(|(key, value)| Entry {
                        key: key.to_owned(),
                        value: value.to_owned(),
                    })
                    .collect(),
                hits: 1,
                limit: None,
            }],
        };
        let plan = loaded.rules.plan(&request, Modes::default());
        let Step::Limited { rule: Some(id), .. } = plan.steps[0] else {
            return None;
        };
        let rule = loaded.rules.rule(id);
        let limit = rule.limit.as_ref().expect("a limit");
        Some((limit.requests_per_unit, limit.unit, rule.shadow))
    };
    let client = |address| {
        found(&[
            ("rule-0-match-0", "rule-0-match-0"),
            ("masked_remote_address", "10.0.0.0/8"),
            ("remote_address", address),
        ])
    };
    assert_eq!(client("10.1.2.3"), Some((3, Some(Unit::Week), true)));
    assert_eq!(client("10.9.9.9"), Some((3, Some(Unit::Week), true)));
    assert_eq!(
        found(&[("rule-1-match-0", "whoever")]),
        Some((0, Some(Unit::Hour), false))
    );
    assert_eq!(
        found(&[("rule-2-match--1", "rule-2-match--1")]),
        Some((u32::MAX, Some(Unit::Second), false))
    );
    assert_eq!(found(&[]), None);
}

#[test]
fn a_response_is_acknowledged_when_it_is_in_force() {
    let mut plane = ControlPlane::start();
    let mut options = options(&plane);
    let mut secret = HeaderValue::from_static("Bearer of:news");
    secret.set_sensitive(true);
    options.headers.insert("authorization", secret);
    let following = Following::new(options);
    plane.push(&[simple("a", 1), simple("b", 2)]);
    assert_eq!(describe(&following.loaded().rules), "a=1 b=2");

    let first = saw(&plane, "a first request", Seen::is_first);
    assert_eq!(first.request.version_info, "");
    assert_eq!(first.request.type_url, TYPE_URL);
    assert!(first.request.resource_names.is_empty());
    assert_eq!(first.headers["authorization"], "Bearer of:news");
    let node = first.request.node.expect("a node");
    assert_eq!(node.id, "envoy-ratelimit");
    assert!(format!("{:?}", node.metadata).contains("edge"));
    assert_eq!(saw_ack(&plane, "1").request.response_nonce, "1");

    assert!(following.status.connected());
    assert_eq!(following.status.streams(), 1);
    assert_eq!(
        following.status.version().as_deref().map(String::as_str),
        Some("1")
    );
    assert!(following.status.updated().is_some());
    assert_eq!(following.status.rejected(), 0);

    // A response is the whole world.
    plane.push(&[simple("b", 3)]);
    assert_eq!(describe(&following.loaded().rules), "b=3");
    saw_ack(&plane, "2");
    // Nothing at all as well.
    plane.push(&[]);
    assert_eq!(following.loaded().rules.domains().count(), 0);
    saw_ack(&plane, "3");
}

#[test]
fn a_control_plane_that_starts_again_counts_from_1_and_is_believed() {
    let mut plane = ControlPlane::start();
    let following = Following::new(options(&plane));
    for requests in 1..=3 {
        plane.push(&[simple("a", requests)]);
        assert_eq!(describe(&following.loaded().rules), format!("a={requests}"));
        saw_ack(&plane, &requests.to_string());
    }

    plane.restart();
    // The old rules are in force until there are new ones, whatever their version is called.
    let again = saw(&plane, "a second stream", |seen| seen.stream == 2);
    assert_eq!(again.request.version_info, "");
    assert_eq!(again.request.response_nonce, "");
    plane.push(&[simple("a", 9)]);
    assert_eq!(describe(&following.loaded().rules), "a=9");
    eventually("the old version again", || {
        (following.status.version()?.as_str() == "1").then_some(())
    });
    assert_eq!(following.status.streams(), 2);
}

#[test]
fn the_same_rules_from_a_new_stream_are_no_reload() {
    let mut plane = ControlPlane::start();
    let following = Following::new(options(&plane));
    plane.push(&[simple("a", 1), simple("b", 1)]);
    following.loaded();
    plane.restart();
    plane.push(&[simple("b", 1), simple("a", 1)]);
    saw(&plane, "an acknowledgement", |seen| {
        seen.stream == 2 && seen.request.version_info == "1"
    });
    assert_eq!(following.status.accepted(), 2);
    plane.push(&[simple("c", 1)]);
    assert_eq!(describe(&following.loaded().rules), "c=1");
}

#[test]
fn a_push_above_4_mib_is_read() {
    let mut plane = ControlPlane::start();
    let following = Following::new(options(&plane));
    let long = "x".repeat(1_000);
    let descriptors = (0..5_000)
        .map(|number| {
            let value = format!("{long}{number}");
            chain(&[("k", &value)], (RateLimitUnit::Minute, number), false)
        })
        .collect();
    plane.push(&[config("large", descriptors)]);
    assert_eq!(following.loaded().rules.rules().len(), 5_000);
    saw_ack(&plane, "1");
}

#[test]
fn a_push_above_the_bound_leaves_the_rules_as_they_are() {
    let mut plane = ControlPlane::start();
    let mut options = options(&plane);
    options.max_message_bytes = 4_096;
    let following = Following::new(options);
    plane.push(&[simple("a", 1)]);
    following.loaded();
    saw_ack(&plane, "1");
    plane.push(&[simple(&"x".repeat(5_000), 1)]);
    eventually("counted as refused", || {
        (following.status.rejected() >= 2).then_some(())
    });
    plane.push(&[simple("a", 2)]);
    assert_eq!(describe(&following.loaded().rules), "a=2");
}

#[test]
fn a_bad_push_is_refused_with_the_path_and_changes_nothing() {
    let mut plane = ControlPlane::start();
    let following = Following::new(options(&plane));
    plane.push(&[simple("a", 1)]);
    following.loaded();
    saw_ack(&plane, "1");

    let twice = chain(
        &[("route", "r1"), ("rule-0-match-0", "x")],
        (RateLimitUnit::Minute, 1),
        false,
    );
    plane.push(&[
        simple("fine", 1),
        config("ns/gateway/http", vec![twice.clone(), twice]),
    ]);
    assert!(
        following
            .refused()
            .contains("duplicate descriptor composite key")
    );
    let refused = saw(&plane, "a refusal", |seen| seen.refusal().is_some());
    assert_eq!(
        refused.request.version_info, "1",
        "the last that was accepted"
    );
    assert_eq!(refused.request.response_nonce, "2");
    let told = refused.refusal().unwrap_or_default();
    for part in ["ns/gateway/http: ", "'ns/gateway/http.route_r1'"] {
        assert!(told.contains(part), "{part}\nin\n{told}");
    }
    assert_eq!(
        following.status.version().as_deref().map(String::as_str),
        Some("1")
    );

    plane.push(&[simple("a", 2)]);
    assert_eq!(describe(&following.loaded().rules), "a=2");
    saw_ack(&plane, &following.status.version().expect("a version"));
}

#[test]
fn a_control_plane_that_insists_on_a_bad_push_is_refused_at_a_growing_distance() {
    let mut plane = ControlPlane::start();
    let following = Following::new(options(&plane));
    // It answers each refusal with the same again, at once.
    plane.push(&[config("", Vec::new())]);
    following.refused();
    let refusals = eventually("five refusals", || {
        let refusals: Vec<Seen> = plane
            .seen()
            .into_iter()
            .filter(|seen| seen.refusal().is_some())
            .collect();
        (refusals.len() >= 5).then_some(refusals)
    });
    // The first comes at once, then 100, 200, 400 and 400 ms go by.
    assert!(refusals[4].at - refusals[0].at >= Duration::from_millis(1_000));
    assert!(following.reloads.try_recv().is_err(), "told once");
    plane.push(&[simple("a", 1)]);
    assert_eq!(describe(&following.loaded().rules), "a=1");
}

#[test]
fn what_cannot_be_decoded_is_refused_as_a_whole() {
    let mut plane = ControlPlane::start();
    let following = Following::new(options(&plane));
    plane.push(&[simple("a", 1)]);
    following.loaded();
    for (type_url, told) in [
        (TYPE_URL, "cannot be decoded"),
        (
            "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            "is a 'type.googleapis.com/envoy.config.cluster.v3.Cluster'",
        ),
    ] {
        plane.push_raw(vec![Any {
            type_url: type_url.to_owned(),
            value: vec![0xff; 9],
        }]);
        assert!(following.refused().contains(told));
        saw(&plane, "a refusal", |seen| {
            seen.refusal().is_some_and(|text| text.contains(told))
        });
    }
    plane.push(&[simple("a", 2)]);
    assert_eq!(describe(&following.loaded().rules), "a=2");
}

#[test]
fn a_stream_that_is_reset_in_a_loop_is_opened_at_a_growing_distance() {
    let mut plane = ControlPlane::start_with(AfterPush::Reset, None);
    plane.push(&[simple("a", 1)]);
    let following = Following::new(options(&plane));
    assert_eq!(describe(&following.loaded().rules), "a=1");
    let first = |stream| {
        saw(&plane, "one more stream", |seen| {
            seen.is_first() && seen.stream == stream
        })
    };
    let (begin, end) = (first(1).at, first(6).at);
    // 100, 200 and three times 400 ms.
    assert!(
        end - begin >= Duration::from_millis(1_500),
        "{:?}",
        end - begin
    );
    assert!(following.reloads.try_recv().is_err(), "nothing changed");
}

#[test]
fn a_reload_asks_at_once_whatever_the_wait() {
    // A port that nobody listens on.
    let port = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = port.local_addr().expect("bound");
    drop(port);
    let mut options = at(&address.to_string());
    options.backoff.unreachable = Duration::from_secs(3_600);
    options.backoff.initial = Duration::from_secs(3_600);
    options.backoff.max = Duration::from_secs(3_600);
    let idle = Following::new(options.clone());

    let mut plane = ControlPlane::start();
    plane.push(&[simple("a", 1)]);
    options.server.authority = plane.address().to_string();
    let following = Following::new(options);
    following.loaded();
    plane.restart();
    plane.push(&[simple("a", 2)]);
    eventually("the loss is noticed", || {
        (!following.status.connected()).then_some(())
    });
    following.followed.as_ref().expect("running").reload();
    assert_eq!(describe(&following.loaded().rules), "a=2");

    // Nobody waits for the wait either.
    let begin = Instant::now();
    drop((idle, following));
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_node_that_the_control_plane_does_not_know_gets_nothing_and_is_connected() {
    let mut plane = ControlPlane::start();
    plane.push(&[simple("a", 1)]);
    let mut options = options(&plane);
    options.node.id = "default".to_owned();
    let following = Following::new(options);
    eventually("connected", || following.status.connected().then_some(()));
    saw(&plane, "a first request", Seen::is_first);
    assert!(following.reloads.try_recv().is_err());
    assert_eq!(following.status.updated(), None);
}

#[test]
fn both_sides_show_their_certificates() {
    let pki = Pki::new();
    let dir = tempfile::tempdir().expect("a directory");
    pki.install(dir.path());
    let mut plane = ControlPlane::start_with(AfterPush::Stay, Some(pki.server()));
    plane.push(&[simple("a", 1)]);
    let named = format!("localhost:{}", plane.address().port());

    // A name of one label, the override of the name, and an address with an override.
    for (authority, name) in [
        (named.clone(), None),
        (named.clone(), Some("envoy-gateway")),
        (plane.address().to_string(), Some("envoy-gateway.ns.svc")),
    ] {
        let mut options = at(&authority);
        options.server.tls = Some(tls(dir.path(), name));
        assert_eq!(describe(&Following::new(options).loaded().rules), "a=1");
    }
    assert_eq!(plane.refused_handshakes(), 0);
    let served = plane.seen().len();

    let mut wrong_name = at(&named);
    wrong_name.server.tls = Some(tls(dir.path(), Some("somebody-else")));
    let mut nameless = at(&named);
    nameless.server.tls = Some(Tls {
        identity: None,
        ..tls(dir.path(), None)
    });
    let mut other_authority = at(&named);
    let other = Pki::new();
    other_authority.server.tls = Some(Tls {
        ca: Some(other.file("ca.crt")),
        ..tls(dir.path(), None)
    });
    for options in [wrong_name, nameless, other_authority] {
        let before = plane.refused_handshakes();
        let following = Following::new(options);
        eventually("refused twice", || {
            (plane.refused_handshakes() >= before + 2).then_some(())
        });
        assert!(following.reloads.try_recv().is_err());
        assert_eq!(following.status.streams(), 0);
    }
    assert!(
        plane.seen().len() <= served + 3,
        "the acknowledgements of before at most"
    );
}

#[test]
fn rotated_certificates_are_used_from_the_next_connection_on() {
    let (old, new) = (Pki::new(), Pki::new());
    let dir = tempfile::tempdir().expect("a directory");
    old.install(dir.path());
    let mut plane = ControlPlane::start_with(AfterPush::Stay, Some(old.server()));
    plane.push(&[simple("a", 1)]);
    let mut options = options(&plane);
    options.server.tls = Some(tls(dir.path(), Some("envoy-gateway")));
    let following = Following::new(options);
    following.loaded();

    plane.restart_with(new.server());
    plane.push(&[simple("a", 2)]);
    eventually("refused with the old ones", || {
        (plane.refused_handshakes() > 0).then_some(())
    });
    new.install(dir.path());
    assert_eq!(describe(&following.loaded().rules), "a=2");
}

/// The variables for rules, as Envoy Gateway sets them; its `/data` is not mounted.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_process_starts_with_envoy_gateways_environment() {
    let pki = Pki::new();
    let mut plane = ControlPlane::start_with(AfterPush::Stay, Some(pki.server()));
    let server = format!("localhost:{}", plane.address().port());
    let [certificate, key, authority] =
        ["tls.crt", "tls.key", "ca.crt"].map(|name| pki.file(name).display().to_string());
    let process = Process::start(
        &["serve"],
        &[
            ("RUNTIME_ROOT", "/data"),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
            ("RUNTIME_IGNOREDOTFILES", "true"),
            ("RUNTIME_WATCH_ROOT", "false"),
            ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
            ("CONFIG_GRPC_XDS_SERVER_URL", &server),
            ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", &certificate),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", &key),
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", &authority),
            (
                "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
                "authorization:hunter2",
            ),
            ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
        ],
    );
    let (http, debug) = (
        process.address("http").await,
        process.address("debug").await,
    );
    assert_eq!(get(http, "/healthcheck").await.status, 200);
    plane.push(&[simple("d", 0)]);
    crate::support::eventually("the rules are in force", async || {
        let rules = get(debug, "/rlconfig").await.body;
        (rules == "d.k: unit=MINUTE requests_per_unit=0, shadow_mode: false, quota_mode: false\n")
            .then_some(())
    })
    .await;
    let body = br#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;
    assert_eq!(post(http, "/json", body).await.status, 429);
    assert!(!process.log().join("\n").contains("hunter2"));
}
