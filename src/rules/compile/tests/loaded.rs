//! What rules become.

use super::*;

#[test]
fn every_document_of_a_file_is_loaded() {
    let rules = loads("---\ndomain: d\n---\ndomain: e\n---\n").rules;
    assert!(rules.domain("d").is_some() && rules.domain("e").is_some());
}

#[test]
fn underscores_do_not_make_duplicates() {
    loads("domain: d\ndescriptors:\n- {key: a, value: b_c}\n- {key: a_b, value: c}\n");
}

#[test]
fn values_are_the_text_as_written() {
    for text in [
        "007",
        "yes",
        "true",
        "2024-01-01",
        "1.5",
        "0123",
        "08",
        "1e3",
        "9999999999999999999",
        "\"5\"",
        "0x10",
    ] {
        let rules = loads(&format!(
            "domain: 42\ndescriptors:\n- key: k\n  value: {text}\n  rate_limit: {{unit: day, requests_per_unit: 1}}\n"
        ))
        .rules;
        assert_eq!(
            *rules.rules()[0].path,
            format!("42.k_{}", text.trim_matches('"'))
        );
    }
    for nothing in ["", "~", "null", "\"\""] {
        let rules = loads(&format!(
            "domain: d\ndescriptors:\n- key: k\n  value: {nothing}\n  rate_limit: {{unit: day, requests_per_unit: 1}}\n"
        ))
        .rules;
        assert_eq!(&*rules.rules()[0].path, "d.k");
    }
}

#[test]
fn numbers_are_those_of_yaml_1_1() {
    for (text, value) in [
        ("010", 8),
        ("1_000", 1000),
        ("0x10", 16),
        ("0b11", 3),
        ("+5", 5),
        ("4294967295", u32::MAX),
    ] {
        let limit = limit(&format!("{{unit: DAY, requests_per_unit: {text}}}"));
        assert_eq!(
            (limit.requests_per_unit, limit.unit),
            (value, Some(Unit::Day)),
            "{text}"
        );
    }
}

#[test]
fn byte_order_mark_and_crlf_are_accepted() {
    loads(
        "\u{feff}domain: d\r\ndescriptors:\r\n- key: k\r\n  rate_limit: {unit: day, requests_per_unit: 1}\r\n",
    );
}

#[test]
fn our_own_fields_choose_the_algorithm() {
    assert_eq!(
        limit("{unit: second, requests_per_unit: 5}").quota,
        Quota::FixedWindow {
            limit: 5,
            window: 1_000_000
        }
    );
    assert_eq!(
        limit("{window: 1.5s, requests_per_unit: 5, algorithm: sliding_window}").quota,
        Quota::SlidingWindow {
            limit: 5,
            window: 1_500_000
        }
    );
    assert_eq!(
        limit("{unit: minute, requests_per_unit: 5, algorithm: sliding_log}").quota,
        Quota::SlidingLog {
            limit: 5,
            window: 60_000_000
        }
    );
    let bucket =
        limit("{unit: second, requests_per_unit: 2, algorithm: token_bucket, burst: 10, cost: 3}");
    assert_eq!(
        (bucket.quota.letter(), bucket.quota.capacity(), bucket.cost),
        (b't', 10, 3)
    );
    let meter = limit("{unit: second, requests_per_unit: 2, algorithm: leaky_bucket}");
    assert_eq!((meter.quota.letter(), meter.quota.capacity()), (b't', 2));
    let queue =
        limit("{unit: second, requests_per_unit: 2, algorithm: leaky_bucket, max_delay: 2s}");
    assert_eq!((queue.quota.letter(), queue.quota.capacity()), (b'q', 5));
    let rules = loads("domain: d\nall_or_nothing: true\n").rules;
    assert!(rules.domain("d").expect("written").all_or_nothing());
}

