//! How Redis lets us in: passwords, certificates.

use std::time::Duration;

use palang::{
    algorithm::{MAX_WINDOW, Outcome, Quota},
    counter::Atomicity,
    secret::Secret,
    store::{
        Redis, Store as _, StoreError,
        redis::{Config, ConfigError, Hostname, Tls},
    },
};

use crate::support::{certificates::Authority, cluster::Port, eventually, stores::counter};

/// Every character that an address, a list or a split could trip over.
const PASSWORDS: &[&str] = &[
    "a:b",
    ":",
    "@",
    "/",
    "%",
    "#",
    "?",
    "&",
    "=",
    "+",
    ",",
    ";",
    "\"",
    "'",
    "\\",
    "{}",
    "[]",
    "a b",
    "%40",
    "user:pass",
    "redis://u:p@h:1/0",
    "ä日本",
    "$(x)`y`",
    "<>|~^!*",
];

fn yearly() -> Quota {
    Quota::fixed_window(1 << 40, MAX_WINDOW).expect("legal")
}

fn config(server: &Port) -> Config {
    Config {
        url: server.address(),
        timeout: Duration::from_secs(10),
        ..Config::default()
    }
}

async fn ask(config: Config) -> Result<Outcome, StoreError> {
    let lane = Redis::connect(config).expect("a fine configuration").lane();
    lane.take(&[counter("access", yearly(), 1)], Atomicity::PerCounter)
        .await
        .pop()
        .expect("an answer")
}

fn acl(server: &Port, words: &[&str]) {
    redis::cmd("ACL")
        .arg("SETUSER")
        .arg(words)
        .query::<()>(&mut server.connection())
        .expect("a user");
}

