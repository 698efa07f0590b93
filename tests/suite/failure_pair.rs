//! Two Redis, one for the limits of seconds: each fails by itself, and takes nothing of the other with it.

use std::time::Duration;

use palang::proto::envoy::service::ratelimit::v3::{
    RateLimitResponse, rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
};
use tonic::transport::Channel;

use crate::{
    server_harness::{descriptor, get, request},
    support::{
        eventually, faults::POLICIES, process::Process, redis::RedisServer, rules::file,
        service::channel,
    },
};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Main,
    PerSecond,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::PerSecond => "per_second",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Main => Self::PerSecond,
            Self::PerSecond => Self::Main,
        }
    }
}

/// A rule for each policy on each side, named `policy_side`.
fn rules() -> String {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for policy in POLICIES {
        for (side, unit) in [(Side::Main, "year"), (Side::PerSecond, "second")] {
            let side = side.name();
            text += &format!(
                "- key: {policy}_{side}\n  rate_limit: {{unit: {unit}, requests_per_unit: 1000, on_store_failure: {policy}}}\n"
            );
        }
    }
    text
}

struct Pair {
    main: RedisServer,
    seconds: RedisServer,
    process: Process,
    client: RateLimitServiceClient<Channel>,
}

impl Pair {
    async fn start() -> Self {
        let (main, seconds, rules) = (RedisServer::start(), RedisServer::start(), file(&rules()));
        let path = rules.path().display().to_string();
        let process = Process::start(
            &["serve", "--rules", &path],
            &[
                ("REDIS_SOCKET_TYPE", "unix"),
                ("REDIS_URL", &main.url()),
                ("REDIS_PERSECOND", "true"),
                ("REDIS_PERSECOND_SOCKET_TYPE", "unix"),
                ("REDIS_PERSECOND_URL", &seconds.url()),
                ("STORE_TIMEOUT", "200ms"),
                ("POLICY_ANSWER_HEADER", "X-Policy"),
                ("READY_NEEDS_STORE", "true"),
                ("WORKERS", "1"),
            ],
        );
        process.ready().await;
        let client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
        Self {
            main,
            seconds,
            process,
            client,
        }
    }

    fn redis(&mut self, side: Side) -> &mut RedisServer {
        match side {
            Side::Main => &mut self.main,
            Side::PerSecond => &mut self.seconds,
        }
    }

    async fn ask(&self, rules: &[(&str, Side)]) -> Result<RateLimitResponse, tonic::Code> {
        let asked = rules
            .iter()
            .map(|(policy, side)| descriptor(&format!("{policy}_{}", side.name()), "v"));
        let mut client = self.client.clone();
        match client.should_rate_limit(request(asked.collect())).await {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(status.code()),
        }
    }

    async fn breaker(&self, side: Side, state: &str) -> bool {
        let name = side.name();
        let series = format!("palang_store_breaker{{store=\"{name}\",state=\"{state}\"}}");
        self.process.metric(&series).await == 1
    }

    async fn is_ready(&self) -> bool {
        get(self.process.address("http").await, "/readyz")
            .await
            .status
            == 200
    }

    /// Every rule of a side that is well is decided by its store.
    async fn is_well(&self, side: Side) {
        for policy in POLICIES {
            let answer = self.ask(&[(policy, side)]).await.expect("decided");
            assert_eq!(answer.overall_code(), Code::Ok, "{policy} {side:?}");
            assert_eq!(marked(&answer), None, "{policy} {side:?}");
            assert!(answer.statuses[0].current_limit.is_some());
        }
        assert!(self.breaker(side, "closed").await, "{side:?}");
    }
}

/// Which policies answered, if any did.
fn marked(answer: &RateLimitResponse) -> Option<&str> {
    let headers = &answer.response_headers_to_add;
    let found = headers.iter().find(|header| header.key == "X-Policy");
    found.map(|header| header.value.as_str())
}

async fn one_of_two(
    side: Side,
    begin: impl FnOnce(&mut RedisServer),
    end: impl FnOnce(&mut RedisServer),
) {
    let mut pair = Pair::start().await;
    pair.is_well(Side::Main).await;
    pair.is_well(Side::PerSecond).await;
    begin(pair.redis(side));
    // Every policy answers for its own rule, and the other side never notices.
    eventually("the breaker opens", async || {
        for policy in POLICIES {
            let answer = pair.ask(&[(policy, side)]).await;
            let code = answer.as_ref().map(RateLimitResponse::overall_code);
            let expected = match policy {
                "error" => Err(&tonic::Code::Unavailable),
                "deny" => Ok(Code::OverLimit),
                _ => Ok(Code::Ok),
            };
            assert_eq!(code, expected, "{policy} {side:?}");
            if let Ok(answer) = &answer {
                assert_eq!(marked(answer), Some(policy));
                let figures = answer.statuses[0].current_limit.is_some();
                assert_eq!(figures, policy == "local", "{policy}");
            }
        }
        pair.is_well(side.other()).await;
        (!pair.breaker(side, "closed").await).then_some(())
    })
    .await;
    // Both sides in one request: each rule by who is there for it.
    let mixed = [("error", side.other()), ("allow", side), ("local", side)];
    let answer = pair.ask(&mixed).await.expect("answered");
    assert_eq!(answer.overall_code(), Code::Ok);
    assert_eq!(marked(&answer), Some("allow, local"));
    let figures: Vec<bool> = answer
        .statuses
        .iter()
        .map(|status| status.current_limit.is_some())
        .collect();
    assert_eq!(figures, [true, false, true]);
    let answer = pair.ask(&[("error", side), ("error", side.other())]).await;
    assert_eq!(answer, Err(tonic::Code::Unavailable));
    eventually("readiness tells, as it was asked to", async || {
        (!pair.is_ready().await).then_some(())
    })
    .await;

    end(pair.redis(side));
    crate::support::within(Duration::from_secs(3), "full service", async || {
        let answer = pair.ask(&[("allow", side)]).await.ok()?;
        marked(&answer).is_none().then_some(())
    })
    .await;
    eventually("it is ready again", async || {
        pair.is_ready().await.then_some(())
    })
    .await;
    pair.is_well(Side::Main).await;
    pair.is_well(Side::PerSecond).await;
}

#[tokio::test]
async fn either_of_two_redis_is_killed() {
    for side in [Side::Main, Side::PerSecond] {
        one_of_two(side, RedisServer::kill, RedisServer::restart).await;
    }
}

#[tokio::test]
async fn either_of_two_redis_stands_still() {
    for side in [Side::Main, Side::PerSecond] {
        one_of_two(
            side,
            |redis| redis.signal("STOP"),
            |redis| redis.signal("CONT"),
        )
        .await;
    }
}
