//! The page for those who come from the reference names the test of each feature. Here those names are looked up.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

const PAGE: &str = include_str!("../../docs/migrate.md");
const CASES: [&str; 2] = [
    include_str!("../conformance/reference.yaml"),
    include_str!("../conformance/more.yaml"),
];

#[test]
fn every_test_that_the_page_names_exists() {
    let cases: BTreeSet<&str> = CASES
        .iter()
        .flat_map(|file| file.lines())
        .filter_map(|line| line.strip_prefix("- id: "))
        .collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    for folder in ["src", "tests/suite"] {
        collect(&root.join(folder), &mut sources);
    }
    let table = PAGE
        .split("## Feature by feature")
        .nth(1)
        .expect("the table is there");
    let mut rows = 0;
    let mut missing = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        rows += 1;
        let tests = row.trim_end_matches(" |").rsplit(" | ").next();
        let names: Vec<&str> = tests
            .unwrap_or_default()
            .split(", ")
            .map(|name| name.trim_matches('`'))
            .collect();
        for name in names {
            let exists = match name.strip_prefix("case ") {
                Some(case) => cases.contains(case),
                None => is_test(name, &sources),
            };
            if !exists {
                missing.push(name.to_owned());
            }
        }
    }
    assert!(rows > 30, "{rows} rows");
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}

/// Whether `room::name` is a test in the file of that room: `tests` and what is before the room do not matter.
fn is_test(path: &str, sources: &[(PathBuf, String)]) -> bool {
    let mut parts = path.rsplit("::");
    let (Some(name), Some(room)) = (parts.next(), parts.find(|part| *part != "tests")) else {
        return false;
    };
    sources.iter().any(|(file, text)| {
        let in_room = file.file_stem().is_some_and(|stem| stem == room)
            || file.iter().any(|folder| folder == room);
        // Marked as a test in the line before, or the one before that.
        let marked = text.match_indices(&format!("fn {name}(")).any(|(at, _)| {
            let before = text[..at].lines().rev().take(3);
            before.into_iter().any(|line| {
                let line = line.trim_start();
                line.starts_with("#[test]") || line.starts_with("#[tokio::test")
            })
        });
        in_room && marked
    })
}

fn collect(folder: &Path, sources: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("sources are UTF-8");
            sources.push((path, text));
        }
    }
}
