//! `docs/settings.md`, from the settings themselves: so that it can neither forget one nor be wrong about a default.

use std::fmt::Write as _;

use clap::{Arg, Args as _, Command};

use super::{
    Settings,
    reference::{PARTS, THEIRS, Theirs},
    unsupported::{Row, Weight, rows},
};

const INTRODUCTION: &str = "\
# Settings

Every setting is an environment variable and a flag of `palang serve`; a flag wins. Those that envoyproxy/ratelimit has
keep its names, and its values: booleans as Go writes them (`1`, `t`, `T`, `true`, `TRUE`, `True` and their opposites),
numbers with `0x` and `_`, durations with a unit (`150us`, `1h30m`, `0`), addresses as `host:port` or `:port`. A switch
is turned on by its bare flag too.

A variable that is set to nothing counts as not set, where the reference stops at the start; but for
`RUNTIME_APPDIRECTORY`, which an empty one leaves out of the path. Everything that cannot be used is named at once,
with what is allowed or what is wrong: values, settings that contradict each other, files of certificates and keys. The
process does not start then (exit code 64). The environment is read once, at the start: rules and certificates are what
is read again.

Counters live in this process only where no setting says anything of a Redis: any `REDIS_` setting, but
`REDIS_PERSECOND=false`, asks for `REDIS_URL`. `REDIS_PERSECOND_` settings say nothing without `REDIS_PERSECOND=true`.

This page is `palang settings`, and a test holds it against the code: `palang settings > docs/settings.md` renews it.
";

const MOGRIFIERS: &str = "
For each name in `USE_DOG_STATSD_MOGRIFIERS`:

| variable | what it does |
|---|---|
| `DOG_STATSD_MOGRIFIER_<NAME>_PATTERN` | regular expression; the first mogrifier whose pattern fits a statistic's name \
renames it |
| `DOG_STATSD_MOGRIFIER_<NAME>_NAME` | the new name; `$1` stands for what the first group of the pattern fits |
| `DOG_STATSD_MOGRIFIER_<NAME>_TAGS` | tags, as `name:text` pairs with commas between; `$1` as above |
";

/// All settings as Markdown.
pub fn document() -> String {
    let command = Settings::augment_args(Command::new("serve"));
    let mut text = INTRODUCTION.to_owned();
    ours(&mut text, &command);
    differences(&mut text, &command);
    others(
        &mut text,
        &command,
        "Not needed here",
        "Accepted, and said once at the start: what they ask for is so, or is better.",
        "why not",
        Weight::Needless,
    );
    others(
        &mut text,
        &command,
        "Without effect",
        "Accepted, with a warning at the start.",
        "instead",
        Weight::Told,
    );
    others(
        &mut text,
        &command,
        "Refused",
        "The process does not start with these, because what it would serve is not what was asked for.",
        "what is allowed",
        Weight::Fatal,
    );
    text
}

/// Each of our settings, under the headings of the command line.
fn ours(text: &mut String, command: &Command) {
    let mut headings: Vec<&str> = Vec::new();
    for argument in command.get_arguments() {
        let heading = argument.get_help_heading().unwrap_or("Others");
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    for heading in headings {
        let _ = write!(
            text,
            "\n## {heading}\n\n| variable | flag | default | what it does |\n|---|---|---|---|\n"
        );
        for argument in command.get_arguments() {
            if argument.get_help_heading().unwrap_or("Others") == heading {
                row(text, argument);
            }
        }
        if heading == "Statsd" {
            text.push_str(MOGRIFIERS);
        }
    }
}

fn row(text: &mut String, argument: &Arg) {
    let help = argument.get_help().map(ToString::to_string);
    let _ = writeln!(
        text,
        "| {} | `--{}` | {} | {} |",
        variable(argument).map_or_else(String::new, |variable| format!("`{variable}`")),
        argument.get_long().unwrap_or_default(),
        code(&default(argument)),
        cell(help.unwrap_or_default().trim_end_matches('.')),
    );
}

/// Where our default or meaning is another one than the reference's.
fn differences(text: &mut String, command: &Command) {
    text.push_str(
        "\n## What differs from envoyproxy/ratelimit\n\n| variable | default there | default here | why, and what else |\n\
         |---|---|---|---|\n",
    );
    for theirs in THEIRS {
        if let Some(argument) = find(command, theirs.variable)
            && !theirs.remark.is_empty()
        {
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                theirs.variable,
                code(theirs.default),
                code(&default(argument)),
                cell(theirs.remark)
            );
        }
    }
}

