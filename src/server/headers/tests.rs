use super::*;
use crate::{
    rules::{Limit, Modes, Rule},
    server::fixtures::{allowed, per, refused, request, rule, rules, verdict},
    unit::Unit,
};

fn triple() -> Headers {
    Headers {
        triple: Some(Triple {
            limit: "RateLimit-Limit".to_owned(),
            remaining: "RateLimit-Remaining".to_owned(),
            reset: "RateLimit-Reset".to_owned(),
        }),
        styles: Vec::new(),
        policy: None,
    }
}

fn styles(styles: &[Style]) -> Headers {
    Headers {
        triple: None,
        styles: styles.to_vec(),
        policy: None,
    }
}

#[track_caller]
fn check(headers: &Headers, verdict: &Verdict, expected: &[(&str, &str)]) {
    let shown = headers.of(verdict);
    let shown: Vec<_> = shown
        .iter()
        .map(|header| (header.name.as_str(), header.value.as_str()))
        .collect();
    assert_eq!(shown, expected);
}

fn two() -> std::sync::Arc<crate::rules::Rules> {
    rules([
        Rule {
            name: "minutely".into(),
            ..rule("a")
        },
        Rule {
            limit: Some(per(5, Unit::Hour)),
            ..rule("b")
        },
        Rule {
            shadow: true,
            limit: Some(per(0, Unit::Minute)),
            ..rule("s")
        },
        Rule {
            limit: None,
            ..rule("u")
        },
    ])
}

#[test]
fn the_triple_is_of_the_tightest_limit() {
    let rules = two();
    let judge =
        |keys: &[&str], outcomes: &[_]| verdict(&rules, &request(keys), Modes::default(), outcomes);
    check(
        &triple(),
        &judge(&["a", "b", "none"], &[allowed(9), allowed(4)]),
        &[
            ("RateLimit-Limit", "5"),
            ("RateLimit-Remaining", "4"),
            ("RateLimit-Reset", "30"),
        ],
    );
    // The last refusal wins, and its reset is the time to come back.
    check(
        &triple(),
        &judge(
            &["a", "b"],
            &[refused(Some(2 * SECOND)), refused(Some(SECOND + 1))],
        ),
        &[
            ("RateLimit-Limit", "5"),
            ("RateLimit-Remaining", "0"),
            ("RateLimit-Reset", "2"),
        ],
    );
    check(&triple(), &judge(&["u", "none"], &[]), &[]);
    check(&Headers::default(), &judge(&["a"], &[allowed(1)]), &[]);
}

#[test]
fn a_shadow_rule_never_shows() {
    let rules = two();
    let judged = verdict(
        &rules,
        &request(&["s", "b"]),
        Modes::default(),
        &[refused(Some(1)), allowed(4)],
    );
    check(
        &triple(),
        &judged,
        &[
            ("RateLimit-Limit", "5"),
            ("RateLimit-Remaining", "4"),
            ("RateLimit-Reset", "30"),
        ],
    );
    check(
        &styles(&[Style::Ietf]),
        &judged,
        &[
            ("RateLimit-Policy", "\"d.b\";q=5;w=3600"),
            ("RateLimit", "\"d.b\";r=4;t=6"),
        ],
    );
    let alone = verdict(
        &rules,
        &request(&["s"]),
        Modes::default(),
        &[refused(Some(1))],
    );
    check(
        &styles(&[Style::Ietf, Style::XRateLimit, Style::RetryAfter]),
        &alone,
        &[],
    );
}

#[test]
fn every_style_tells_the_same_figures() {
    let judged = verdict(
        &two(),
        &request(&["a", "b", "a"]),
        Modes::default(),
        &[allowed(9), refused(Some(90 * SECOND)), allowed(8)],
    );
    check(
        &styles(&[Style::Ietf, Style::XRateLimit, Style::RetryAfter]),
        &judged,
        &[
            (
                "RateLimit-Policy",
                "\"minutely\";q=10;w=60, \"d.b\";q=5;w=3600",
            ),
            ("RateLimit", "\"d.b\";r=0;t=6"),
            ("X-RateLimit-Limit", "5"),
            ("X-RateLimit-Remaining", "0"),
            ("X-RateLimit-Reset", "90"),
            ("Retry-After", "90"),
        ],
    );
}

