//! Connections and the end: who serves them, and that nobody holds up the stop.

use std::time::{Duration, Instant};

use palang::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::sleep,
};

use crate::server_harness::{Server, connect, descriptor, eventually, get, request};

/// How many connections a worker may have, when all are spread as evenly as they can be.
#[tokio::test]
async fn connections_are_spread_over_the_workers() {
    for workers in [2, 5] {
        for connections in [1, 2, 3, 16] {
            let server = Server::start(&[&format!("--workers={workers}")]);
            let mut open = Vec::new();
            for _ in 0..connections {
                let channel = connect(server.at.grpc).await;
                let mut client =
                    palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient::new(
                        channel,
                    );
                let asked = request(vec![descriptor("other", "v")]);
                client.should_rate_limit(asked).await.unwrap();
                open.push(client);
            }
            let metrics = get(server.at.metrics.expect("a metrics port"), "/metrics")
                .await
                .body;
            let spread: Vec<usize> = metrics
                .lines()
                .filter_map(|line| line.strip_prefix("palang_worker_connections{"))
                .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
                .collect();
            assert_eq!(spread.len(), workers, "{metrics}");
            assert_eq!(spread.iter().sum::<usize>(), connections);
            let most = connections.div_ceil(workers);
            assert!(
                spread.iter().all(|&count| count <= most),
                "{connections} on {workers}: {spread:?}"
            );
        }
    }
}

#[tokio::test]
async fn one_connection_too_many_is_closed_at_once() {
    let server = Server::start(&["--max-connections=2"]);
    let _one = TcpStream::connect(server.at.grpc).await.unwrap();
    let _two = TcpStream::connect(server.at.grpc).await.unwrap();
    eventually("both are open", async || {
        server.metric("palang_connections{port=\"grpc\"}").await == 2
    })
    .await;
    let mut three = TcpStream::connect(server.at.grpc).await.unwrap();
    let mut byte = [0];
    assert!(matches!(three.read(&mut byte).await, Ok(0) | Err(_)));
    // The other port has room of its own: a probe still gets through.
    assert_eq!(get(server.at.http, "/healthcheck").await.status, 200);
    assert_eq!(
        server
            .metric("palang_refused_connections_total{port=\"grpc\"}")
            .await,
        1
    );
}

#[tokio::test]
async fn silent_connections_do_not_hold_up_the_stop() {
    let server = Server::start(&["--shutdown-timeout=20s"]);
    let mut silent = Vec::new();
    for at in [server.at.grpc, server.at.http, server.at.debug] {
        for _ in 0..5 {
            silent.push(TcpStream::connect(at).await.unwrap());
            // These complete the preface and then say nothing more.
            let mut stream = TcpStream::connect(at).await.unwrap();
            stream
                .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
                .await
                .unwrap();
            silent.push(stream);
            // And these stop in the middle of it.
            let mut stream = TcpStream::connect(at).await.unwrap();
            stream.write_all(b"PRI * HT").await.unwrap();
            silent.push(stream);
        }
    }
    eventually("all are open", async || {
        server.metric("palang_connections{port=\"grpc\"}").await == 15
    })
    .await;
    let since = Instant::now();
    server.stop();
    let ended = tokio::task::spawn_blocking(|| server.ended());
    ended.await.unwrap().unwrap();
    assert!(
        since.elapsed() < Duration::from_secs(5),
        "{:?}",
        since.elapsed()
    );
}

#[tokio::test]
async fn calls_in_flight_finish() {
    let server = Server::start(&[]);
    server.store.pause(Duration::from_millis(700));
    let calls: Vec<_> = {
        let mut calls = Vec::new();
        for _ in 0..5 {
            let client = server.client().await;
            for _ in 0..20 {
                let mut client = client.clone();
                calls.push(tokio::spawn(async move {
                    let asked = request(vec![descriptor("other", "v"), descriptor("k", "v")]);
                    client.should_rate_limit(asked).await
                }));
            }
        }
        calls
    };
    eventually("all are in flight", async || {
        server.metric("palang_in_flight").await == 100
    })
    .await;
    server.stop();
    let mut over = 0;
    for call in calls {
        let answer = call.await.unwrap().unwrap().into_inner();
        over += usize::from(answer.overall_code() == Code::OverLimit);
    }
    assert_eq!(over, 90);
    tokio::task::spawn_blocking(|| server.ended())
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn the_deadline_holds() {
    let server = Server::start(&["--shutdown-timeout=300ms"]);
    server.store.pause(Duration::from_secs(60));
    let mut client = server.client().await;
    let call = tokio::spawn(async move {
        client
            .should_rate_limit(request(vec![descriptor("k", "v")]))
            .await
    });
    eventually("it is in flight", async || {
        server.metric("palang_in_flight").await == 1
    })
    .await;
    let since = Instant::now();
    server.stop();
    tokio::task::spawn_blocking(|| server.ended())
        .await
        .unwrap()
        .unwrap();
    assert!(
        since.elapsed() < Duration::from_secs(3),
        "{:?}",
        since.elapsed()
    );
    assert!(call.await.unwrap().is_err());
}

#[tokio::test]
async fn clients_that_heed_goaway_lose_no_call() {
    let old = Server::start(&["--shutdown-delay=200ms"]);
    let mut client = old.client().await;
    let at = old.at.grpc;
    let stopper = tokio::spawn(async move {
        sleep(Duration::from_millis(100)).await;
        old.stop();
        let since = Instant::now();
        tokio::task::spawn_blocking(move || old.ended())
            .await
            .unwrap()
            .unwrap();
        since.elapsed()
    });
    let mut answered = 0;
    loop {
        let asked = request(vec![descriptor("other", "v")]);
        match client.should_rate_limit(asked).await {
            Ok(_) => answered += 1,
            Err(status) if never_sent(&status) => {}
            // Only because nobody listens any more: a call that was accepted is answered.
            Err(status) => {
                assert!(TcpStream::connect(at).await.is_err(), "{status:?}");
                break;
            }
        }
    }
    assert!(answered > 10, "{answered}");
    assert!(stopper.await.unwrap() >= Duration::from_millis(200));
}

#[tokio::test]
async fn old_connections_are_asked_to_go_and_lose_no_call() {
    let server = Server::start(&[
        "--grpc-max-connection-age=200ms",
        "--grpc-max-connection-age-grace=5s",
    ]);
    let mut client = server.client().await;
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(1) {
        let asked = request(vec![descriptor("other", "v")]);
        if let Err(status) = client.should_rate_limit(asked).await {
            assert!(never_sent(&status), "{status:?}");
        }
    }
    assert!(!server.has_ended());
}

/// The client had a connection in its hand that closed before it could write the call: it lost nothing, and a proxy
/// takes another connection by itself.
fn never_sent(status: &tonic::Status) -> bool {
    status.code() == tonic::Code::Cancelled && status.message() == "operation was canceled"
}
