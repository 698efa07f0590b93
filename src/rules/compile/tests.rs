//! One mistake each, with its place and what is said of it.

use super::{Compiled, Domains, Options, Source, Warnings, compile};
use crate::{
    algorithm::Quota,
    rules::{CompileError, Limit, Mistake, Series},
    unit::Unit,
};

fn sources(texts: &[&str]) -> Vec<Source> {
    texts
        .iter()
        .zip('a'..)
        .map(|(text, letter)| Source {
            name: format!("{letter}.yaml").into(),
            text: text.as_bytes().to_vec(),
        })
        .collect()
}

fn compiled(texts: &[&str]) -> Result<Compiled, CompileError> {
    compile(&sources(texts), Options::default())
}

fn loads(text: &str) -> Compiled {
    compiled(&[text]).unwrap_or_else(|error| panic!("{error}\nin\n{text}"))
}

fn refused(text: &str) -> Vec<Mistake> {
    match compiled(&[text]) {
        Ok(_) => panic!("loads:\n{text}"),
        Err(error) => error.mistakes,
    }
}

fn limit(text: &str) -> Limit {
    let compiled = loads(&format!(
        "domain: d\ndescriptors:\n- key: k\n  rate_limit: {text}\n"
    ));
    compiled.rules.rules()[0]
        .limit
        .clone()
        .expect("a limited rule")
}

fn place(mistake: &Mistake) -> String {
    format!("{}:{}", mistake.place.line, mistake.place.column)
}

/// Exactly one mistake, at `line:column`, of that rule, with all of the phrases.
fn check_refused(text: &str, at: &str, rule: &str, phrases: &[&str]) {
    let mistakes = refused(text);
    assert_eq!(mistakes.len(), 1, "{mistakes:#?}\nin\n{text}");
    for phrase in phrases {
        assert!(
            mistakes[0].message.contains(phrase),
            "{phrase:?} is not in {}",
            mistakes[0]
        );
    }
    assert_eq!(
        (place(&mistakes[0]).as_str(), &*mistakes[0].rule),
        (at, rule),
        "{}",
        mistakes[0]
    );
}

/// A `rate_limit` in braces with one mistake at the text `found`; where that is empty, at the key `rate_limit`.
fn check_limit_refused(limit: &str, found: &str, phrases: &[&str]) {
    let line = format!("  rate_limit: {limit}");
    let text = format!("domain: d\ndescriptors:\n- key: k\n{line}\n");
    let found = if found.is_empty() {
        "rate_limit"
    } else {
        found
    };
    let column = line.find(found).expect("the mistake is in the text") + 1;
    check_refused(&text, &format!("4:{column}"), "d.k", phrases);
}

fn check_warned(text: &str, at: &str, phrase: &str) {
    let warnings = loads(text).warnings;
    assert_eq!(warnings.len(), 1, "{warnings:#?}\nin\n{text}");
    assert!(
        warnings[0].message.contains(phrase),
        "{phrase:?} is not in {}",
        warnings[0]
    );
    assert_eq!(place(&warnings[0]), at, "{}", warnings[0]);

    let strict = Options {
        warnings: Warnings::Refused,
        ..Options::default()
    };
    let error = compile(&sources(&[text]), strict).expect_err("a warning is a mistake");
    assert_eq!(error.mistakes, warnings);
}