#[test]
fn retry_after_only_where_coming_back_helps() {
    let rules = two();
    let judge = |modes, outcome| verdict(&rules, &request(&["a"]), modes, &[outcome]);
    let retry = styles(&[Style::RetryAfter]);
    check(&retry, &judge(Modes::default(), allowed(1)), &[]);
    check(&retry, &judge(Modes::default(), refused(None)), &[]);
    // Never earlier than `t`, which is 6 s here.
    check(
        &retry,
        &judge(Modes::default(), refused(Some(1))),
        &[("Retry-After", "6")],
    );
    let shadow = Modes {
        shadow: true,
        ..Modes::default()
    };
    check(&retry, &judge(shadow, refused(Some(1))), &[]);
}

#[test]
fn a_delay_is_told_without_being_asked_for() {
    for (micros, text) in [
        (1, "0.000001"),
        (250_000, "0.25"),
        (SECOND, "1"),
        (90 * SECOND + 500, "90.0005"),
    ] {
        let outcome = Outcome {
            delay: micros,
            ..allowed(1)
        };
        let judged = verdict(&two(), &request(&["a"]), Modes::default(), &[outcome]);
        check(&Headers::default(), &judged, &[("X-RateLimit-Delay", text)]);
    }
}

#[test]
fn names_are_quoted_and_ascii() {
    for (name, shown) in [
        ("plain", "\"plain\""),
        ("a\"b\\c", "\"a\\\"b\\\\c\""),
        ("é\n", "\"%C3%A9%0A\""),
        ("", "\"\""),
    ] {
        assert_eq!(sf_string(name), shown);
    }
}

#[test]
fn a_window_of_no_whole_seconds_has_no_w() {
    let rules = rules([Rule {
        limit: Some(Limit {
            unit: None,
            window: 100_000,
            ..per(3, Unit::Second)
        }),
        ..rule("a")
    }]);
    let outcome = Outcome {
        next_after: None,
        ..allowed(3)
    };
    let judged = verdict(&rules, &request(&["a"]), Modes::default(), &[outcome]);
    check(
        &styles(&[Style::Ietf]),
        &judged,
        &[
            ("RateLimit-Policy", "\"d.a\";q=3"),
            ("RateLimit", "\"d.a\";r=3"),
        ],
    );
}

fn bucket() -> std::sync::Arc<crate::rules::Rules> {
    rules([Rule {
        limit: Some(Limit {
            quota: crate::algorithm::Quota::token_bucket(1, SECOND, 10).unwrap(),
            ..per(1, Unit::Second)
        }),
        ..rule("a")
    }])
}

#[test]
fn what_is_left_of_a_burst_is_never_more_than_the_limit_shown() {
    let judged = verdict(&bucket(), &request(&["a"]), Modes::default(), &[allowed(9)]);
    check(
        &styles(&[Style::XRateLimit, Style::Ietf]),
        &judged,
        &[
            ("X-RateLimit-Limit", "10"),
            ("X-RateLimit-Remaining", "9"),
            ("X-RateLimit-Reset", "30"),
            ("RateLimit-Policy", "\"d.a\";q=10;w=1"),
            ("RateLimit", "\"d.a\";r=9;t=6"),
        ],
    );
}

#[test]
fn where_no_time_helps_no_time_is_told() {
    let never = Outcome {
        remaining: 4,
        ..refused(None)
    };
    let judged = verdict(&bucket(), &request(&["a"]), Modes::default(), &[never]);
    check(
        &styles(&[Style::XRateLimit, Style::RetryAfter]),
        &judged,
        &[("X-RateLimit-Limit", "10"), ("X-RateLimit-Remaining", "4")],
    );
    // A fixed window tells its end, as the reference does.
    let judged = verdict(&two(), &request(&["a"]), Modes::default(), &[never]);
    check(
        &styles(&[Style::XRateLimit, Style::RetryAfter]),
        &judged,
        &[
            ("X-RateLimit-Limit", "10"),
            ("X-RateLimit-Remaining", "0"),
            ("X-RateLimit-Reset", "30"),
        ],
    );
}
