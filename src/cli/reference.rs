//! The reference's programs under their own names: links to this binary that scripts can go on calling.

use std::{ffi::OsString, path::Path};

/// The command line as ours: the reference's server takes no arguments, its client and its checker take flags as Go
/// writes them, with one dash. Other names are left alone.
pub(super) fn as_ours(arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments
        .first()
        .and_then(|program| Path::new(program).file_name())
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let command = match name {
        "ratelimit" if arguments.len() == 1 => "serve",
        "ratelimit_client" => "decide",
        "ratelimit_config_check" | "config_check_cmd" => "check",
        _ => return arguments,
    };
    let mut words = arguments.into_iter();
    words
        .next()
        .into_iter()
        .chain([command.into()])
        .chain(words.map(with_two_dashes))
        .collect()
}

/// `-domain` as `--domain`. A flag of one letter is ours as it is.
fn with_two_dashes(word: OsString) -> OsString {
    let long = word.to_str().is_some_and(|text| {
        text.strip_prefix('-')
            .is_some_and(|name| name.len() > 1 && !name.starts_with('-'))
    });
    if !long {
        return word;
    }
    let mut dashed = OsString::from("-");
    dashed.push(word);
    dashed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_references_programs_are_commands() {
        for (theirs, ours) in [
            (&["/bin/ratelimit"][..], &["/bin/ratelimit", "serve"][..]),
            (
                &[
                    "ratelimit_client",
                    "-domain",
                    "d",
                    "-descriptors=k=-v",
                    "-h",
                ],
                &[
                    "ratelimit_client",
                    "decide",
                    "--domain",
                    "d",
                    "--descriptors=k=-v",
                    "-h",
                ],
            ),
            (
                &[
                    "/bin/ratelimit_config_check",
                    "-config_dir",
                    "/data",
                    "--merge_domain_configs",
                ],
                &[
                    "/bin/ratelimit_config_check",
                    "check",
                    "--config_dir",
                    "/data",
                    "--merge_domain_configs",
                ],
            ),
            (&["palang"], &["palang"]),
            (&["ratelimit", "check", "x"], &["ratelimit", "check", "x"]),
            (&[], &[]),
        ] {
            assert_eq!(as_ours(words(theirs)), words(ours));
        }
    }
}