#[test]
fn each_mistake_of_the_reference_is_refused_with_its_place() {
    for (text, at, rule, phrase) in [
        (
            "descriptors:\n",
            "1:1",
            "",
            "config file cannot have empty domain",
        ),
        (
            "domain: \"\"\ndescriptors: []\n",
            "1:9",
            "",
            "config file cannot have empty domain",
        ),
        ("", "0:0", "", "config file cannot have empty domain"),
        (
            "# nothing\n---\n",
            "0:0",
            "",
            "config file cannot have empty domain",
        ),
        (
            "domain: d\ndescriptors:\n- value: v\n",
            "3:3",
            "d",
            "descriptor has empty key",
        ),
        (
            "domain: d\ndescriptors:\n- key: ~\n",
            "3:3",
            "d",
            "descriptor has empty key",
        ),
        (
            "domain: d\ndescriptors: [{key: \"\"}]\n",
            "2:21",
            "d",
            "descriptor has empty key",
        ),
        (
            "domain: d\ndescriptors:\n- {key: k, value: v}\n- {key: k, value: v}\n",
            "4:3",
            "d.k_v",
            "duplicate descriptor composite key 'd.k_v', first written at a.yaml:3:3",
        ),
        (
            "domain: d\ndescriptors:\n- key: a\n  descriptors:\n  - {key: b}\n  - {key: b}\n",
            "6:5",
            "d.a.b",
            "duplicate descriptor composite key 'd.a.b'",
        ),
        (
            "domain: d\ndescriptors:\n- key: k\n  ratelimit: {unit: day, requests_per_unit: 5}\n",
            "4:3",
            "d.k",
            "config error, unknown key 'ratelimit': did you mean 'rate_limit'?",
        ),
        (
            "domain: d\ndescriptors:\n  - a\n",
            "3:5",
            "d",
            "config error, yaml file contains list of type other than map: a",
        ),
        (
            "domain: d\ndescriptors:\n- null\n",
            "3:3",
            "d",
            "list of type other than map: null",
        ),
        (
            "domain: d\ndescriptors:\n- [a]\n",
            "3:3",
            "d",
            "list of type other than map: a list",
        ),
        (
            "- domain: d\n",
            "1:1",
            "",
            "error loading config file: yaml: unmarshal errors: cannot unmarshal !!seq into map",
        ),
        (
            "hello\n",
            "1:1",
            "",
            "cannot unmarshal !!str `hello` into map",
        ),
        ("'''\n", "1:1", "", "error loading config file: yaml:"),
        (
            "domain: d\ndescriptors: {key: k}\n",
            "2:14",
            "d",
            "cannot unmarshal !!map into []config.YamlDescriptor",
        ),
        (
            "domain: [d]\n",
            "1:9",
            "",
            "cannot unmarshal !!seq into string",
        ),
        (
            "domain: d\ndescriptors:\n- key: k\n  shadow_mode: \"true\"\n",
            "4:16",
            "d.k",
            "cannot unmarshal !!str `true` into bool",
        ),
        (
            "domain: d\ndescriptors:\n- key: k\n  quota_mode: 1\n",
            "4:15",
            "d.k",
            "cannot unmarshal !!int `1` into bool",
        ),
        (
            "domain: d\ndescriptors:\n- key: k\n  rate_limit: 5\n",
            "4:15",
            "d.k",
            "into config.YamlRateLimit",
        ),
        (
            "domain: d\ndescriptors:\n- key: k\n  metadata: []\n",
            "4:13",
            "d.k",
            "into map[string]interface {}",
        ),
        (
            "domain: d\n1: x\n",
            "2:1",
            "d",
            "config error, key is not of type string: 1",
        ),
        (
            "domain: d\ntrue: x\n",
            "2:1",
            "d",
            "config error, key is not of type string: true",
        ),
        (
            "domain: d\ny: x\n",
            "2:1",
            "d",
            "config error, key is not of type string: y",
        ),
        (
            "domain: d\n0.25: x\n",
            "2:1",
            "d",
            "key is not of type string: 0.25",
        ),
        (
            "domain: d\n? [a]\n: x\n",
            "2:3",
            "d",
            "key is not of type string: a list",
        ),
        (
            "domain: d\ndescriptors:\n- key: k\n  value: v\n  share_threshold: true\n",
            "5:3",
            "d.k_v",
            "share_threshold can only be used with wildcard values (containing '*'), but found key 'k_v'",
        ),
    ] {
        check_refused(text, at, rule, &[phrase]);
    }
}

