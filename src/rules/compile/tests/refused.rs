//! What is refused: one mistake each, with its place and what is said of it.

use super::*;

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
            "{unit: day, requests_per_unit: 5, on_store_failure: alow}",
            "alow",
            &["unknown on_store_failure 'alow': did you mean 'allow'?"],
        ),
        (
            "{unit: day, requests_per_unit: 5, on_store_failure: panic}",
            "panic",
            &["the policies are error, allow, deny, local"],
        ),
        (
            "{unlimited: true, on_store_failure: deny}",
            "deny",
            &["'on_store_failure' has no meaning when unlimited"],
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
        "d.k",
        &["'cost' has no meaning here, it belongs in a rate_limit"],
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
         rate_limit, and put the descriptors of both below it; a second limit needs a descriptor of its own in the \
         request (rule d.x)"
    );
}

#[test]
fn text_of_the_file_never_breaks_the_line_of_a_message() {
    let mistakes =
        refused("domain: d\ndescriptors:\n- key: \"a\\nb\"\n  \"x\\u001b[31m\\ny\": 1\n");
    assert_eq!(
        mistakes[0].to_string(),
        "a.yaml:4:3: config error, unknown key 'x\\u{1b}[31m\\ny': a descriptor takes descriptors, key, value, \
         rate_limit, shadow_mode, quota_mode, detailed_metric, value_to_metric, share_threshold, metadata (rule d.a\\nb)"
    );
}
