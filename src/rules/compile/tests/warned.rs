//! What loads with a warning, and is refused where warnings are.

use super::*;

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
fn a_rounded_rate_is_told() {
    check_warned(
        "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    unit: year\n    requests_per_unit: 999999937\n    algorithm: token_bucket\n    burst: 4000000000\n",
        "6:24",
        "rounded down",
    );
}
