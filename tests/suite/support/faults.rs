//! What can go wrong with a Redis, as a table of things that are done to a real one; and a call that tells who answered
//! it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use palang::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_response::Code,
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use tonic::transport::Channel;

use super::{
    process::Process,
    proxy::{Mode, Proxy},
    redis::RedisServer,
    rules,
};

/// A rule for each failure policy, named after it.
const RULES: &str = "
domain: d
descriptors:
  - key: error
    rate_limit: {unit: year, requests_per_unit: 1000000}
  - key: allow
    rate_limit: {unit: year, requests_per_unit: 1000000, on_store_failure: allow}
  - key: deny
    rate_limit: {unit: year, requests_per_unit: 1000000, on_store_failure: deny}
  - key: local
    rate_limit: {unit: year, requests_per_unit: 1000000, on_store_failure: local}
";

pub(crate) const POLICIES: [&str; 4] = ["error", "allow", "deny", "local"];

/// What is done to a Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process is gone.
    Killed,
    /// It is started anew several times a second.
    Restarted,
    /// It stands still.
    Paused,
    /// It stands still most of the time.
    Slow,
    /// It wants a password that nobody has.
    RefusingAuth,
    /// `maxmemory`, and nothing to evict.
    Full,
    /// It is a replica now.
    Replica,
    /// The same, and the name leads to another primary in the end.
    FailedOver,
    /// The network closes every connection.
    Dropping,
    /// The network takes its time.
    Late,
    /// The network accepts, and swallows everything.
    Silent,
}

impl Fault {
    /// Every one of them.
    pub(crate) const ALL: [Self; 11] = [
        Self::Killed,
        Self::Restarted,
        Self::Paused,
        Self::Slow,
        Self::RefusingAuth,
        Self::Full,
        Self::Replica,
        Self::FailedOver,
        Self::Dropping,
        Self::Late,
        Self::Silent,
    ];

    /// What it is counted under.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Killed | Self::Restarted | Self::Dropping => "unavailable",
            Self::Paused | Self::Slow | Self::Late | Self::Silent => "timeout",
            Self::RefusingAuth => "auth",
            Self::Full => "oom",
            Self::Replica | Self::FailedOver => "readonly",
        }
    }

    /// Does no call come through while it lasts?
    pub(crate) const fn is_total(self) -> bool {
        !matches!(self, Self::Restarted | Self::Slow)
    }

    pub(crate) fn begin(self, stage: &mut Stage) {
        let slow = stage.slow;
        match self {
            Self::Killed => stage.redis().kill(),
            Self::Restarted => stage.again_and_again(move |redis| {
                redis.kill();
                redis.restart();
                Duration::from_millis(200)
            }),
            Self::Paused => stage.redis().signal("STOP"),
            Self::Slow => stage.again_and_again(move |redis| {
                redis.signal("STOP");
                thread::sleep(slow);
                redis.signal("CONT");
                Duration::from_millis(5)
            }),
            Self::RefusingAuth => {
                stage.config("requirepass", "pw");
                // Who was in before stays in.
                let _: Result<i64, _> = redis::cmd("CLIENT")
                    .arg(&["KILL", "TYPE", "normal"])
                    .query(&mut stage.redis().connection_with("pw"));
            }
            Self::Full => stage.config("maxmemory", "1"),
            Self::Replica => stage.replica_of("127.0.0.1", "1"),
            Self::FailedOver => {
                stage.spare = Some(RedisServer::start());
                // The old primary keeps its connections open.
                stage.replica_of("127.0.0.1", "1");
            }
            Self::Dropping => stage.proxy.turn(Mode::Drop),
            Self::Late => stage.proxy.turn(Mode::Late(stage.socket(), slow)),
            Self::Silent => stage.proxy.turn(Mode::Silent),
        }
    }

    pub(crate) fn end(self, stage: &mut Stage) {
        match self {
            Self::Killed => stage.redis().restart(),
            Self::Restarted | Self::Slow => stage.enough(),
            Self::Paused => stage.redis().signal("CONT"),
            Self::RefusingAuth => redis::cmd("CONFIG")
                .arg(&["SET", "requirepass", ""])
                .query::<()>(&mut stage.redis().connection_with("pw"))
                .expect("set"),
            Self::Full => stage.config("maxmemory", "0"),
            Self::Replica => stage.replica_of("NO", "ONE"),
            Self::FailedOver => {
                // The old one is the spare now, and stays what it is.
                std::mem::swap(&mut stage.redis, &mut stage.spare);
                stage.proxy.turn(Mode::To(stage.socket()));
            }
            Self::Dropping | Self::Late | Self::Silent => {
                stage.proxy.turn(Mode::To(stage.socket()));
            }
        }
    }
}

