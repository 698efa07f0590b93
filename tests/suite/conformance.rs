//! Every case of `tests/conformance/reference.yaml` and `more.yaml`, black box over gRPC and HTTP, on both stores, with the clock in
//! the test's hand. Where Palang differs on purpose, `tests/conformance/ours.yaml` says how and why.

mod case;
mod check;

use std::collections::BTreeMap;

use case::{Case, Ours};

use crate::support::{
    redis::RedisServer,
    service::{Service, StoreKind},
};

const REFERENCE: &str = include_str!("../conformance/reference.yaml");
const MORE: &str = include_str!("../conformance/more.yaml");
const OURS: &str = include_str!("../conformance/ours.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_and_palang_agree_on_memory() {
    run(StoreKind::Memory).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_and_palang_agree_on_redis() {
    let redis = RedisServer::start();
    let store = StoreKind::Redis {
        socket: redis.url(),
        prefix: String::new(),
    };
    run(store).await;
    redis.no_key_without_expiry();
}

#[test]
fn every_deviation_is_marked_and_has_a_reason() {
    let ours = deviations();
    let cases = cases();
    for case in &cases {
        assert_eq!(
            case.ours.as_deref() == Some("differ")
                || case.expect.iter().any(|expect| expect.grpc_error.is_some()),
            ours.contains_key(&case.id),
            "{}: marked `ours: differ` if and only if ours.yaml has it",
            case.id
        );
    }
    for (id, ours) in &ours {
        assert!(cases.iter().any(|case| case.id == *id), "{id} is no case");
        assert!(!ours.reason.is_empty(), "{id} needs a reason");
    }
    assert!(cases.len() >= 121 + 25, "{} cases", cases.len());
    let names: std::collections::BTreeSet<_> = cases.iter().map(|case| &case.id).collect();
    assert_eq!(names.len(), cases.len(), "each name is one case");
}

fn cases() -> Vec<Case> {
    let mut cases = case::parse_reference(REFERENCE);
    cases.extend(case::parse_reference(MORE));
    cases
}

fn deviations() -> BTreeMap<String, Ours> {
    case::parse_ours(OURS)
        .into_iter()
        .map(|ours| (ours.id.clone(), ours))
        .collect()
}

async fn run(store: StoreKind) {
    let ours = deviations();
    let mut failures = Vec::new();
    let cases = cases();
    for case in &cases {
        let case = case.with(ours.get(&case.id));
        if let Err(failure) = run_case(&case, &store).await {
            failures.push(format!("{}: {failure}", case.id));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} cases fail:\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n")
    );
}

async fn run_case(case: &Case, store: &StoreKind) -> Result<(), String> {
    let rules = case.rule_files();
    if let Some(phrase) = &case.load_error {
        return check::load_error(&rules, phrase, case.domains());
    }
    let service = Service::builder()
        .rules(&rules)
        .store(store.isolated(&case.id))
        .settings(&case.env)
        .clock_at(case.clock_start.unwrap_or(1_700_006_400))
        .start()
        .await;
    for (request, expect) in case.requests.iter().zip(&case.expect) {
        service.advance_seconds(request.advance_seconds);
        let answer = service.should_rate_limit(request.to_wire()).await;
        check::answer(&answer, expect).map_err(|why| format!("{request:?}: {why}"))?;
    }
    for exchange in &case.http {
        let answer = service
            .http(&exchange.method, &exchange.path, exchange.body.as_deref())
            .await;
        check::http(&answer, exchange).map_err(|why| format!("{exchange:?}: {why}"))?;
    }
    if !case.stats_after.is_empty() {
        check::stats(&service.stats().await, &case.stats_after)?;
    }
    // Also after a request that kills the reference.
    assert!(service.is_alive().await, "{}: the service lives", case.id);
    service.stop().await;
    Ok(())
}
