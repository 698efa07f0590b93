//! The reference's client and checker by their own names and flags, for scripts that call them.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tokio::net::{TcpListener, TcpStream};

use crate::support::{pki::Pki, process::Process};

const RULES: &str = "
domain: mongo_cps
descriptors:
  - key: database
    value: users
    rate_limit: {unit: hour, requests_per_unit: 1}
";

/// A directory with the rules, and the binary under this name.
fn home(name: &str) -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().expect("a directory");
    let binary = home.path().join(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_palang"), &binary).expect("a link");
    let rules = home.path().join("rules");
    std::fs::create_dir(&rules).expect("a directory");
    std::fs::write(rules.join("rules.yaml"), RULES).expect("written");
    (home, binary)
}

async fn run(binary: &Path, args: Vec<String>) -> Output {
    let binary = binary.to_owned();
    tokio::task::spawn_blocking(move || {
        Command::new(binary)
            .args(args)
            .env_clear()
            .output()
            .expect("the binary runs")
    })
    .await
    .expect("no panic")
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_client_takes_the_references_flags() {
    let (home, binary) = home("ratelimit_client");
    let rules = home.path().join("rules").display().to_string();
    let process = Process::start(&["serve", "--rules", &rules], &[]);
    let grpc = process.address("grpc").await;
    let ask = words(&format!(
        "-dial_string {grpc} -domain mongo_cps -descriptors database=users -descriptors database=users,x=y \
         -oltp-protocol http -grpc-use-tls=false"
    ));
    let output = run(&binary, ask.clone()).await;
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("database=users: allowed, 0 of 1 per hour left")
            && said.contains("database=users, x=y: allowed, no limit applies"),
        "{said}"
    );
    assert_eq!(run(&binary, ask).await.status.code(), Some(1));
}

#[tokio::test]
async fn the_client_speaks_tls_with_a_certificate() {
    let pki = Pki::new();
    let (home, binary) = home("ratelimit_client");
    let rules = home.path().join("rules").display().to_string();
    let process = Process::start(&["serve", "--rules", &rules], &[]);
    let port = in_tls(&pki, process.address("grpc").await).await.port();
    let [authority, certificate, key] =
        ["ca.crt", "tls.crt", "tls.key"].map(|name| pki.file(name).display().to_string());
    let ask = format!(
        "-dial_string localhost:{port} -domain mongo_cps -descriptors database=users -grpc-use-tls -grpc-server-ca-file \
         {authority}"
    );
    let output = run(
        &binary,
        words(&format!(
            "{ask} -grpc-cert-file {certificate} -grpc-key-file {key}"
        )),
    )
    .await;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    // Nobody without a certificate gets an answer.
    assert_eq!(run(&binary, words(&ask)).await.status.code(), Some(2));
}

/// A way to `plain` that asks for certificates of this authority.
async fn in_tls(pki: &Pki, plain: SocketAddr) -> SocketAddr {
    let acceptor = tokio_rustls::TlsAcceptor::from(pki.server());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("a bound socket has one");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut outside) = acceptor.accept(stream).await else {
                    return;
                };
                let mut inside = TcpStream::connect(plain)
                    .await
                    .expect("the service is there");
                // Ends when either side does.
                let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn the_checker_takes_the_references_flags() {
    let (home, binary) = home("ratelimit_config_check");
    let rules = home.path().join("rules");
    let check = format!("-config_dir {}", rules.display());
    let output = run(&binary, words(&check)).await;
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("ok: 1 rule in 1 domain"), "{said}");

    let more = RULES.replace("value: users", "value: default");
    std::fs::write(rules.join("more.yaml"), more).expect("written");
    assert_eq!(run(&binary, words(&check)).await.status.code(), Some(1));
    let merged = format!("{check} -merge_domain_configs");
    assert_eq!(run(&binary, words(&merged)).await.status.code(), Some(0));
    let merged = format!("{check} -merge_domain_configs=true");
    assert_eq!(run(&binary, words(&merged)).await.status.code(), Some(0));
}
