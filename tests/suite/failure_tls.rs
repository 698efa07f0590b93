//! The gRPC port over TLS and over a Unix socket, while certificates come and go.

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use hyper_util::rt::TokioIo;
use palang::proto::envoy::service::ratelimit::v3::{
    rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::{
    server_harness::{descriptor, get, request},
    support::{
        eventually,
        pki::{KeyKind, Pki},
        process::Process,
        rules::file,
    },
};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: {unit: hour, requests_per_unit: 1000}
";

type Client = RateLimitServiceClient<Channel>;

/// Where a service finds its files.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn put(&self, pki: &Pki, certificate: &str, key: &str) {
        for (from, to) in [
            (certificate, "tls.crt"),
            (key, "tls.key"),
            ("ca.crt", "ca.crt"),
        ] {
            fs::copy(pki.file(from), self.path(to)).expect("copied");
        }
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn start(&self, rules: &Path, settings: &[(&str, &str)]) -> Process {
        let (certificate, key) = (self.path("tls.crt"), self.path("tls.key"));
        let mut env = vec![
            ("GRPC_SERVER_USE_TLS", "true"),
            ("GRPC_SERVER_TLS_CERT", certificate.as_str()),
            ("GRPC_SERVER_TLS_KEY", key.as_str()),
            ("GRPC_SERVER_TLS_CA_CERT", "/nowhere/ca.crt"),
        ];
        env.extend_from_slice(settings);
        let rules = rules.display().to_string();
        Process::start(&["serve", "--rules", &rules], &env)
    }
}

async fn connect(at: SocketAddr, pki: &Pki, identity: Option<&str>) -> Result<Client, String> {
    let pem = |name: &str| fs::read(pki.file(name)).expect("a file");
    let mut tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(pem("ca.crt")))
        .domain_name("localhost");
    if let Some(name) = identity {
        tls = tls.identity(Identity::from_pem(
            pem(&format!("{name}.crt")),
            pem(&format!("{name}.key")),
        ));
    }
    let channel = Endpoint::from_shared(format!("https://{at}"))
        .and_then(|endpoint| endpoint.tls_config(tls))
        .map_err(|cause| cause.to_string())?
        .connect_timeout(Duration::from_secs(5))
        .connect()
        .await
        .map_err(|cause| format!("{cause:?}"))?;
    let mut client = RateLimitServiceClient::new(channel);
    // With TLS 1.3 a client hears that its certificate is not wanted when it first reads.
    ask(&mut client).await?;
    Ok(client)
}

async fn ask(client: &mut Client) -> Result<(), String> {
    let asked = request(vec![descriptor("k", "v")]);
    let answer = client
        .should_rate_limit(asked)
        .await
        .map_err(|status| format!("{status:?}"))?;
    assert_eq!(answer.into_inner().overall_code(), Code::Ok);
    Ok(())
}

#[tokio::test]
async fn every_form_of_key_serves() {
    let pki = Pki::new();
    for kind in [KeyKind::Pkcs1, KeyKind::Pkcs8, KeyKind::Ec] {
        pki.issue("own", "DNS:localhost", kind);
        let (files, rules) = (Files::new(), file(RULES));
        files.put(&pki, "own.crt", "own.key");
        let process = files.start(rules.path(), &[]);
        let at = process.address("grpc").await;
        connect(at, &pki, None).await.expect("served");
        let told = process.records().iter().any(|record| {
            record["setting"] == "GRPC_SERVER_TLS_CA_CERT"
                && record["@message"]
                    .as_str()
                    .is_some_and(|text| text.contains("not needed here"))
        });
        assert!(told, "a setting that is not needed is told");
    }
}

#[tokio::test]
async fn clients_need_a_certificate_with_an_allowed_name() {
    let (pki, other) = (Pki::new(), Pki::new());
    pki.issue("own", "DNS:localhost", KeyKind::Ec);
    pki.issue("envoy", "DNS:sidecar,DNS:envoy.mesh", KeyKind::Ec);
    pki.issue("wild", "DNS:*.ns.mesh", KeyKind::Ec);
    pki.issue("stranger", "DNS:somebody.else", KeyKind::Ec);
    other.issue("envoy", "DNS:envoy.mesh", KeyKind::Ec);
    let (files, rules) = (Files::new(), file(RULES));
    files.put(&pki, "own.crt", "own.key");
    let authority = files.path("ca.crt");
    let process = files.start(
        rules.path(),
        &[
            ("GRPC_CLIENT_TLS_CACERT", &authority),
            ("GRPC_CLIENT_TLS_SAN", "envoy.ns.mesh, envoy.mesh"),
        ],
    );
    let at = process.address("grpc").await;
    for name in ["envoy", "wild"] {
        connect(at, &pki, Some(name)).await.expect(name);
    }
    assert!(connect(at, &pki, None).await.is_err(), "no certificate");
    let stranger = connect(at, &pki, Some("stranger")).await;
    assert!(stranger.is_err(), "another name");
    // Of an authority that is not ours, though the server's is trusted.
    fs::copy(pki.file("ca.crt"), other.file("ca.crt")).expect("copied");
    assert!(connect(at, &other, Some("envoy")).await.is_err());
}

