//! The rooms of the design depend downwards only, and each big dependency has one door.

use std::path::{Path, PathBuf};

/// Each room, and the rooms it may name. Everything else is a step upwards.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("secret", &[]),
    ("go_values", &["secret"]),
    ("time", &[]),
    ("go_values", &[]),
    ("unit", &["time"]),
    ("algorithm", &["time"]),
    ("request", &["unit"]),
    ("shown", &["request"]),
    ("counter", &["algorithm", "request"]),
    (
        "rules",
        &[
            "algorithm",
            "counter",
            "go_values",
            "proto",
            "request",
            "secret",
            "time",
            "unit",
        ],
    ),
    ("store", &["algorithm", "counter", "secret", "time"]),
    (
        "verdict",
        &[
            "algorithm",
            "counter",
            "request",
            "rules",
            "store",
            "time",
            "unit",
        ],
    ),
    (
        "explain",
        &[
            "algorithm",
            "counter",
            "request",
            "rules",
            "shown",
            "store",
            "verdict",
        ],
    ),
    (
        "telemetry",
        &[
            "algorithm",
            "counter",
            "go_values",
            "request",
            "rules",
            "secret",
            "shown",
            "store",
            "time",
            "unit",
            "verdict",
        ],
    ),
    (
        "limiter",
        &[
            "algorithm",
            "counter",
            "explain",
            "request",
            "rules",
            "store",
            "telemetry",
            "time",
            "verdict",
        ],
    ),
    (
        "server",
        &[
            "algorithm",
            "counter",
            "explain",
            "go_values",
            "limiter",
            "proto",
            "request",
            "rules",
            "secret",
            "shown",
            "store",
            "telemetry",
            "time",
            "unit",
            "verdict",
        ],
    ),
];

/// Crates that only the named places may mention.
const DOORS: &[(&str, &[&str])] = &[
    (
        "tonic::",
        &[
            "server",
            "proto.rs",
            "cli",
            "rules/source/xds",
            "telemetry/otlp",
        ],
    ),
    ("axum::", &["server"]),
    // The load generator works below tonic's channel, which costs as much as the service it asks.
    ("hyper::", &["server", "cli/bench"]),
    ("redis::", &["store/redis"]),
    ("deadpool::", &["store/redis"]),
    ("granit_parser::", &["rules/file.rs"]),
    ("serde_saphyr::", &["rules/file.rs"]),
    ("opentelemetry", &["telemetry"]),
];

#[test]
fn rooms_depend_downwards_only() {
    let mut steps_up = Vec::new();
    for (path, text) in sources() {
        let room = room(&path);
        let Some((_, allowed)) = MAY_NAME.iter().find(|(name, _)| *name == room) else {
            // The front door (main, lib, cli, app, settings, shutdown) sees everything.
            continue;
        };
        for named in named_rooms(&text) {
            if named != room && !allowed.contains(&named.as_str()) {
                steps_up.push(format!("{}: {room} names {named}", path.display()));
            }
        }
    }
    assert!(steps_up.is_empty(), "{}", steps_up.join("\n"));
}

#[test]
fn each_big_dependency_has_one_door() {
    let mut strangers = Vec::new();
    for (path, text) in sources() {
        let inside = path.to_string_lossy().replace('\\', "/");
        for (krate, doors) in DOORS {
            let names_it = without_own_imports(&text)
                .lines()
                .any(|line| names_crate(line, krate));
            if names_it && !doors.iter().any(|door| inside.starts_with(door)) {
                strangers.push(format!("{inside} names {krate}"));
            }
        }
    }
    assert!(strangers.is_empty(), "{}", strangers.join("\n"));
}

#[test]
fn a_name_inside_a_longer_one_is_not_that_crate() {
    assert!(names_crate("use redis::Client;", "redis::"));
    assert!(names_crate("    redis::cmd(\"PING\")", "redis::"));
    assert!(!names_crate("use crate::store::redis::Redis;", "redis::"));
    assert!(!names_crate("deadpool::Pool", "redis::"));
}

fn names_crate(line: &str, krate: &str) -> bool {
    line.match_indices(krate).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || before == '_' || before == ':')
    })
}

/// The code without its `use crate::`, `use super::` and `use self::` statements: a room may bear a crate's name.
fn without_own_imports(text: &str) -> String {
    let mut kept = String::new();
    let mut skipping = false;
    for line in code_lines(text) {
        let statement = line.trim_start().trim_start_matches("pub ");
        skipping |= ["use crate::", "use super::", "use self::"]
            .iter()
            .any(|start| statement.starts_with(start));
        if !skipping {
            kept.push_str(line);
            kept.push('\n');
        }
        skipping &= !line.contains(';');
    }
    kept
}

fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
}

fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("src can be listed") {
            let path = entry.expect("src can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("sources are UTF-8");
                let inside = path
                    .strip_prefix(&root)
                    .expect("found below src")
                    .to_owned();
                found.push((inside, text));
            }
        }
    }
    assert!(found.len() > 20, "the walk finds the sources");
    found
}

fn room(path: &Path) -> String {
    let first = path.iter().next().expect("a path has a first part");
    first.to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// The rooms named by `crate::room::...`, also in grouped imports.
fn named_rooms(text: &str) -> Vec<String> {
    let word = |text: &str| -> String {
        text.chars()
            .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
            .collect()
    };
    let code: String = code_lines(text).collect::<Vec<_>>().join("\n");
    let mut named = Vec::new();
    for (at, found) in code.match_indices("crate::") {
        let rest = &code[at + found.len()..];
        if let Some(group) = rest.strip_prefix('{') {
            named.extend(top_level(group).into_iter().map(|item| word(item.trim())));
        } else {
            named.push(word(rest));
        }
    }
    named.retain(|name| !name.is_empty());
    named
}

/// The comma-separated items of a brace group whose opening brace has been taken off.
fn top_level(group: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let mut depth = 0;
    let mut start = 0;
    for (at, letter) in group.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => {
                items.push(&group[start..at]);
                return items;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    items
}
