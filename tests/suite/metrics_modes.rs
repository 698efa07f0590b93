//! Who decided, where it was not the store: this replica's own count, or the failure policy.

use palang::proto::envoy::service::ratelimit::v3::{
    rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
};

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

#[tokio::test]
async fn what_shadow_mode_or_a_quota_lets_through_is_no_refusal() {
    let quota = "domain: shop\ndescriptors:\n  - key: user\n    quota_mode: true\n    rate_limit: {unit: year, requests_per_unit: 1}\n  - key: free\n    rate_limit: {unlimited: true}\n  - key: other\n    quota_mode: true\n    rate_limit: {unit: year, requests_per_unit: 9}\n";
    let enforced = quota.replace("    quota_mode: true\n", "");
    for (rules, shadow, asked) in [
        (&*enforced, "true", request("shop", &[&[("user", "v")]])),
        // One quota that is not empty lets the call through.
        (
            quota,
            "false",
            request("shop", &[&[("user", "v")], &[("other", "v")]]),
        ),
        (&*enforced, "false", request("shop", &[&[("user", "v")]])),
    ] {
        let is_refused = rules == enforced && shadow == "false";
        let rules = file(rules);
        let path = rules.path().display().to_string();
        let env = [
            ("SHADOW_MODE", shadow),
            ("DENY_LOG_PER_SECOND", "100"),
            ("WORKERS", "1"),
        ];
        let process = Process::start(&["serve", "--rules", &path], &env);
        process.ready().await;
        let mut client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
        let mut codes = Vec::new();
        for _ in 0..3 {
            let answer = client.should_rate_limit(asked.clone()).await;
            codes.push(answer.expect("decided").into_inner().overall_code());
        }
        let last = if is_refused {
            Code::OverLimit
        } else {
            Code::Ok
        };
        assert_eq!(codes, [Code::Ok, last, last]);

        let rule = "domain=\"shop\",rule=\"shop.user\"";
        let decided = async |code: &str| {
            let series = format!("palang_decisions_total{{{rule},code=\"{code}\",mode=\"store\"}}");
            process.metric(&series).await
        };
        let found = [
            decided("ok").await,
            decided("over_limit").await,
            decided("shadow").await,
        ];
        let hits = process
            .metric(&format!("palang_rate_limit_exceeded_total{{{rule}}}"))
            .await;
        if is_refused {
            assert_eq!((found, hits), ([1, 2, 0], 2));
            eventually("the log of refusals", async || {
                let records = process.records();
                let told = records
                    .iter()
                    .filter(|record| record["@message"] == "refused");
                (told.count() == 2).then_some(())
            })
            .await;
        } else {
            assert_eq!((found, hits), ([1, 0, 2], 0));
            assert!(
                process
                    .records()
                    .iter()
                    .all(|record| record["@message"] != "refused")
            );
        }
        // The reference counts what is over, whoever lets it through.
        let over = "ratelimit_service_rate_limit_over_limit{domain=\"shop\",key1=\"user\"}";
        assert_eq!(process.metric(over).await, 2);
    }
}
