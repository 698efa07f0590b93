//! Who decided, where it was not the store: this replica's own count, or the failure policy.

use palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use crate::{
    debug_port::request,
    support::{eventually, process::Process, redis::RedisServer, rules::file, service::channel},
};

const RULES: &str = "\
domain: shop
descriptors:
  - key: local
    rate_limit: {unit: year, requests_per_unit: 2, on_store_failure: local}
  - key: allow
    rate_limit: {unit: year, requests_per_unit: 2, on_store_failure: allow}
  - key: deny
    rate_limit: {unit: year, requests_per_unit: 2, on_store_failure: deny}
  - key: error
    rate_limit: {unit: year, requests_per_unit: 2}
";

#[tokio::test]
async fn decisions_without_the_store_say_who_made_them() {
    let mut redis = RedisServer::start();
    let rules = file(RULES);
    let path = rules.path().display().to_string();
    let env = [
        ("REDIS_SOCKET_TYPE", "unix"),
        ("REDIS_URL", &*redis.url()),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "0"),
        ("WORKERS", "1"),
    ];
    let process = Process::start(&["serve", "--rules", &path], &env);
    process.ready().await;
    let client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
    let ask = async |key: &str| {
        let asked = request("shop", &[&[(key, "v")]]);
        client.clone().should_rate_limit(asked).await
    };
    let count = async |rule: &str, code: &str, mode: &str| {
        let labels =
            format!("domain=\"shop\",rule=\"shop.{rule}\",code=\"{code}\",mode=\"{mode}\"");
        process
            .metric(&format!("palang_decisions_total{{{labels}}}"))
            .await
    };

    ask("allow").await.expect("decided");
    assert_eq!(count("allow", "ok", "store").await, 1);
    redis.kill();
    eventually("the breaker opens", async || {
        drop(ask("error").await);
        let opened = "palang_store_breaker{store=\"main\",state=\"open\"}";
        (process.metric(opened).await == 1).then_some(())
    })
    .await;

    for _ in 0..3 {
        for key in ["local", "allow", "deny"] {
            ask(key).await.expect("answered by its policy");
        }
        ask("error").await.expect_err("the proxy decides");
    }
    for (rule, code, mode, decisions) in [
        ("local", "ok", "local", 2),
        ("local", "over_limit", "local", 1),
        ("local", "ok", "store", 0),
        ("local", "ok", "policy", 0),
        ("allow", "ok", "policy", 3),
        ("allow", "ok", "store", 1),
        ("deny", "over_limit", "policy", 3),
        ("deny", "over_limit", "store", 0),
        ("error", "ok", "policy", 0),
        ("error", "over_limit", "policy", 0),
    ] {
        let found = count(rule, code, mode).await;
        assert_eq!(found, decisions, "{rule} {code} {mode}");
    }
    // A refusal that nobody counted is none of the rule's refused hits.
    let refused = "palang_rate_limit_exceeded_total{domain=\"shop\",rule=\"shop.deny\"}";
    assert_eq!(process.metric(refused).await, 0);
}
