//! A whole server in this process, over real sockets, with a store that does as it is told.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot unwrap hides what it found"
)]

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

use clap::Parser;
use palang::{
    algorithm::{Outcome, Quota, Source},
    app::{Addresses, App, Intake},
    counter::{Atomicity, Counter, CounterKey},
    proto::envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::ratelimit::v3::{
            RateLimitRequest, rate_limit_service_client::RateLimitServiceClient,
        },
    },
    rules::{Limit, Node, NodeId, Place, Rule, Rules, RulesBuilder, Series},
    settings::Settings,
    shutdown::Shutdown,
    store::{Store, StoreError, in_time},
    time::{Clock, Deadline},
    unit::Unit,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};
use tonic::transport::{Channel, Endpoint};

/// A running server. Stopped when dropped.
pub(crate) struct Server {
    pub at: Addresses,
    pub intake: Intake,
    pub store: Tally,
    shutdown: Shutdown,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

/// Fixed windows that never turn, or whatever the test asks for.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<Mutex<Behaviour>>);

#[derive(Default)]
struct Behaviour {
    taken: HashMap<CounterKey, u64>,
    calls: usize,
    pause: Duration,
    error: Option<StoreError>,
}

impl Tally {
    /// Calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.0.lock().unwrap().calls
    }

    pub(crate) fn pause(&self, pause: Duration) {
        self.0.lock().unwrap().pause = pause;
    }

    pub(crate) fn fail(&self, error: Option<StoreError>) {
        self.0.lock().unwrap().error = error;
    }
}

impl Store for Tally {
    async fn take_by(
        &self,
        counters: &[Counter],
        _atomicity: Atomicity,
        deadline: Deadline,
    ) -> Vec<Result<Outcome, StoreError>> {
        let pause = self.0.lock().unwrap().pause;
        if !pause.is_zero() {
            let pause = async {
                sleep(pause).await;
                Vec::new()
            };
            let late = in_time(deadline, counters.len(), pause).await;
            if !late.is_empty() {
                return late;
            }
        }
        let mut behaviour = self.0.lock().unwrap();
        behaviour.calls += 1;
        if let Some(error) = &behaviour.error {
            return counters.iter().map(|_| Err(error.clone())).collect();
        }
        counters
            .iter()
            .map(|counter| {
                let used = behaviour.taken.entry(counter.key.clone()).or_default();
                *used = used.saturating_add_signed(counter.hits);
                let limit = counter.quota.capacity();
                Ok(Outcome {
                    allowed: *used <= limit,
                    remaining: limit.saturating_sub(*used),
                    reset_after: 3_600_000_000,
                    retry_after: Some(if *used <= limit { 0 } else { 3_600_000_000 }),
                    next_after: Some(3_600_000_000),
                    delay: 0,
                    used: *used,
                    source: Source::Counter,
                    basis: None,
                })
            })
            .collect()
    }
}

#[derive(Parser)]
struct Words {
    #[command(flatten)]
    settings: Settings,
}

impl Server {
    /// Starts one with these flags and no rules.
    pub(crate) fn without_rules(flags: &[&str]) -> Self {
        let words = [
            "palang",
            "--host=127.0.0.1",
            "--port=0",
            "--grpc-host=127.0.0.1",
            "--grpc-port=0",
            "--debug-port=0",
            "--prometheus-addr=127.0.0.1:0",
            "--workers=2",
        ];
        // A later flag must be able to take the place of an earlier one.
        let given: Vec<&str> = words
            .into_iter()
            .filter(|word| {
                let name = word.split('=').next().unwrap();
                !flags
                    .iter()
                    .any(|flag| flag.split('=').next() == Some(name))
            })
            .chain(flags.iter().copied())
            .collect();
        let app = App::bind(Words::parse_from(given).settings, Clock::system()).unwrap();
        let (at, intake) = (app.addresses(), app.intake());
        let (shutdown, store) = (Shutdown::default(), Tally::default());
        let (stop, made) = (shutdown.clone(), store.clone());
        let thread = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(app.run_with(move || made.clone(), stop))
        });
        Self {
            at,
            intake,
            store,
            shutdown,
            thread: Some(thread),
        }
    }

    /// Starts one with 10 hits an hour of the key `k` in the domain `d`.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let server = Self::without_rules(flags);
        server.intake.accept(ten_an_hour());
        server
    }

    /// Asks it to stop.
    pub(crate) fn stop(&self) {
        self.shutdown.begin();
    }

    /// Waits for its end.
    pub(crate) fn ended(mut self) -> anyhow::Result<()> {
        self.thread.take().unwrap().join().unwrap()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    pub(crate) async fn channel(&self) -> Channel {
        connect(self.at.grpc).await
    }

    pub(crate) async fn client(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::new(self.channel().await)
    }

    /// The value of a counter at `/stats`; 0 when it is not there.
    pub(crate) async fn stat(&self, name: &str) -> u64 {
        let stats = get(self.at.debug, "/stats").await.body;
        stats
            .lines()
            .filter_map(|line| line.rsplit_once(": "))
            .find(|(found, _)| *found == name)
            .map_or(0, |(_, value)| value.parse().unwrap())
    }

    /// The value of a series at `/metrics`; 0 when it is not there.
    pub(crate) async fn metric(&self, series: &str) -> u64 {
        let metrics = get(self.at.metrics.expect("a metrics port"), "/metrics")
            .await
            .body;
        metrics
            .lines()
            .filter_map(|line| line.rsplit_once(' '))
            .find(|(found, _)| *found == series)
            .map_or(0, |(_, value)| value.parse().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shutdown.begin();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) async fn connect(address: SocketAddr) -> Channel {
    Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

pub(crate) fn ten_an_hour() -> Arc<Rules> {
    let mut builder = RulesBuilder::default();
    let mut domain = builder.domain("d");
    let rule = domain.rule(Rule {
        limit: Some(Limit {
            requests_per_unit: 10,
            unit: Some(Unit::Hour),
            window: Unit::Hour.micros(),
            quota: Quota::FixedWindow {
                limit: 10,
                window: Unit::Hour.micros(),
            },
            cost: 1,
            on_store_failure: None,
        }),
        name: "".into(),
        replaces: Box::default(),
        shadow: false,
        quota: false,
        path: "d.k".into(),
        series: Series::Rule(["k".into()].into()),
        metadata: None,
        place: Place::default(),
    });
    let mut node = Node::default();
    node.rule = Some(rule);
    node.label = "k".into();
    domain.child(NodeId::ROOT, "k", "", node).unwrap();
    builder.build()
}

pub(crate) fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
    RateLimitDescriptor {
        entries: vec![Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        }],
        ..RateLimitDescriptor::default()
    }
}

pub(crate) fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: "d".to_owned(),
        descriptors,
        hits_addend: 0,
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    send(address, "GET", path, b"").await
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &[u8]) -> Answer {
    send(address, "POST", path, body).await
}

pub(crate) async fn send(address: SocketAddr, method: &str, path: &str, body: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(&[head.as_bytes(), body].concat()).await;
    let mut answer = Vec::new();
    let _ = timeout(Duration::from_secs(10), stream.read_to_end(&mut answer))
        .await
        .expect("an answer in time");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole head");
    Answer {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// Waits until `condition` holds; fails after a while.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if condition().await {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}
