//! The gRPC port: decisions, health, reflection, bounds.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot unwrap hides what it found"
)]

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use palang::{
    proto::{
        envoy::extensions::common::ratelimit::v3::{
            RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride,
        },
        grpc::health::v1::{
            HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
        },
    },
    store::StoreError,
};
use proptest::{collection::vec, prelude::any, strategy::Strategy as _, test_runner};
use tokio::net::TcpStream;
use tonic::Code;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};

use crate::server_harness::{Server, descriptor, eventually, request, ten_an_hour};

#[tokio::test]
async fn decisions_come_with_headers_and_metadata() {
    let server = Server::start(&[
        "--limit-response-headers-enabled",
        "--limit-limit-header=X-L",
        "--rate-limit-headers=retry-after",
        "--response-dynamic-metadata",
    ]);
    let mut client = server.client().await;
    let mut asked = request(vec![descriptor("k", "v")]);
    asked.hits_addend = 11;
    let answer = client.should_rate_limit(asked).await.unwrap().into_inner();
    let headers: Vec<_> = answer
        .response_headers_to_add
        .iter()
        .map(|header| (header.key.as_str(), header.value.as_str()))
        .collect();
    assert_eq!(
        headers,
        [
            ("X-L", "10"),
            ("RateLimit-Remaining", "0"),
            ("RateLimit-Reset", "3600"),
            ("Retry-After", "3600"),
        ]
    );
    let metadata = answer.dynamic_metadata.unwrap();
    let names: Vec<_> = metadata.fields.keys().collect();
    assert_eq!(names, ["descriptors", "domain", "hitsAddend"]);
    let total = "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"}";
    assert_eq!(server.metric(total).await, 1);
    let time = "ratelimit_service_response_time_seconds_count{grpc_method=\"ShouldRateLimit\"}";
    assert_eq!(server.metric(time).await, 1);
}

#[tokio::test]
async fn what_is_over_a_bound_is_named_and_charged_nowhere() {
    let server = Server::start(&[
        "--max-descriptors=2",
        "--max-entries=2",
        "--max-key-length=3",
        "--max-value-length=4",
        "--max-message-size=5000",
    ]);
    let mut client = server.client().await;
    let mut no_domain = request(vec![descriptor("k", "v")]);
    no_domain.domain.clear();
    let no_unit = RateLimitDescriptor {
        limit: Some(RateLimitOverride {
            requests_per_unit: 5,
            unit: 0,
        }),
        ..descriptor("k", "v")
    };
    let no_such_unit = RateLimitDescriptor {
        limit: Some(RateLimitOverride {
            requests_per_unit: 5,
            unit: 99,
        }),
        ..descriptor("k", "v")
    };
    let mut entries = descriptor("k", "v");
    entries.entries = vec![entries.entries[0].clone(); 3];
    for (asked, text, bound) in [
        (no_domain, "rate limit domain must not be empty", "meaning"),
        (
            request(vec![]),
            "rate limit descriptor list must not be empty",
            "meaning",
        ),
        (
            request(vec![descriptor("k", "v"), no_unit]),
            "descriptors[1].limit.unit: a limit needs a unit",
            "meaning",
        ),
        (
            request(vec![no_such_unit]),
            "descriptors[0].limit.unit: there is no unit 99",
            "meaning",
        ),
        (
            request(vec![descriptor("k", "v"); 3]),
            "descriptors: more than 2 elements",
            "descriptors",
        ),
        (
            request(vec![descriptor("k", "v"), entries]),
            "descriptors[1].entries: more than 2 elements",
            "entries",
        ),
        (
            request(vec![descriptor("long", "v")]),
            "descriptors[0].entries[0].key: longer than 3 bytes",
            "key_length",
        ),
        (
            request(vec![descriptor("k", "v"), descriptor("k", "longer")]),
            "descriptors[1].entries[0].value: longer than 4 bytes",
            "value_length",
        ),
    ] {
        let series = format!("palang_bad_requests_total{{bound=\"{bound}\"}}");
        let before = server.metric(&series).await;
        let status = client.should_rate_limit(asked).await.unwrap_err();
        assert_eq!(
            (status.code(), status.message()),
            (Code::InvalidArgument, text)
        );
        assert_eq!(server.metric(&series).await, before + 1, "{text}");
    }
    let large = request(vec![descriptor("k", &"x".repeat(6_000))]);
    let status = client.should_rate_limit(large).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, "message: larger than 5000 bytes")
    );
    let series = "palang_bad_requests_total{bound=\"message_size\"}";
    assert_eq!(server.metric(series).await, 1);
    assert_eq!(server.store.calls(), 0);
    client
        .should_rate_limit(request(vec![descriptor("k", "v")]))
        .await
        .unwrap();
}

#[tokio::test]
async fn what_cannot_be_decided_is_unavailable() {
    let server = Server::without_rules(&[]);
    let mut client = server.client().await;
    let mut ask = async || {
        client
            .should_rate_limit(request(vec![descriptor("k", "v")]))
            .await
            .unwrap_err()
    };
    let status = ask().await;
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "no rate limit configuration loaded")
    );
    server.intake.accept(ten_an_hour());
    for error in [
        StoreError::Timeout,
        StoreError::Unavailable("hunter2".into()),
        StoreError::Refused("hunter2".into()),
        StoreError::ForeignState,
        StoreError::Full,
    ] {
        server.store.fail(Some(error.clone()));
        let status = ask().await;
        assert_eq!(status.code(), Code::Unavailable, "{error:?}");
        assert!(!status.message().is_empty() && !status.message().contains("hunter2"));
    }
}