#[tokio::test]
async fn certificates_and_authorities_change_while_it_serves() {
    let (old, new) = (Pki::new(), Pki::new());
    for pki in [&old, &new] {
        pki.issue("own", "DNS:localhost", KeyKind::Ec);
        pki.issue("client", "DNS:envoy.mesh", KeyKind::Ec);
    }
    let (files, rules) = (Files::new(), file(RULES));
    files.put(&old, "own.crt", "own.key");
    let authority = files.path("ca.crt");
    let process = files.start(rules.path(), &[("GRPC_CLIENT_TLS_CACERT", &authority)]);
    let at = process.address("grpc").await;
    let metrics = process.address("metrics").await;
    let mut open = connect(at, &old, Some("client")).await.expect("served");

    files.put(&new, "own.crt", "own.key");
    eventually("the new pair is shown", async || {
        connect(at, &new, Some("client")).await.ok()
    })
    .await;
    assert!(connect(at, &old, Some("client")).await.is_err());

    // The key of another certificate, then no certificate at all: what is good stays.
    fs::copy(old.file("own.key"), files.path("tls.key")).expect("copied");
    let refused = async |count: usize| {
        eventually("the bad one is counted", async || {
            let text = get(metrics, "/metrics").await.body;
            let line = format!("palang_tls_reloads_total{{result=\"refused\"}} {count}");
            text.contains(&line).then_some(())
        })
        .await;
    };
    refused(1).await;
    fs::write(files.path("tls.crt"), "not a certificate").expect("written");
    // Without waiting for the next look.
    process.signal("HUP");
    refused(2).await;
    connect(at, &new, Some("client")).await.expect("served");

    files.put(&old, "own.crt", "own.key");
    eventually("the old pair is back", async || {
        connect(at, &old, Some("client")).await.ok()
    })
    .await;
    ask(&mut open).await.expect("served all along");
    let key = fs::read_to_string(old.file("own.key")).expect("a key");
    let secret = key.lines().nth(1).expect("a line of the key").to_owned();
    assert!(!process.log().join("\n").contains(&secret));
}

#[tokio::test]
async fn a_pair_that_cannot_be_used_is_named_at_the_start() {
    let pki = Pki::new();
    pki.issue("own", "DNS:localhost", KeyKind::Ec);
    pki.issue("other", "DNS:localhost", KeyKind::Ec);
    let rules = file(RULES);
    for (certificate, key, named) in [
        ("own.crt", "other.key", "GRPC_SERVER_TLS_KEY"),
        ("own.key", "own.key", "no certificate"),
        ("own.crt", "own.crt", "no private key"),
    ] {
        let files = Files::new();
        files.put(&pki, certificate, key);
        let mut process = files.start(rules.path(), &[]);
        let status = process.wait(Duration::from_secs(10)).await;
        assert_eq!(status.code(), Some(64));
        eventually("the fault is named", async || {
            let log = process.log().join("\n");
            log.contains(named).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn clients_that_shake_no_hands_hold_nothing_up() {
    let pki = Pki::new();
    pki.issue("own", "DNS:localhost", KeyKind::Ec);
    let (files, rules) = (Files::new(), file(RULES));
    files.put(&pki, "own.crt", "own.key");
    let mut process = files.start(rules.path(), &[]);
    let at = process.address("grpc").await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        let stream = tokio::net::TcpStream::connect(at).await.expect("accepted");
        // The first bytes of a handshake, and never the rest.
        stream.try_write(&[22, 3, 1, 2, 0]).expect("written");
        silent.push(stream);
    }
    connect(at, &pki, None).await.expect("served");
    process.signal("TERM");
    let status = process.wait(Duration::from_secs(5)).await;
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn a_unix_socket_serves_in_place_of_a_port() {
    let home = tempfile::tempdir().expect("a directory");
    let path = home.path().join("grpc.sock");
    let rules = file(RULES);
    let rules = rules.path().display().to_string();
    let name = path.display().to_string();
    let start = || Process::start(&["serve", "--rules", &rules], &[("GRPC_UDS", &name)]);
    for killed in [true, false] {
        let mut process = start();
        process.address("http").await;
        let path = path.clone();
        let channel = Endpoint::from_static("http://localhost")
            .connect_with_connector(tower::service_fn(move |_| {
                let path = path.clone();
                async move {
                    tokio::net::UnixStream::connect(path)
                        .await
                        .map(TokioIo::new)
                }
            }))
            .await
            .expect("connected");
        ask(&mut RateLimitServiceClient::new(channel))
            .await
            .expect("served");
        // A killed one leaves its file behind, which the next one removes.
        process.signal(if killed { "KILL" } else { "TERM" });
        process.wait(Duration::from_secs(5)).await;
    }
    assert!(!path.exists());
}