/// A Redis behind a proxy, and the rules of those that use it.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Away while something is done to it again and again.
    redis: Option<RedisServer>,
    /// The next primary, or the last one.
    spare: Option<RedisServer>,
    proxy: Proxy,
    /// How long a slow answer takes.
    slow: Duration,
    again: Option<(Arc<AtomicBool>, JoinHandle<RedisServer>)>,
    rules: tempfile::NamedTempFile,
}

impl Stage {
    /// For services that wait for `budget`.
    pub(crate) async fn start(budget: Duration) -> Self {
        let redis = RedisServer::start();
        Self {
            slow: 4 * budget,
            proxy: Proxy::start(redis.socket()).await,
            redis: Some(redis),
            spare: None,
            again: None,
            rules: rules::file(RULES),
        }
    }

    /// A service that counts there, once it is ready.
    pub(crate) async fn serve(&self, settings: &[(&str, &str)]) -> Process {
        let url = self.proxy.at.to_string();
        let mut env = vec![
            ("REDIS_URL", url.as_str()),
            ("POLICY_ANSWER_HEADER", "X-Policy"),
            ("WORKERS", "2"),
        ];
        env.extend_from_slice(settings);
        let path = self.rules.path().display().to_string();
        let process = Process::start(&["serve", "--rules", &path], &env);
        process.ready().await;
        process
    }

    pub(crate) fn redis(&mut self) -> &mut RedisServer {
        self.redis
            .as_mut()
            .expect("nothing is done to it again and again")
    }

    /// Where the primary is.
    fn socket(&self) -> std::path::PathBuf {
        self.redis.as_ref().expect("it is here").socket()
    }

    /// Does something to Redis until it is enough, with a pause of so long in between.
    fn again_and_again(
        &mut self,
        mut deed: impl FnMut(&mut RedisServer) -> Duration + Send + 'static,
    ) {
        let mut redis = self.redis.take().expect("one fault at a time");
        let enough = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&enough);
        let thread = thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                let pause = deed(&mut redis);
                thread::sleep(pause);
            }
            redis
        });
        self.again = Some((enough, thread));
    }

    fn enough(&mut self) {
        let (enough, thread) = self.again.take().expect("it has begun");
        enough.store(true, Ordering::Relaxed);
        self.redis = Some(thread.join().expect("no panic"));
    }

    fn config(&mut self, name: &str, value: &str) {
        redis::cmd("CONFIG")
            .arg("SET")
            .arg(name)
            .arg(value)
            .query::<()>(&mut self.redis().connection())
            .expect("set");
    }

    fn replica_of(&mut self, host: &str, port: &str) {
        redis::cmd("REPLICAOF")
            .arg(host)
            .arg(port)
            .query::<()>(&mut self.redis().connection())
            .expect("a role");
    }
}

/// A request that meets the rule of that policy.
pub(crate) fn asked(policy: &str) -> RateLimitRequest {
    RateLimitRequest {
        domain: "d".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry {
                key: policy.to_owned(),
                value: "v".to_owned(),
            }],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    }
}

/// Who answered a call, as the caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Store,
    Policy(Code),
    Unavailable,
    Other,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) policy: &'static str,
    pub(crate) at: Instant,
    pub(crate) took: Duration,
    pub(crate) answer: Answer,
}

impl Call {
    /// Calls by the rule of that policy.
    pub(crate) async fn make(
        client: &mut RateLimitServiceClient<Channel>,
        policy: &'static str,
    ) -> Self {
        let asked = asked(policy);
        let at = Instant::now();
        let answer = client.should_rate_limit(asked).await;
        Self {
            policy,
            at,
            took: at.elapsed(),
            answer: judge(policy, answer.map(tonic::Response::into_inner)),
        }
    }

    /// What its rule says for the time of a fault.
    pub(crate) fn as_asked(&self) -> bool {
        self.answer
            == match self.policy {
                "error" => Answer::Unavailable,
                "deny" => Answer::Policy(Code::OverLimit),
                _ => Answer::Policy(Code::Ok),
            }
    }
}

fn judge(policy: &str, answer: Result<RateLimitResponse, tonic::Status>) -> Answer {
    let response = match answer {
        Ok(response) => response,
        Err(status) if status.code() == tonic::Code::Unavailable => return Answer::Unavailable,
        Err(_) => return Answer::Other,
    };
    let marked = response
        .response_headers_to_add
        .iter()
        .find(|header| header.key == "X-Policy");
    let figures = response.statuses[0].current_limit.is_some();
    match marked {
        None if figures && response.overall_code() == Code::Ok => Answer::Store,
        // Only what was counted has figures.
        Some(marked) if marked.value == policy && figures == (policy == "local") => {
            Answer::Policy(response.overall_code())
        }
        _ => Answer::Other,
    }
}