#[tokio::test]
async fn health_is_one_truth_under_three_names() {
    let server = Server::without_rules(&["--shutdown-delay=1s"]);
    let mut client = HealthClient::new(server.channel().await);
    let asked = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };
    let names = [
        "",
        "ratelimit",
        "envoy.service.ratelimit.v3.RateLimitService",
    ];
    let mut watch = client.watch(asked("")).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::NotServing);
    for name in names {
        let status = client.check(asked(name)).await.unwrap().into_inner();
        assert_eq!(status.status(), ServingStatus::NotServing, "{name}");
    }
    server.intake.accept(ten_an_hour());
    for name in names {
        let status = client.check(asked(name)).await.unwrap().into_inner();
        assert_eq!(status.status(), ServingStatus::Serving, "{name}");
    }
    let next = watch.message().await.unwrap().unwrap();
    assert_eq!(next.status(), ServingStatus::Serving);
    server.stop();
    let last = watch.message().await.unwrap().unwrap();
    assert_eq!(last.status(), ServingStatus::NotServing);

    let unknown = client.check(asked("nobody")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let mut watch = client.watch(asked("nobody")).await.unwrap().into_inner();
    let first = watch.message().await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::ServiceUnknown);
}

#[tokio::test]
async fn reflection_lists_the_services() {
    let server = Server::start(&[]);
    let mut client = ServerReflectionClient::new(server.channel().await);
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = client
        .server_reflection_info(tokio_stream::once(ask))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("a list of services");
    };
    let names: Vec<_> = list
        .service
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    for name in [
        "envoy.service.ratelimit.v3.RateLimitService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
    ] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
}

#[tokio::test]
async fn an_honest_client_that_cancels_hundreds_of_calls_keeps_its_connection() {
    let server = Server::start(&[]);
    let client = server.client().await;
    server.store.pause(Duration::from_millis(300));
    for _ in 0..3 {
        let calls: Vec<_> = (0..500)
            .map(|_| {
                let mut client = client.clone();
                tokio::spawn(async move {
                    let asked = request(vec![descriptor("k", "v")]);
                    tokio::time::timeout(Duration::from_millis(20), client.should_rate_limit(asked))
                        .await
                })
            })
            .collect();
        for call in calls {
            if let Ok(Ok(answered)) = call.await {
                panic!("a paused store answered: {answered:?}");
            }
        }
    }
    server.store.pause(Duration::ZERO);
    let asked = request(vec![descriptor("other", "v")]);
    client.clone().should_rate_limit(asked).await.unwrap();
    assert_eq!(
        server.metric("palang_connections{port=\"grpc\"}").await,
        1,
        "the same connection, not a new one"
    );
    eventually("nothing in flight", async || {
        server.metric("palang_in_flight").await == 0
    })
    .await;
}

#[test]
fn no_frame_brings_it_down() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::start(&[]);
    let mut runner = test_runner::TestRunner::new(test_runner::Config {
        cases: 200,
        failure_persistence: None,
        ..test_runner::Config::default()
    });
    let bytes = vec(any::<u8>(), 0..300);
    let framed = vec(any::<u8>(), 0..300).prop_map(|message| {
        let mut frame = vec![0];
        frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        frame.extend_from_slice(&message);
        frame
    });
    let sender = runtime.block_on(async {
        let stream = TcpStream::connect(server.at.grpc).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        sender
    });
    runner
        .run(&proptest::prop_oneof![bytes, framed], |body| {
            let status = runtime.block_on(raw(&mut sender.clone(), body));
            // OK, INVALID_ARGUMENT, or UNIMPLEMENTED for a compressed one: never INTERNAL, never UNKNOWN.
            proptest::prop_assert!(
                matches!(status.as_deref(), Some("0" | "3" | "12")),
                "{status:?}"
            );
            Ok(())
        })
        .unwrap();
    let answer = runtime.block_on(async {
        let asked = request(vec![descriptor("k", "v")]);
        server.client().await.should_rate_limit(asked).await
    });
    assert!(answer.is_ok());
}

/// Sends `body` as a call, and gives the status it is answered with.
async fn raw(
    sender: &mut hyper::client::conn::http2::SendRequest<Full<Bytes>>,
    body: Vec<u8>,
) -> Option<String> {
    let call = http::Request::post(
        "http://test/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
    )
    .header("content-type", "application/grpc")
    .header("te", "trailers")
    .body(Full::new(Bytes::from(body)))
    .unwrap();
    let answer = sender.send_request(call).await.ok()?;
    let (head, body) = answer.into_parts();
    let trailers = body.collect().await.ok()?.trailers().cloned();
    head.headers
        .get("grpc-status")
        .or_else(|| trailers.as_ref()?.get("grpc-status"))
        .map(|status| status.to_str().unwrap().to_owned())
}
