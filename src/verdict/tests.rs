//! Answers where the store could not say: rule by rule.

use std::sync::Arc;

use super::*;
use crate::{
    request::{Descriptor, Entry, Request},
    rules::{Modes, Rules, Source as File, compile},
};

/// What the store says of a descriptor.
#[derive(Clone, Copy)]
enum Said {
    Passes,
    Refuses,
    /// Nothing: it failed.
    Nothing,
    /// Nothing, and this replica counted by itself.
    Local,
}

use Said::{Local, Nothing, Passes, Refuses};

fn rules() -> Arc<Rules> {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for policy in ["error", "allow", "deny", "local"] {
        let limit =
            format!("rate_limit: {{unit: day, requests_per_unit: 9, on_store_failure: {policy}}}");
        text += &format!("- key: {policy}\n  {limit}\n");
        text += &format!("- key: shadow_{policy}\n  shadow_mode: true\n  {limit}\n");
        text += &format!("- key: quota_{policy}\n  quota_mode: true\n  {limit}\n");
    }
    text += "- key: nothing\n  rate_limit: {unit: day, requests_per_unit: 0, on_store_failure: allow}\n";
    text += "- key: default\n  rate_limit: {unit: day, requests_per_unit: 9}\n";
    let file = File {
        name: "rules.yaml".into(),
        text: text.into_bytes(),
    };
    let compiled = compile::compile(&[file], compile::Options::default());
    compiled.expect("fine rules").rules
}

fn judged(modes: Modes, asked: &[(&str, Said)]) -> Result<Verdict, StoreError> {
    let request = Request {
        domain: "d".to_owned(),
        descriptors: asked
            .iter()
            .map(|(key, _)| Descriptor {
                entries: vec![Entry {
                    key: (*key).to_owned(),
                    value: "v".to_owned(),
                }],
                hits: 1,
                limit: None,
            })
            .collect(),
    };
    let outcome = |allowed, source| Outcome {
        allowed,
        remaining: u64::from(allowed) * 5,
        reset_after: 7,
        retry_after: Some(if allowed { 0 } else { 7 }),
        next_after: Some(7),
        delay: 0,
        used: 1,
        source,
        basis: None,
    };
    let outcomes = asked
        .iter()
        .map(|(_, said)| match said {
            Passes => Ok(outcome(true, Source::Counter)),
            Refuses => Ok(outcome(false, Source::Counter)),
            Nothing => Err(StoreError::Timeout),
            Local => Ok(outcome(true, Source::Local)),
        })
        .collect();
    Verdict::new(rules().plan(&request, modes), outcomes)
}

#[track_caller]
fn check(asked: &[(&str, Said)], code: Code, policies: &[&str]) -> Verdict {
    let verdict = judged(Modes::default(), asked).expect("answered");
    assert_eq!(verdict.code, code);
    let named: Vec<&str> = verdict.policies().map(OnFailure::name).collect();
    assert_eq!(named, policies);
    verdict
}

#[track_caller]
fn unanswered(asked: &[(&str, Said)]) {
    let verdict = judged(Modes::default(), asked);
    assert_eq!(verdict.err(), Some(StoreError::Timeout));
}

#[test]
fn each_policy_answers_for_its_own_rule() {
    unanswered(&[("error", Nothing)]);
    unanswered(&[("default", Nothing)]);
    check(&[("allow", Nothing)], Code::Ok, &["allow"]);
    check(&[("deny", Nothing)], Code::OverLimit, &["deny"]);
    check(&[("local", Local)], Code::Ok, &["local"]);
    // One that cannot even count for itself.
    unanswered(&[("local", Nothing)]);
    check(
        &[("allow", Nothing), ("local", Local), ("deny", Nothing)],
        Code::OverLimit,
        &["allow", "deny", "local"],
    );
}