#[test]
fn each_mistake_in_a_rate_limit_is_refused_with_its_place() {
    for (limit, found, phrases) in [
        (
            "{unit: foo, requests_per_unit: 5}",
            "foo",
            ["invalid rate limit unit 'foo'", "second, minute"].as_slice(),
        ),
        (
            "{unit: minutes, requests_per_unit: 5}",
            "minutes",
            &["unit 'minutes'", "did you mean 'minute'?"],
        ),
        (
            "{unit: unknown, requests_per_unit: 5}",
            "unknown",
            &["invalid rate limit unit 'unknown'"],
        ),
        (
            "{unit: 1, requests_per_unit: 5}",
            "1",
            &["invalid rate limit unit '1'"],
        ),
        ("{}", "", &["invalid rate limit unit ''"]),
        ("{unlimited: false}", "", &["invalid rate limit unit ''"]),
        (
            "{unlimited: true, unit: day}",
            "day",
            &["should not specify rate limit unit when unlimited"],
        ),
        (
            "{unlimited: true, burst: 3}",
            "3",
            &["'burst' has no meaning when unlimited"],
        ),
        (
            "{name: me, replaces: [{name: me}], unit: day, requests_per_unit: 5}",
            "me}]",
            &["replaces should not contain name of same descriptor"],
        ),
        (
            "{replaces: [{name: }], unit: day, requests_per_unit: 5}",
            "{name: }",
            &["should not have an empty replaces entry"],
        ),
        (
            "{replaces: [other], unit: day, requests_per_unit: 5}",
            "other",
            &[
                "config error, yaml file contains list of type other than map: other",
                "- name:",
            ],
        ),
        (
            "{unit: day, requestsperunit: 5, requests_per_unit: 5}",
            "requestsperunit",
            &["unknown key 'requestsperunit'"],
        ),
        (
            "{unit: day, requests_per_units: 5, requests_per_unit: 5}",
            "requests_per_units",
            &["did you mean 'requests_per_unit'?"],
        ),
        (
            "{Unit: minute, unit: minute, requests_per_unit: 5}",
            "Unit",
            &["unknown key 'Unit': did you mean 'unit'?"],
        ),
        (
            "{unit: day, requests_per_unit: \"5\"}",
            "\"5\"",
            &["cannot unmarshal !!str `5` into uint32", "without quotes"],
        ),
        ("{unit: day, requests_per_unit: -1}", "-1", &["!!int `-1`"]),
        (
            "{unit: day, requests_per_unit: 1.5}",
            "1.5",
            &["!!float `1.5`"],
        ),
        (
            "{unit: day, requests_per_unit: 1e3}",
            "1e3",
            &["!!float `1e3`"],
        ),
        (
            "{unit: day, requests_per_unit: 08}",
            "08",
            &["!!float `08`"],
        ),
        (
            "{unit: day, requests_per_unit: 4294967296}",
            "4294967296",
            &["!!int `4294967296`", "0 to 4294967295"],
        ),
        (
            "{unit: day, requests_per_unit: 12345678901234}",
            "12345678901234",
            &["`1234567...`"],
        ),
        (
            "{unit: [day], requests_per_unit: 5, window: 1s}",
            "[day]",
            &["cannot unmarshal !!seq into string"],
        ),
        (
            "{window: 30s, unit: day, requests_per_unit: 5}",
            "30s",
            &["a unit or a window, not both"],
        ),
        (
            "{window: 30, requests_per_unit: 5}",
            "30",
            &["window '30'", "a number with a unit"],
        ),
        (
            "{window: 1us, requests_per_unit: 5}",
            "1us",
            &["1ms to 8760h"],
        ),
        (
            "{window: 8761h, requests_per_unit: 5}",
            "8761h",
            &["1ms to 8760h"],
        ),
        (
            "{unit: day, requests_per_unit: 5, algorithm: tokenbucket}",
            "tokenbucket",
            &["did you mean 'token_bucket'?"],
        ),
        (
            "{unit: day, requests_per_unit: 5, algorithm: gcra}",
            "gcra",
            &["the algorithms are fixed_window"],
        ),
        (
            "{unit: day, requests_per_unit: 5, burst: 9}",
            "9",
            &["burst belongs to `algorithm: token_bucket`"],
        ),
        (
            "{unit: day, requests_per_unit: 5, max_delay: 1s}",
            "1s",
            &["max_delay belongs to"],
        ),
        (
            "{unit: day, requests_per_unit: 5, algorithm: token_bucket, burst: 0}",
            "0}",
            &["burst is at least 1"],
        ),
        (
            "{unit: day, requests_per_unit: 0, algorithm: token_bucket}",
            "0,",
            &["use fixed_window"],
        ),
        (
            "{unit: day, requests_per_unit: 0, algorithm: leaky_bucket, max_delay: 1s}",
            "0,",
            &["use fixed_window"],
        ),
        (
            "{unit: day, requests_per_unit: 10001, algorithm: sliding_log}",
            "10001",
            &["10000"],
        ),
        (
            "{unit: day, requests_per_unit: 5, cost: 6}",
            "6}",
            &["cost 6 is above the 5"],
        ),
        (
            "{unit: day, requests_per_unit: 5, cost: 0}",
            "0}",
            &["cost is at least 1"],
        ),
        (
            "{unit: year, requests_per_unit: 1, algorithm: token_bucket, burst: 4294967295}",
            "1,",
            &["2^53"],
        ),
    ] {
        check_limit_refused(limit, found, phrases);
    }
}

