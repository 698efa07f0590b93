//! Profiles of the real, busy process, and who may take them.

use std::{
    io::Read as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use flate2::read::GzDecoder;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use prost::Message;
use tokio::{net::TcpStream, task::JoinSet};

use crate::{
    debug_port::request,
    support::{
        process::Process,
        service::{Service, channel},
    },
};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1000}
";

/// pprof's format, as far as it matters here.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    kinds: Vec<Kind>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    locations: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    functions: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    strings: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Kind {
    #[prost(int64, tag = "1")]
    name: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    locations: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    lines: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

impl Profile {
    fn read(gzipped: &[u8]) -> Self {
        let mut bytes = Vec::new();
        let mut gzip = GzDecoder::new(gzipped);
        gzip.read_to_end(&mut bytes).expect("gzip");
        Self::decode(&*bytes).expect("a profile")
    }

    fn kinds(&self) -> Vec<(&str, &str)> {
        let text = |index: i64| self.strings[usize::try_from(index).expect("an index")].as_str();
        let kinds = self.kinds.iter();
        kinds
            .map(|kind| (text(kind.name), text(kind.unit)))
            .collect()
    }

    /// The names of the functions of a sample, the innermost first.
    fn stack(&self, sample: &Sample) -> Vec<&str> {
        let mut names = Vec::new();
        for id in &sample.locations {
            let location = self.locations.iter().find(|location| location.id == *id);
            for line in &location.expect("each location is there").lines {
                let function = self.functions.iter().find(|one| one.id == line.function);
                let name = function.expect("each function is there").name;
                names.push(self.strings[usize::try_from(name).expect("an index")].as_str());
            }
        }
        names
    }
}

async fn get(process: &Process, path: &str, token: Option<&str>) -> (u16, Bytes) {
    let at = process.address("debug").await;
    let stream = TcpStream::connect(at).await.expect("the debug port");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("HTTP");
    tokio::spawn(connection);
    let mut request = hyper::Request::get(path).header("host", at.to_string());
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).expect("a request");
    let answer = sender.send_request(request).await.expect("an answer");
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("a body");
    (status, body.to_bytes())
}

/// A process with the token, and its rules.
fn start() -> (Process, tempfile::TempDir) {
    let rules = tempfile::tempdir().expect("a directory for the rules");
    std::fs::write(rules.path().join("shop.yaml"), RULES).expect("the rules are written");
    let path = rules.path().display().to_string();
    let env = [("PALANG_RULES", &*path), ("ADMIN_TOKEN", "sesame")];
    (Process::start(&["serve"], &env), rules)
}

/// Calls with new keys, until it is dropped.
struct Load {
    calls: JoinSet<()>,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
}

impl Load {
    async fn begin(process: &Process) -> Self {
        let client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
        let stop = Arc::new(AtomicBool::new(false));
        let answered: Arc<AtomicU64> = Arc::default();
        let mut calls = JoinSet::new();
        for lane in 0..4 {
            let (mut client, stop, answered) =
                (client.clone(), Arc::clone(&stop), Arc::clone(&answered));
            calls.spawn(async move {
                for round in 0_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let keys: Vec<String> =
                        (0..20).map(|key| format!("{lane}-{round}-{key}")).collect();
                    let entries: Vec<[(&str, &str); 1]> =
                        keys.iter().map(|key| [("user", key.as_str())]).collect();
                    let descriptors: Vec<&[(&str, &str)]> =
                        entries.iter().map(|entry| &entry[..]).collect();
                    let asked = client.should_rate_limit(request("shop", &descriptors));
                    asked.await.expect("decided");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self {
            calls,
            stop,
            answered,
        }
    }

    fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Ends it. A call that failed fails the test.
    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.calls.join_all().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profiles_show_our_functions_while_calls_are_answered() {
    let (process, _rules) = start();
    let load = Load::begin(&process).await;
    for (path, kind, ours) in [
        (
            "/debug/pprof/profile?seconds=2",
            ("cpu", "nanoseconds"),
            "palang::",
        ),
        (
            "/debug/pprof/heap?seconds=2",
            ("inuse_space", "bytes"),
            "palang::store::memory",
        ),
    ] {
        let before = load.answered();
        let (status, body) = get(&process, path, Some("sesame")).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        assert!(load.answered() > before + 10, "decisions were answered");
        let profile = Profile::read(&body);
        assert!(profile.kinds().contains(&kind), "{:?}", profile.kinds());
        let place = profile.kinds().iter().position(|found| *found == kind);
        let place = place.expect("just found");
        let with_ours = profile.samples.iter().filter(|sample| {
            let stack = profile.stack(sample);
            stack.iter().any(|name| name.contains(ours)) && sample.values[place] > 0
        });
        let (found, whole) = (with_ours.count(), profile.samples.len());
        assert!(found > 0, "none of {whole} samples names {ours}");
    }
    load.end().await;
    let told: Vec<_> = process
        .records()
        .into_iter()
        .filter(|record| record["@message"] == "a profile was taken")
        .map(|record| record["what"].clone())
        .collect();
    assert_eq!(told, ["cpu", "heap"]);
}

#[tokio::test]
async fn one_profile_is_taken_at_a_time_and_only_with_the_token() {
    let (process, _rules) = start();
    for path in ["/debug/pprof/profile", "/debug/pprof/heap"] {
        for token in [None, Some("wrong")] {
            assert_eq!(get(&process, path, token).await.0, 401, "{path}");
        }
        for seconds in ["0", "121", "-1", "1.5", "all"] {
            let path = format!("{path}?seconds={seconds}");
            assert_eq!(get(&process, &path, Some("sesame")).await.0, 400, "{path}");
        }
        let (_, index) = get(&process, "/", None).await;
        assert!(String::from_utf8_lossy(&index).contains(path));
    }
    let both = tokio::join!(
        get(&process, "/debug/pprof/heap?seconds=1", Some("sesame")),
        get(&process, "/debug/pprof/profile?seconds=1", Some("sesame")),
    );
    let mut statuses = [both.0.0, both.1.0];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
    let (again, _) = get(&process, "/debug/pprof/profile?seconds=1", Some("sesame")).await;
    assert_eq!(again, 200);

    let closed = Service::builder().start().await;
    let answer = closed.debug("GET", "/debug/pprof/heap", &[]).await;
    assert_eq!(answer.status, 403, "off unless there is a token");
}
