//! Connections that open calls only to reset them, and honest ones beside them.

use std::time::{Duration, Instant};

use palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    server_harness::{descriptor, request},
    support::{process::Process, rules::file, service::channel},
};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: {unit: hour, requests_per_unit: 1000000}
";

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
pub(crate) const PING: u8 = 6;
const GOAWAY: u8 = 7;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) fn frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    bytes.extend_from_slice(&length[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}

/// A POST of the one method, in HPACK without a table.
pub(crate) fn head() -> Vec<u8> {
    let mut head = vec![0x83, 0x86];
    for (index, text) in [
        (
            0x04,
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        ),
        (0x01, "flood"),
    ] {
        head.extend_from_slice(&[index, u8::try_from(text.len()).expect("short")]);
        head.extend_from_slice(text.as_bytes());
    }
    head
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_resets_is_cut_off_and_others_are_served() {
    let rules = file(RULES);
    let process = Process::start(
        &["serve", "--rules", &rules.path().display().to_string()],
        &[("WORKERS", "1")],
    );
    process.ready().await;
    let at = process.address("grpc").await;
    let mut honest = RateLimitServiceClient::new(channel(at).await);
    let memory = process.metric("process_resident_memory_bytes").await;

    let flood = tokio::spawn(async move {
        let (mut read, mut write) = TcpStream::connect(at).await.expect("accepted").into_split();
        let heard = tokio::spawn(async move {
            let mut all = Vec::new();
            // Cut off, it may end with an error.
            let _ = read.read_to_end(&mut all).await;
            all
        });
        let mut bytes = PREFACE.to_vec();
        frame(&mut bytes, SETTINGS, 0, 0, &[]);
        let head = head();
        let mut stream = 1;
        let mut sent = 0_u32;
        while sent < 500_000 && write.write_all(&bytes).await.is_ok() {
            bytes.clear();
            for _ in 0..500 {
                frame(&mut bytes, HEADERS, END_HEADERS, stream, &head);
                frame(&mut bytes, RST_STREAM, 0, stream, &8_u32.to_be_bytes());
                stream += 2;
            }
            sent += 500;
        }
        let heard = heard.await.expect("no panic");
        drop(write);
        (sent, heard)
    });
    let mut slowest = Duration::ZERO;
    let mut answered = 0;
    while !flood.is_finished() {
        let since = Instant::now();
        let asked = request(vec![descriptor("k", "v")]);
        honest.should_rate_limit(asked).await.expect("answered");
        slowest = slowest.max(since.elapsed());
        answered += 1;
    }
    let (sent, heard) = flood.await.expect("no panic");
    assert!(sent < 500_000, "the flood was let through");
    let last = &heard[heard.len().saturating_sub(17)..];
    // GOAWAY, and ENHANCE_YOUR_CALM.
    assert_eq!(&last[..4], &[0, 0, 8, GOAWAY], "{last:?}");
    assert_eq!(&last[13..], &[0, 0, 0, 11], "{last:?}");
    assert!(answered > 0, "nobody else was served");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    let after = process.metric("process_resident_memory_bytes").await;
    assert!(after < memory + 64 * 1024 * 1024, "{memory} to {after}");
}