#[test]
fn what_was_not_counted_has_no_figures() {
    for policy in ["allow", "deny"] {
        let verdict = judged(Modes::default(), &[(policy, Nothing)]).expect("answered");
        assert_eq!(verdict.binding, None);
        assert_eq!(verdict.statuses[0].outcome, None);
        assert_eq!(verdict.statuses[0].reset_after(), None);
        assert_eq!(verdict.retry_after(), None);
    }
    // The figures are those of the rule that was counted.
    let verdict = check(
        &[("allow", Nothing), ("default", Passes)],
        Code::Ok,
        &["allow"],
    );
    assert_eq!(verdict.binding, Some(1));
}

#[test]
fn a_refusal_shows_the_figures_of_who_refused_or_none() {
    for refuses in ["deny", "nothing"] {
        for passes in [("local", Local), ("default", Passes)] {
            let verdict = judged(Modes::default(), &[(refuses, Nothing), passes]);
            let verdict = verdict.expect("answered");
            assert_eq!(verdict.code, Code::OverLimit);
            assert_eq!(verdict.binding, None, "{refuses}");
            assert_eq!(verdict.retry_after(), None);
        }
    }
    let verdict = check(
        &[("local", Local), ("default", Refuses), ("deny", Nothing)],
        Code::OverLimit,
        &["deny", "local"],
    );
    assert_eq!(verdict.binding, Some(1));
    // Nobody knows when a policy would let it pass.
    assert_eq!(verdict.retry_after(), None);
    // Buckets refuse together, and the one that was counted has figures.
    let verdict = check(
        &[
            ("local", Local),
            ("quota_deny", Nothing),
            ("quota_error", Refuses),
        ],
        Code::OverLimit,
        &["deny", "local"],
    );
    assert_eq!(verdict.binding, Some(2));
    let verdict = check(
        &[("local", Local), ("quota_deny", Nothing)],
        Code::OverLimit,
        &["deny", "local"],
    );
    assert_eq!(verdict.binding, None);
}

#[test]
fn a_call_fails_only_where_the_answer_hangs_on_what_failed() {
    unanswered(&[("error", Nothing), ("default", Passes)]);
    unanswered(&[("error", Nothing), ("allow", Nothing)]);
    // Refused already.
    let verdict = check(
        &[("error", Nothing), ("default", Refuses)],
        Code::OverLimit,
        &["error"],
    );
    assert_eq!(verdict.binding, Some(1));
    check(
        &[("error", Nothing), ("deny", Nothing)],
        Code::OverLimit,
        &["error", "deny"],
    );
    // A shadow rule never decides.
    check(&[("shadow_error", Nothing)], Code::Ok, &["error"]);
    check(&[("shadow_deny", Nothing)], Code::Ok, &["deny"]);
    check(
        &[("shadow_error", Nothing), ("default", Refuses)],
        Code::OverLimit,
        &["error"],
    );
    // Of several buckets one that passes is enough.
    check(
        &[("quota_error", Nothing), ("quota_allow", Passes)],
        Code::Ok,
        &["error"],
    );
    unanswered(&[("quota_error", Nothing), ("quota_allow", Refuses)]);
}

#[test]
fn the_process_says_what_a_rule_does_not() {
    for (policy, code) in [
        (OnFailure::Allow, Code::Ok),
        (OnFailure::Deny, Code::OverLimit),
    ] {
        let modes = Modes {
            on_store_failure: policy,
            ..Modes::default()
        };
        let verdict = judged(modes, &[("default", Nothing)]).expect("answered");
        assert_eq!(verdict.code, code);
        assert!(judged(modes, &[("error", Nothing)]).is_err());
    }
    let shadow = Modes {
        shadow: true,
        ..Modes::default()
    };
    // Nothing is refused then, whatever the store would have said.
    let verdict = judged(shadow, &[("error", Nothing)]).expect("answered");
    assert_eq!(verdict.code, Code::Ok);
}

#[test]
fn a_limit_of_nothing_refuses_without_a_store() {
    let verdict = judged(Modes::default(), &[("nothing", Nothing)]).expect("decided");
    assert_eq!(verdict.code, Code::OverLimit);
    assert_eq!(verdict.statuses[0].policy, Some(OnFailure::Deny));
    assert_eq!(verdict.statuses[0].outcome, None);
}
