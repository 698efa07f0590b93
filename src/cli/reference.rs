//! The reference's programs under their own names: links to this binary that scripts can go on calling.

use std::{ffi::OsString, path::Path};

/// The command line as ours: the reference's server takes no arguments, its client and its checker take flags as Go
/// writes them, with one dash. Other names are left alone.
///
/// A container's `command` may come after our entry point, as `/palang /bin/ratelimit`: then the path is the program.
pub(super) fn as_ours(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments
        .get(1)
        .is_some_and(|word| Path::new(word).is_absolute() && command(word).is_some())
    {
        arguments.remove(0);
    }
    let Some(command) = arguments.first().and_then(|program| command(program)) else {
        return arguments;
    };
    if command == "serve" && arguments.len() > 1 {
        return arguments;
    }
    let mut words = arguments.into_iter();
    words
        .next()
        .into_iter()
        .chain([command.into()])
        .chain(words.map(with_two_dashes))
        .collect()
}

/// What the program of that name or path does.
fn command(program: &OsString) -> Option<&'static str> {
    match Path::new(program).file_name()?.to_str()? {
        "ratelimit" => Some("serve"),
        "ratelimit_client" => Some("decide"),
        "ratelimit_config_check" | "config_check_cmd" => Some("check"),
        _ => None,
    }
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
            (&["/palang", "/bin/ratelimit"], &["/bin/ratelimit", "serve"]),
            (&["palang"], &["palang"]),
            (&["ratelimit", "check", "x"], &["ratelimit", "check", "x"]),
            (&[], &[]),
        ] {
            assert_eq!(as_ours(words(theirs)), words(ours));
        }
    }
}
