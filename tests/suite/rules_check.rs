//! `palang check` says what the loader does, in a form that an editor can jump to.

use std::{fs, path::Path, process::ExitCode};

use clap::Parser;
use palang::{
    cli::check,
    rules::source::{Layout, Options, load},
};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: check::Args,
}

fn run(args: &[&str]) -> (ExitCode, String) {
    let command = Command::parse_from([&["check"], args].concat());
    let mut out = Vec::new();
    let code = check::run(&command.args, &mut out).expect("a Vec can be written to");
    (code, String::from_utf8(out).expect("text"))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are text")
}

#[test]
fn the_quickstart_rules_have_no_mistake_and_no_warning() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart/rules.yaml");
    let (code, out) = run(&["--strict", text(&path)]);
    assert_eq!(code, ExitCode::SUCCESS, "{out}");
    assert!(
        out.starts_with("ok: 6 rules in 1 domain of 1 file, 0 warnings, hash "),
        "{out}"
    );
}

#[test]
fn mistakes_and_warnings_are_one_sorted_list() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.yaml");
    fs::write(
        &file,
        "domain: d\nunit: day\ndescriptors:\n- key: k\n  rate_limit: {unit: foo, requests_per_unit: 5}\n",
    )
    .expect("written");
    let name = text(&file);
    let (code, out) = run(&[text(dir.path())]);
    assert_eq!(code, ExitCode::FAILURE);
    assert_eq!(
        out,
        format!(
            "{name}:2:1: warning: 'unit' is ignored here, it belongs in a rate_limit (rule d)\n\
             {name}:5:22: error: invalid rate limit unit 'foo': the units are second, minute, hour, day, week, month, \
             year; or write `window: 30s`, or `unlimited: true` (rule d.k)\n\
             failed: 1 error, 1 warning\n"
        )
    );
}

#[test]
fn strict_refuses_what_is_only_warned_of() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("a.yaml"), "domain: d\nunit: day\n").expect("written");
    assert_eq!(run(&[text(dir.path())]).0, ExitCode::SUCCESS);
    let (code, out) = run(&["--strict", text(dir.path())]);
    assert_eq!(code, ExitCode::FAILURE);
    assert!(out.ends_with("failed: 1 error, 0 warnings\n"), "{out}");
}

#[test]
fn merging_is_allowed_when_asked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, key) in [("a.yaml", "x"), ("b.yml", "y")] {
        let rules = format!("domain: d\ndescriptors: [{{key: {key}}}]\n");
        fs::write(dir.path().join(name), rules).expect("written");
    }
    let (code, out) = run(&[text(dir.path())]);
    assert_eq!(code, ExitCode::FAILURE);
    assert!(
        out.contains("b.yml:1:9: error: duplicate domain 'd'"),
        "{out}"
    );
    assert!(out.contains("a.yaml:1:9"), "{out}");
    assert_eq!(
        run(&["--merge-domains", text(dir.path())]).0,
        ExitCode::SUCCESS
    );
}

#[test]
fn what_cannot_be_read_is_a_mistake() {
    let dir = tempfile::tempdir().expect("a directory");
    let missing = dir.path().join("nowhere");
    let (code, out) = run(&[text(&missing)]);
    assert_eq!(code, ExitCode::FAILURE);
    assert!(
        out.starts_with(&format!("{}: error: cannot be read: ", missing.display())),
        "{out}"
    );

    fs::write(
        dir.path().join("a.yaml"),
        "domain: d\n# ".to_owned() + &"x".repeat(2_000),
    )
    .expect("written");
    let (code, out) = run(&["--max-file-bytes", "1000", text(dir.path())]);
    assert_eq!(code, ExitCode::FAILURE);
    assert!(out.contains("larger than 1000 bytes"), "{out}");
}

#[test]
fn the_check_and_the_loader_agree() {
    let long = format!("domain: d\ndescriptors: [{}]\n", "[".repeat(5_000));
    for (rules, loads) in [
        ("domain: d\n", true),
        ("domain: d\ndescriptors:\n- key: k\n  value: ~\n", true),
        ("domain: d\ndescriptors:\n- value: v\n", false),
        ("domain: d\ndescriptors: {key: k}\n", false),
        ("domain: d\ndescriptors:\n\t- key: k\n", false),
        ("\u{feff}domain: d\r\n", true),
        (
            "domain: d\ndescriptors:\n- {key: k, value: true}\n- {key: k, value: 007}\n- {key: k, value: 1e3}\n",
            true,
        ),
        (&long, false),
        ("", false),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("a.yaml"), rules).expect("written");
        let layout = Layout::paths([dir.path().to_owned()]);
        assert_eq!(load(&layout, &Options::default()).is_ok(), loads, "{rules}");
        let (code, out) = run(&[text(dir.path())]);
        assert_eq!(code == ExitCode::SUCCESS, loads, "{rules}\n{out}");
    }
}

#[test]
fn no_rule_file_at_all_is_told_and_in_strict_mode_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("rules.conf"), "domain: d\n").expect("written");
    let (code, out) = run(&[text(dir.path())]);
    assert_eq!(code, ExitCode::SUCCESS);
    assert!(
        out.contains("warning: no rule file: every request would pass"),
        "{out}"
    );
    let (code, out) = run(&["--strict", text(dir.path())]);
    assert_eq!(code, ExitCode::FAILURE);
    assert!(
        out.contains("error: no rule file: every request would pass"),
        "{out}"
    );
}

/// Who generates rules may make one mistake in all of them: some are told, all are counted.
#[test]
fn mistakes_that_are_not_told_are_counted() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut rules = "domain: d\ndescriptors:\n".to_owned();
    for number in 0..1_234 {
        rules.push_str(&format!(
            "- {{key: k{number}, rate_limit: {{unit: foo}}}}\n"
        ));
    }
    fs::write(dir.path().join("a.yaml"), rules).expect("written");
    let (code, out) = run(&[text(dir.path())]);
    assert_eq!(code, ExitCode::FAILURE);
    let last: Vec<&str> = out.lines().rev().take(2).collect();
    assert_eq!(last[0], "failed: 1234 errors, 0 warnings");
    assert!(last[1].ends_with("and 234 more"), "{}", last[1]);
}