#[test]
fn misspelt_keys_name_the_nearest_known_one() {
    for (line, column, found, meant) in [
        (
            "detailed_metricc: true",
            3,
            "detailed_metricc",
            "detailed_metric",
        ),
        ("rate_limits: {unit: day}", 3, "rate_limits", "rate_limit"),
        ("Value: x", 3, "Value", "value"),
        (
            "rate-limit: {unit: day, requests_per_unit: 1}",
            3,
            "rate-limit",
            "rate_limit",
        ),
        (
            "rate_limit: {unlimied: true, unlimited: true}",
            16,
            "unlimied",
            "unlimited",
        ),
    ] {
        let text = format!("domain: d\ndescriptors:\n- key: k\n  {line}\n");
        let phrase = format!("unknown key '{found}': did you mean '{meant}'?");
        check_refused(&text, &format!("4:{column}"), "d.k", &[&phrase]);
    }
    check_refused(
        "domain: d\nxyzzy: 1\n",
        "2:1",
        "d",
        &["unknown key 'xyzzy': the top of a file takes domain, descriptors, all_or_nothing"],
    );
}

#[test]
fn our_own_words_in_the_wrong_place_are_refused() {
    check_refused(
        "domain: d\ndescriptors:\n- key: k\n  cost: 50\n",
        "4:3",
        "d",
        &["'cost' has no meaning here, it belongs in a rate_limit"],
    );
}

#[test]
fn what_the_reference_ignores_loads_with_a_warning() {
    let limited = "rate_limit: {unit: day, requests_per_unit: 5}";
    for (text, at, phrase) in [
        (format!("domain: d\nunlimited: true\ndescriptors:\n- key: k\n  {limited}\n"), "2:1", "'unlimited' is ignored here, it belongs in a rate_limit"),
        (format!("domain: d\ndescriptors:\n- key: k\n  unit: day\n  {limited}\n"), "4:3", "'unit' is ignored here"),
        (format!("domain: e\ndomain: d\ndescriptors:\n- key: k\n  {limited}\n"), "2:1", "'domain' is written twice, and this one wins over the one in line 1"),
        ("domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day}\n".into(), "4:3", "every request is refused"),
        ("domain: d\ndescriptors:\n- key: k\n  rate_limit: {unlimited: true, requests_per_unit: 5}\n".into(), "4:52", "requests_per_unit is ignored"),
        ("domain: d\ndescriptors:\n- key: k\n  rate_limit: {unlimited: true, unit: fortnight}\n".into(), "4:39", "unit 'fortnight' is ignored"),
        ("domain: d\ndescriptors:\n- key: k\n  shadow_mode: true\n".into(), "4:3", "'shadow_mode' does nothing here"),
        ("domain: d\ndescriptors:\n- key: k\n  quota_mode: on\n".into(), "4:3", "'quota_mode' does nothing here"),
        ("domain: d\ndescriptors:\n- key: k\n  detailed_metric: true\n".into(), "4:3", "'detailed_metric' does nothing here"),
        ("domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: nobody}]}\n".into(), "4:67", "no rule of the domain is named 'nobody'"),
        ("domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1, name: 'a\"b'}\n".into(), "4:55", "response header"),
        (
            "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: day, requests_per_unit: 1, name: n}\n- key: l\n  rate_limit: {unit: day, requests_per_unit: 1, name: n}\n".into(),
            "6:55",
            "the name 'n' is also that of the rule at a.yaml:4:55",
        ),
    ] {
        check_warned(&text, at, phrase);
    }
}