#[tokio::test]
async fn a_password_may_have_every_character() {
    let server = Port::start(&[]);
    for password in PASSWORDS {
        let secret = format!(">{password}");
        acl(&server, &["limiter", "reset", "on", &secret, "~*", "+@all"]);
        let own = Config {
            user: Some("limiter".to_owned()),
            password: Some(Secret::from(*password)),
            ..config(&server)
        };
        ask(own)
            .await
            .unwrap_or_else(|error| panic!("{password}: {error:?}"));
        // Split at the first colon, as in the reference: what follows may have more of them.
        let auth = Config {
            auth: Some(Secret::from(&*format!("limiter:{password}"))),
            ..config(&server)
        };
        ask(auth)
            .await
            .unwrap_or_else(|error| panic!("{password}: {error:?}"));
        let encoded: String = password
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect();
        let url = Config {
            url: format!("redis://limiter:{encoded}@{}", server.address()),
            ..config(&server)
        };
        ask(url)
            .await
            .unwrap_or_else(|error| panic!("{password}: {error:?}"));
        let wrong = Config {
            user: Some("limiter".to_owned()),
            password: Some(Secret::from(&*format!("{password}x"))),
            ..config(&server)
        };
        let error = ask(wrong).await.expect_err("another password");
        assert!(
            !error.to_string().contains(password) || password.len() < 3,
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_password_file_is_read_again_when_it_is_not_accepted() {
    let server = Port::start(&[]);
    acl(
        &server,
        &["limiter", "reset", "on", ">first", "~*", "+@all"],
    );
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("password");
    let redis = Redis::connect(Config {
        user: Some("limiter".to_owned()),
        password_file: Some(file.clone()),
        ..config(&server)
    })
    .expect("the file may come later");
    let lane = redis.lane();
    let take = async || {
        lane.take(&[counter("file", yearly(), 1)], Atomicity::PerCounter)
            .await
            .pop()
            .expect("an answer")
    };
    assert!(take().await.is_err());
    std::fs::write(&file, "first\n").expect("written");
    eventually("the file is read", async || take().await.ok()).await;
    // Rotated: the old connections go, and new ones need the new password.
    acl(
        &server,
        &["limiter", "reset", "on", ">second:@/%#", "~*", "+@all"],
    );
    server.run("CLIENT KILL TYPE normal SKIPME yes");
    eventually("the old password is refused", async || take().await.err()).await;
    std::fs::write(&file, "second:@/%#").expect("written");
    eventually("the file is read again", async || take().await.ok()).await;
    assert!(redis.figures().connections <= 10);
}

/// A server by `authority`, certificate `server`.
fn encrypted(authority: &Authority, clients: &str) -> Port {
    let (ca, certificate, key) = (
        authority.path("ca.crt"),
        authority.path("server.crt"),
        authority.path("server.key"),
    );
    Port::encrypted(&[
        "--tls-ca-cert-file",
        &ca,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
        "--tls-auth-clients",
        clients,
    ])
}

fn trusting(authority: &Authority) -> Tls {
    Tls {
        ca: Some(authority.path("ca.crt").into()),
        ..Tls::default()
    }
}

#[tokio::test]
async fn encrypted_with_the_server_checked() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    ours.issue("server", "IP:127.0.0.1");
    let server = encrypted(&ours, "no");
    let with = |tls: Tls| Config {
        tls: Some(tls),
        ..config(&server)
    };
    ask(with(trusting(&ours)))
        .await
        .expect("the authority is trusted");
    for untrusted in [trusting(&theirs), Tls::default()] {
        assert!(ask(with(untrusted)).await.is_err());
    }
    // A url asks for encryption too, and plain text does not get through.
    let url = Config {
        url: format!("rediss://{}", server.address()),
        ..with(trusting(&ours))
    };
    ask(url).await.expect("rediss://");
    assert!(ask(config(&server)).await.is_err());
}

#[tokio::test]
async fn encrypted_under_another_name() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    ours.issue("server", "DNS:redis.example");
    let server = encrypted(&ours, "no");
    let with = |tls: Tls| Config {
        tls: Some(tls),
        ..config(&server)
    };
    assert!(
        ask(with(trusting(&ours))).await.is_err(),
        "the name is another"
    );
    let named = |name: &str| Tls {
        server_name: Some(name.to_owned()),
        ..trusting(&ours)
    };
    ask(with(named("redis.example"))).await.expect("its name");
    assert!(ask(with(named("redis.other"))).await.is_err());
    let ignored = |authority| Tls {
        hostname: Hostname::Ignored,
        ..trusting(authority)
    };
    ask(with(ignored(&ours))).await.expect("any name");
    assert!(
        ask(with(ignored(&theirs))).await.is_err(),
        "the chain is checked all the same"
    );
}

#[tokio::test]
async fn encrypted_with_a_certificate_of_our_own() {
    let ours = Authority::new();
    ours.issue("server", "IP:127.0.0.1");
    ours.issue("client", "DNS:limiter");
    let server = encrypted(&ours, "yes");
    let with = |certificate: &str, key: &str| Config {
        tls: Some(Tls {
            client: Some((ours.path(certificate).into(), ours.path(key).into())),
            ..trusting(&ours)
        }),
        ..config(&server)
    };
    ask(with("client.crt", "client.key")).await.expect("let in");
    let without = Config {
        tls: Some(trusting(&ours)),
        ..config(&server)
    };
    assert!(ask(without).await.is_err(), "no certificate, no entry");
    // What can never work is told at the start, by the file's name.
    for (certificate, key, named) in [
        ("client.crt", "server.key", "server.key"),
        ("client.crt", "absent.key", "absent.key"),
        ("ext", "client.key", "ext"),
        ("client.crt", "client.crt", "client.crt"),
    ] {
        let error = Redis::connect(with(certificate, key)).expect_err("cannot work");
        let ConfigError::Tls { file, .. } = error else {
            panic!("{error:?}");
        };
        assert!(file.ends_with(named), "{file} {named}");
    }
    // Other ways to write a key down.
    for (words, name) in [
        ("ec -in client.key", "sec1.key"),
        ("pkcs8 -topk8 -nocrypt -in client.key", "pkcs8.key"),
    ] {
        ours.convert(words, name);
        ask(with("client.crt", name))
            .await
            .unwrap_or_else(|error| panic!("{name}: {error:?}"));
    }
}
