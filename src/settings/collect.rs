//! All mistakes in the settings at once: who deploys should not have to find them one start at a time.

use std::{ffi::OsString, fmt};

use clap::{
    Command, FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// A value that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The environment variable or flag.
    pub setting: String,
    /// The value; never that of a secret, which is never refused.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
}

/// Every value that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Mistake {
            setting,
            value,
            allowed,
        } in &self.0
        {
            writeln!(f, "{setting}: {value:?} is not allowed: {allowed}")?;
        }
        Ok(())
    }
}

/// What came of a command line.
#[derive(Debug)]
pub enum Checked<T> {
    /// All is well.
    Good(T),
    /// Values were refused.
    Bad(Mistakes),
    /// Something else: help, or a command line that makes no sense.
    Other(clap::Error),
}

/// Settings for which an empty value says something that their absence does not.
const EMPTY_MEANS: &[&str] = &["RUNTIME_APPDIRECTORY"];

/// A variable that is set to nothing is one that is not set: templates leave such ones behind, and a port or a duration
/// cannot be empty. A flag is meant as it is written.
pub fn without_empty(mut command: Command) -> Command {
    let empty: Vec<clap::Id> = arguments(&command)
        .filter_map(|argument| {
            let variable = argument.get_env()?.to_str()?;
            let value = std::env::var_os(variable)?;
            (value.is_empty() && !EMPTY_MEANS.contains(&variable))
                .then(|| argument.get_id().clone())
        })
        .collect();
    for id in &empty {
        command = without_variable(command, id);
    }
    command
}

/// Parses `arguments` by `command`, collecting every value that is refused, in the order of the settings.
pub fn check<T: FromArgMatches>(mut command: Command, arguments: &[OsString]) -> Checked<T> {
    let mut mistakes = Vec::new();
    let mut arguments = arguments.to_vec();
    loop {
        let error = match command.try_get_matches_from_mut(&arguments) {
            Ok(matches) if mistakes.is_empty() => {
                return match T::from_arg_matches(&matches) {
                    Ok(parsed) => Checked::Good(parsed),
                    Err(error) => Checked::Other(error),
                };
            }
            Ok(_) => return Checked::Bad(Mistakes(mistakes)),
            Err(error) => error,
        };
        let Some((argument, value)) = refused(&error) else {
            return if mistakes.is_empty() {
                Checked::Other(error)
            } else {
                Checked::Bad(Mistakes(mistakes))
            };
        };
        let Some(known) = find(&command, &argument) else {
            return Checked::Other(error);
        };
        let allowed =
            std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
        let flag = format!("--{}", known.long);
        let given = arguments
            .iter()
            .position(|given| is_flag(&given.to_string_lossy(), &flag));
        mistakes.push(Mistake {
            setting: match (given, known.variable) {
                (None, Some(variable)) => variable,
                _ => flag,
            },
            value,
            allowed,
        });
        // Parsing stops at the first mistake: take it out and go on.
        match given {
            Some(position) => take_out(&mut arguments, position),
            None => command = without_variable(command, &known.id),
        }
    }
}

/// The setting and value an error is about, when it is about one.
fn refused(error: &clap::Error) -> Option<(String, String)> {
    if !matches!(
        error.kind(),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue
    ) {
        return None;
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    Some((
        text(ContextKind::InvalidArg)?,
        text(ContextKind::InvalidValue)?,
    ))
}

struct Known {
    id: clap::Id,
    long: String,
    variable: Option<String>,
}

/// The argument that `shown` (`--port <PORT>`) is.
fn find(command: &Command, shown: &str) -> Option<Known> {
    let name = shown.split([' ', '=', '[']).next()?.strip_prefix("--")?;
    arguments(command)
        .find(|argument| argument.get_long() == Some(name))
        .map(|argument| Known {
            id: argument.get_id().clone(),
            long: name.to_owned(),
            variable: argument
                .get_env()
                .map(|variable| variable.to_string_lossy().into_owned()),
        })
}

fn arguments(command: &Command) -> Box<dyn Iterator<Item = &clap::Arg> + '_> {
    Box::new(
        command
            .get_arguments()
            .chain(command.get_subcommands().flat_map(arguments)),
    )
}

fn without_variable(command: Command, id: &clap::Id) -> Command {
    let mine = command
        .get_arguments()
        .any(|argument| argument.get_id() == id);
    let command = if mine {
        command.mut_arg(id, |argument| argument.env(None::<&str>))
    } else {
        command
    };
    command.mut_subcommands(|inner| without_variable(inner, id))
}

fn is_flag(given: &str, flag: &str) -> bool {
    given == flag
        || given
            .strip_prefix(flag)
            .is_some_and(|rest| rest.starts_with('='))
}

/// Takes out a flag, and the value that follows it when it is not written with `=`.
fn take_out(arguments: &mut Vec<OsString>, position: usize) {
    let flag = arguments.remove(position);
    let follows = arguments
        .get(position)
        .is_some_and(|next| !next.to_string_lossy().starts_with('-'));
    if follows && !flag.to_string_lossy().contains('=') {
        arguments.remove(position);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::go_values;

    #[derive(Debug, clap::Parser)]
    struct Demo {
        #[arg(long, env = "PALANG_TEST_PORT", default_value = "1", value_parser = go_values::port)]
        port: u16,
        #[arg(long, env = "PALANG_TEST_WAIT", default_value = "1s", value_parser = go_values::duration)]
        wait: std::time::Duration,
    }

    fn run(arguments: &[&str]) -> Checked<Demo> {
        let arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
        check(Demo::command(), &arguments)
    }

    #[test]
    fn every_mistake_is_told_at_once() {
        let Checked::Bad(mistakes) = run(&["demo", "--port", "x", "--wait=10"]) else {
            panic!("both are wrong");
        };
        let settings: Vec<_> = mistakes
            .0
            .iter()
            .map(|mistake| (mistake.setting.as_str(), mistake.value.as_str()))
            .collect();
        assert_eq!(settings, [("--port", "x"), ("--wait", "10")]);
        assert!(
            mistakes.to_string().contains("expected a port"),
            "{mistakes}"
        );
    }

    #[test]
    fn what_is_right_is_parsed() {
        let Checked::Good(demo) = run(&["demo", "--port=7"]) else {
            panic!("nothing is wrong");
        };
        assert_eq!((demo.port, demo.wait.as_secs()), (7, 1));
        assert!(matches!(run(&["demo", "--nonsense"]), Checked::Other(_)));
    }
}