/// What is no setting of ours.
fn others(
    text: &mut String,
    command: &Command,
    title: &str,
    introduction: &str,
    column: &str,
    weight: Weight,
) {
    let rows: Vec<&Row> = rows().filter(|row| row.weight == weight).collect();
    if rows.is_empty() {
        return;
    }
    let _ = write!(
        text,
        "\n## {title}\n\n{introduction}\n\n| variable | {column} |\n|---|---|\n"
    );
    // Neighbours of which the same is to be said share a line.
    for alike in rows.chunk_by(|one, other| one.instead == other.instead) {
        let names: Vec<String> = alike
            .iter()
            .flat_map(|row| {
                let parts = THEIRS.iter().filter(|theirs| {
                    find(command, theirs.variable).is_none() && whole(theirs) == Some(row.variable)
                });
                std::iter::once(row.variable).chain(parts.map(|theirs| theirs.variable))
            })
            .map(|name| format!("`{name}`"))
            .collect();
        let _ = writeln!(
            text,
            "| {} | {} |",
            names.join(", "),
            cell(alike[0].instead)
        );
    }
}

/// The setting without which this one means nothing, when this one is in no list by itself.
fn whole(theirs: &Theirs) -> Option<&'static str> {
    if rows().any(|row| row.variable == theirs.variable) {
        return None;
    }
    PARTS
        .iter()
        .find(|(start, _)| theirs.variable.starts_with(start))
        .map(|(_, whole)| *whole)
}

fn find<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    command
        .get_arguments()
        .find(|argument| variable(argument).is_some_and(|variable| variable == name))
}

fn variable(argument: &Arg) -> Option<&str> {
    argument.get_env()?.to_str()
}

fn default(argument: &Arg) -> String {
    let values: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    values.join(",")
}

fn code(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("`{text}`")
    }
}

/// Text that stays within its cell.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Settings::augment_args(Command::new("serve"))
    }

    #[test]
    fn the_page_is_what_the_code_says() {
        let page = include_str!("../../docs/settings.md");
        assert!(
            page == document(),
            "docs/settings.md is old: cargo run -- settings > docs/settings.md"
        );
    }

    #[test]
    fn every_setting_of_the_reference_is_accepted_or_spoken_of() {
        let command = command();
        let mut wrong = Vec::new();
        for theirs in THEIRS {
            let name = theirs.variable;
            let listed = rows().any(|row| row.variable == name);
            let part = whole(theirs).is_some_and(|whole| rows().any(|row| row.variable == whole));
            match find(&command, name).map(default) {
                None if !(listed || part) => wrong.push(format!("{name} is forgotten")),
                Some(ours) if ours != theirs.default && theirs.remark.is_empty() => {
                    let there = theirs.default;
                    wrong.push(format!("{name}: {there} there, {ours} here, no word why"));
                }
                _ => {}
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn what_is_a_setting_is_not_called_without_effect() {
        let command = command();
        for row in rows().filter(|row| row.weight != Weight::Needless) {
            assert!(
                find(&command, row.variable).is_none(),
                "{} is a setting: take it off the list in unsupported.rs",
                row.variable
            );
        }
    }

    #[test]
    fn every_setting_is_explained() {
        for argument in command().get_arguments() {
            let name = argument.get_id();
            assert!(argument.get_help().is_some(), "{name} needs a sentence");
            assert!(argument.get_help_heading().is_some(), "{name}: no heading");
        }
    }
}