#[test]
fn mutual_replaces_are_told_on_both_sides() {
    let rule = |key: &str, own: &str, other: &str| {
        format!(
            "- key: {key}\n  rate_limit: {{unit: day, requests_per_unit: 1, name: {own}, replaces: [{{name: {other}}}]}}\n"
        )
    };
    let text = format!(
        "domain: d\ndescriptors:\n{}{}",
        rule("k", "a", "b"),
        rule("l", "b", "a")
    );
    let warnings = loads(&text).warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings
            .iter()
            .all(|warning| warning.message.contains("replace each other"))
    );
}

#[test]
fn every_mistake_of_every_file_is_told_in_order() {
    let error = compiled(&[
        "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: foo, requests_per_unit: -1}\n  colour: red\n- value: v\n",
        "domain: d\ndescriptors:\n- {key: x, shadow_mode: \"no\"}\n",
        "domain: [\n",
    ])
    .expect_err("five mistakes");
    let places: Vec<String> = error
        .mistakes
        .iter()
        .map(|mistake| mistake.place.to_string())
        .collect();
    assert_eq!(
        places,
        [
            "a.yaml:4:22",
            "a.yaml:4:46",
            "a.yaml:5:3",
            "a.yaml:6:3",
            "b.yaml:1:9",
            "b.yaml:3:25",
            "c.yaml:1:9"
        ],
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("duplicate domain 'd' in config file, first written at a.yaml:1:9")
    );
}

#[test]
fn a_domain_in_two_files_is_a_mistake_unless_merged() {
    let files = [
        "domain: d\ndescriptors: [{key: x}]\n",
        "domain: d\ndescriptors: [{key: y}]\n",
    ];
    assert!(compiled(&files).is_err());
    let one_file = format!("{}---\n{}", files[0], files[1]);
    assert_eq!(refused(&one_file).len(), 1);

    let merged = Options {
        domains: Domains::Merged,
        ..Options::default()
    };
    assert!(compile(&sources(&files), merged).is_ok());
    assert!(compile(&sources(&[&one_file]), merged).is_ok());

    let twice = compile(&sources(&[files[0], files[0]]), merged).expect_err("x is there twice");
    assert_eq!(
        twice.to_string(),
        "b.yaml:2:15: duplicate descriptor composite key 'd.x', first written at a.yaml:2:15: write it once, with one \
         rate_limit, and put the descriptors of both below it (rule d.x)"
    );
}

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
fn a_rounded_rate_is_told() {
    check_warned(
        "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    unit: year\n    requests_per_unit: 999999937\n    algorithm: token_bucket\n    burst: 4000000000\n",
        "6:24",
        "rounded down",
    );
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
        "domain: d\ndescriptors:\n- key: z\n  rate_limit: {unlimited: true}\n- key: a\n  value: b\n  shadow_mode: true\n  rate_limit: {unit: hour, requests_per_unit: 5}\n  descriptors:\n  - key: c\n    rate_limit: {window: 90s, requests_per_unit: 5, algorithm: token_bucket, burst: 9, cost: 2}\n",
    )
    .rules;
    assert_eq!(
        rules.dump(),
        "d.a_b.c: unit=UNKNOWN requests_per_unit=5, shadow_mode: false, quota_mode: false, window=90s, \
         algorithm=token_bucket, burst=9, cost=2\n\
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
