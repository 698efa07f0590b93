use super::*;
use crate::{
    rules::{Limit, Modes, Rule},
    server::fixtures::{allowed, per, refused, request as asked, rule, rules, verdict},
    time::SECOND,
};

fn message(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest {
        domain: "d".to_owned(),
        descriptors,
        hits_addend: 0,
    }
}

fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
    RateLimitDescriptor {
        entries: vec![wire::Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        }],
        ..RateLimitDescriptor::default()
    }
}

fn with_unit(unit: i32) -> RateLimitDescriptor {
    RateLimitDescriptor {
        limit: Some(wire::RateLimitOverride {
            requests_per_unit: 5,
            unit,
        }),
        ..descriptor("k", "v")
    }
}

#[test]
fn hits_are_resolved_once() {
    for (request_hits, own, negative, hits) in [
        (0, None, false, 1),
        (3, None, false, 3),
        (3, Some(0), false, 0),
        (3, Some(7), false, 7),
        (0, Some(7), true, -7),
        (0, None, true, -1),
        (3, None, true, -3),
        (0, Some(0), true, 0),
        (0, Some(u64::MAX), false, (1 << 53) - 1),
        (0, Some(u64::MAX), true, 1 - (1 << 53)),
    ] {
        let message = RateLimitRequest {
            hits_addend: request_hits,
            ..message(vec![RateLimitDescriptor {
                hits_addend: own,
                is_negative_hits: negative,
                ..descriptor("k", "v")
            }])
        };
        let request = request(message, &Bounds::default()).unwrap();
        assert_eq!(
            request.descriptors[0].hits, hits,
            "{request_hits} {own:?} {negative}"
        );
    }
}

#[test]
fn units_are_numbers_one_to_seven() {
    for (number, unit) in [
        (1, Unit::Second),
        (2, Unit::Minute),
        (3, Unit::Hour),
        (4, Unit::Day),
        (5, Unit::Month),
        (6, Unit::Year),
        (7, Unit::Week),
    ] {
        let request = request(message(vec![with_unit(number)]), &Bounds::default()).unwrap();
        let limit = request.descriptors[0].limit.unwrap();
        assert_eq!((limit.unit, limit.requests_per_unit), (unit, 5));
    }
    for number in [0, 8, 99, -1, i32::MAX, i32::MIN] {
        let bad = request(message(vec![with_unit(number)]), &Bounds::default()).unwrap_err();
        assert_eq!(bad.field, "descriptors[0].limit.unit");
        assert_eq!(bad.reason, Reason::Unit(number));
    }
}

#[test]
fn what_is_wrong_is_named() {
    let bounds = Bounds {
        max_descriptors: 2,
        max_entries: 2,
        max_key_length: 3,
        max_value_length: 4,
        max_message_size: 100,
        max_unfinished_size: 100,
    };
    let three_entries = RateLimitDescriptor {
        entries: vec![wire::Entry::default(); 3],
        ..RateLimitDescriptor::default()
    };
    let named = |domain: &str, descriptors| RateLimitRequest {
        domain: domain.to_owned(),
        descriptors,
        hits_addend: 0,
    };
    for (message, text, bound) in [
        (
            named("", vec![]),
            "rate limit domain must not be empty",
            Bound::Meaning,
        ),
        (
            named("d", vec![]),
            "rate limit descriptor list must not be empty",
            Bound::Meaning,
        ),
        (
            named("long", vec![descriptor("k", "v")]),
            "domain: longer than 3 bytes",
            Bound::KeyLength,
        ),
        (
            named("d", vec![descriptor("k", "v"); 3]),
            "descriptors: more than 2 elements",
            Bound::Descriptors,
        ),
        (
            named("d", vec![descriptor("k", "v"), three_entries]),
            "descriptors[1].entries: more than 2 elements",
            Bound::Entries,
        ),
        (
            named("d", vec![descriptor("long", "v")]),
            "descriptors[0].entries[0].key: longer than 3 bytes",
            Bound::KeyLength,
        ),
        (
            named("d", vec![descriptor("k", "v"), descriptor("k", "longer")]),
            "descriptors[1].entries[0].value: longer than 4 bytes",
            Bound::ValueLength,
        ),
        (
            named("d", vec![with_unit(0)]),
            "descriptors[0].limit.unit: a limit needs a unit",
            Bound::Meaning,
        ),
        (
            named("d", vec![with_unit(99)]),
            "descriptors[0].limit.unit: there is no unit 99",
            Bound::Meaning,
        ),
    ] {
        let bad = request(message, &bounds).unwrap_err();
        assert_eq!((bad.to_string().as_str(), bad.bound()), (text, bound));
    }
    // Exactly at the bounds all is well.
    let full = named("dom", vec![descriptor("key", "four"), descriptor("k", "")]);
    assert!(request(full, &bounds).is_ok());
}

#[test]
fn statuses_are_written_in_order() {
    let rules = rules([
        Rule {
            name: "named".into(),
            ..rule("a")
        },
        Rule {
            limit: None,
            ..rule("free")
        },
        Rule {
            limit: Some(Limit {
                unit: None,
                window: 90 * SECOND,
                ..per(3, Unit::Second)
            }),
            ..rule("window")
        },
    ]);
    let request = asked(&["window", "none", "free", "a"]);
    let outcomes = [allowed(u64::MAX), refused(Some(1))];
    let answer = response(&verdict(&rules, &request, Modes::default(), &outcomes));
    assert_eq!(answer.overall_code(), rate_limit_response::Code::OverLimit);
    let [window, none, free, a] = answer.statuses.as_slice() else {
        panic!("one status for each descriptor");
    };
    assert_eq!(
        window.current_limit,
        Some(RateLimit {
            name: String::new(),
            requests_per_unit: 3,
            unit: rate_limit::Unit::Unknown.into(),
        })
    );
    assert_eq!(window.limit_remaining, u32::MAX, "clamped");
    assert_eq!(window.duration_until_reset.unwrap().seconds, 30);
    assert_eq!(
        none,
        &DescriptorStatus {
            code: rate_limit_response::Code::Ok.into(),
            ..DescriptorStatus::default()
        }
    );
    assert_eq!(
        free,
        &DescriptorStatus {
            code: rate_limit_response::Code::Ok.into(),
            limit_remaining: u32::MAX,
            ..DescriptorStatus::default()
        }
    );
    let limit = a.current_limit.as_ref().unwrap();
    assert_eq!(limit.name, "named");
    assert_eq!(limit.unit(), rate_limit::Unit::Minute);
    assert_eq!(a.code(), rate_limit_response::Code::OverLimit);
    assert_eq!(
        a.duration_until_reset.unwrap().seconds,
        1,
        "rounded up from 1 us"
    );
}
