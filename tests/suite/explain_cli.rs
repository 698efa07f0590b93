//! `palang explain`, the real binary.

use std::process::Command;

use serde_json::{Value, json};

fn explain(words: &[&str]) -> (Option<i32>, String, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_palang"))
        .arg("explain")
        .args([
            "--rules",
            concat!(env!("CARGO_MANIFEST_DIR"), "/examples/quickstart"),
        ])
        .args(words)
        .output()
        .expect("the binary starts");
    (
        ran.status.code(),
        String::from_utf8_lossy(&ran.stdout).into_owned(),
        String::from_utf8_lossy(&ran.stderr).into_owned(),
    )
}

#[test]
fn it_tells_people_the_rule_the_limit_and_the_counter() {
    let words = [
        "--domain",
        "quickstart",
        "--descriptor",
        "user=7",
        "--hits",
        "2",
    ];
    let (code, text, _) = explain(&words);
    assert_eq!(code, Some(0));
    for line in [
        "descriptor 1: user=7\n",
        "    + user: taken: any value of the key\n",
        "  rule    quickstart.user at ",
        "  so it   limited by the rule\n",
        "  limit   3 per minute, token_bucket\n",
        "  counter 1t60000000|10:quickstart|4:user=1:7\n",
        "  takes   2\n",
    ] {
        assert!(text.contains(line), "{line:?} in\n{text}");
    }
    assert!(!text.contains("answer"), "no counter was asked:\n{text}");
}

#[test]
fn who_reads_no_further_is_no_failure() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ran = Command::new(env!("CARGO_BIN_EXE_palang"))
        .args([
            "explain",
            "--domain",
            "quickstart",
            "--descriptor",
            "user=7",
            "--rules",
        ])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/quickstart"))
        .stdout(writer)
        .output()
        .expect("the binary starts");
    assert_eq!(ran.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ran.stderr), "");
}

#[test]
fn it_tells_programs_the_same() {
    let words = [
        "--domain",
        "quickstart",
        "--descriptor",
        "user=7",
        "--descriptor",
        "no=where",
        "--json",
    ];
    let (code, text, _) = explain(&words);
    assert_eq!(code, Some(0));
    let found: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(found["descriptors"][0]["rule"]["path"], "quickstart.user");
    assert_eq!(found["descriptors"][0]["limit"]["requests_per_unit"], 3);
    assert_eq!(found["descriptors"][1]["result"], "unmatched");
    assert_eq!(found.get("code"), None);
    assert_eq!(
        found["descriptors"][0]["walk"]["levels"][0]["value"],
        json!("7")
    );
}

#[test]
fn what_makes_no_sense_is_said_and_fails() {
    let (code, _, said) = explain(&["--domain", "d", "--descriptor", "=x"]);
    assert_eq!(code, Some(64), "{said}");
    let (code, _, said) = explain(&["--rules", "/nowhere", "--domain", "d", "--descriptor", "k"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("palang check says why"), "{said}");
}
