//! The table of faults names tests, and these tests are there.

use std::{collections::BTreeSet, fs, path::Path};

#[test]
fn every_test_that_the_docs_name_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/failure.md")).expect("docs/failure.md");
    let named: BTreeSet<(&str, &str)> = text
        .split('`')
        .filter_map(|word| word.split_once("::"))
        .filter(|(file, _)| file.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect();
    assert!(named.len() > 20, "{named:?}");
    for (file, test) in named {
        let path = match file {
            "budget" => root.join("tests/budget/main.rs"),
            file => root.join(format!("tests/suite/{file}.rs")),
        };
        let source = fs::read_to_string(&path).expect(file);
        assert!(source.contains(&format!("fn {test}(")), "{file}::{test}");
    }
}