#[test]
fn labels_come_from_the_rules_unless_a_rule_asks_for_the_request() {
    let series = |fields: &str| {
        loads(&format!(
            "domain: d\ndescriptors:\n- key: a\n  {fields}\n  descriptors:\n  - key: b\n    value: c*\n    rate_limit: {{unit: day, requests_per_unit: 1}}\n"
        ))
        .rules
        .rules()[0]
            .series
            .clone()
    };
    assert_eq!(
        series("value: v"),
        Series::Rule(["a_v".into(), "b_c*".into()].into())
    );
    assert_eq!(
        series("value: v\n  value_to_metric: true"),
        Series::Rule(["a_v".into(), "b_c*".into()].into())
    );
    assert_eq!(
        series("value_to_metric: true"),
        Series::Request { detailed: false }
    );
    assert_eq!(
        series("value: '*'\n  value_to_metric: true"),
        Series::Request { detailed: false }
    );
    assert_eq!(
        series("value: '*'\n  value_to_metric: true\n  share_threshold: true"),
        Series::Rule(["a_*".into(), "b_c*".into()].into())
    );
}

#[test]
fn anchors_and_merge_keys_are_followed() {
    let rules = loads(
        "domain: d\ndescriptors:\n- key: a\n  rate_limit: &limit {unit: day, requests_per_unit: 5}\n- key: b\n  rate_limit: *limit\n- key: c\n  rate_limit: {<<: *limit, requests_per_unit: 7}\n",
    );
    let numbers: Vec<u32> = rules
        .rules
        .rules()
        .iter()
        .filter_map(|rule| Some(rule.limit.as_ref()?.requests_per_unit))
        .collect();
    assert_eq!((numbers, rules.warnings), (vec![5, 5, 7], vec![]));
    check_warned(
        "domain: d\ndescriptors:\n- key: c\n  rate_limit: {requests_per_unit: 7, unit: day, <<: {unit: hour}}\n",
        "4:49",
        "'<<' brings in a 'unit' that wins",
    );
}

#[test]
fn metadata_is_any_yaml() {
    let rules = loads(
        "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 5}\n  metadata: {a: one, 1: 2, n: {p: [1.5, yes, ~]}, unknown_key: \"3\"}\n",
    )
    .rules;
    let metadata = rules.rules()[0].metadata.clone().expect("written");
    assert_eq!(
        serde_json::Value::Object(metadata),
        serde_json::json!({"a": "one", "1": 2, "n": {"p": [1.5, true, null]}, "unknown_key": "3"})
    );
}

#[test]
fn the_dump_has_one_sorted_line_for_each_limit() {
    let rules = loads(
        "domain: d\ndescriptors:\n- key: z\n  rate_limit: {unlimited: true}\n- key: a\n  value: b\n  shadow_mode: true\n  rate_limit: {unit: hour, requests_per_unit: 5}\n  descriptors:\n  - key: c\n    rate_limit: {window: 90s, requests_per_unit: 5, algorithm: token_bucket, burst: 9, cost: 2, on_store_failure: local}\n",
    )
    .rules;
    assert_eq!(
        rules.dump(),
        "d.a_b.c: unit=UNKNOWN requests_per_unit=5, shadow_mode: false, quota_mode: false, window=90s, \
         algorithm=token_bucket, burst=9, cost=2, on_store_failure=local\n\
         d.a_b: unit=HOUR requests_per_unit=5, shadow_mode: true, quota_mode: false\n\
         d.z: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false\n"
    );
}

#[test]
fn the_hash_is_of_the_content_alone() {
    let hash = |name: &str, text: &str| {
        let source = Source {
            name: name.into(),
            text: text.as_bytes().to_vec(),
        };
        let compiled = compile(&[source], Options::default()).expect("loads");
        compiled.rules.hash()
    };
    assert_eq!(
        hash("a.yaml", "domain: d\n"),
        hash("elsewhere/a.yaml", "domain: d\n")
    );
    assert_ne!(
        hash("a.yaml", "domain: d\n"),
        hash("a.yaml", "domain: d \n")
    );
}
