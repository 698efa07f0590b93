//! All mistakes in the settings at once: who deploys should not have to find them one start at a time.

use std::{ffi::OsString, fmt};

use clap::{
    ArgMatches, Command, FromArgMatches,
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The environment variable or flag; several, with commas between, where they do not go together.
    pub setting: String,
    /// The value, where it is the value that is wrong; never that of a secret.
    pub value: Option<String>,
    /// What is allowed, or what is wrong.
    pub allowed: String,
}

impl Mistake {
    /// One about what is never shown, or that no single value makes.
    pub(super) fn of(setting: impl Into<String>, wrong: impl fmt::Display) -> Self {
        Self {
            setting: setting.into(),
            value: None,
            allowed: wrong.to_string(),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            setting,
            value,
            allowed,
        } = self;
        match value {
            Some(value) => write!(f, "{setting}: {value:?} is not allowed: {allowed}"),
            None => write!(f, "{setting}: {allowed}"),
        }
    }
}

impl std::error::Error for Mistake {}

/// Everything that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|mistake| writeln!(f, "{mistake}"))
    }
}

/// The variables of the settings that somebody gave, by a flag or in the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    variables: Vec<String>,
    refused: Vec<String>,
}

impl Given {
    /// Those that were given, in the order of the settings; the refused ones last.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables
            .iter()
            .chain(&self.refused)
            .map(String::as_str)
    }

    /// Whether a value was given for this one and could not be used.
    pub(super) fn refused(&self, variable: &str) -> bool {
        self.refused.iter().any(|refused| refused == variable)
    }
}

/// What came of a command line.
#[derive(Debug)]
pub enum Checked<T> {
    /// It could be parsed, but for values that were refused: for each of them the default is there.
    Parsed {
        /// What it says.
        parsed: T,
        /// Which settings it gives.
        given: Given,
        /// The values that were refused.
        refused: Vec<Mistake>,
    },
    /// Values were refused, and without them nothing can be parsed.
    Refused(Vec<Mistake>),
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
    let mut refused = Vec::new();
    let mut given = Given::default();
    let mut arguments = arguments.to_vec();
    loop {
        let error = match command.try_get_matches_from_mut(&arguments) {
            Ok(matches) => {
                collect_given(&command, &matches, &mut given.variables);
                match T::from_arg_matches(&matches) {
                    Ok(parsed) => {
                        return Checked::Parsed {
                            parsed,
                            given,
                            refused,
                        };
                    }
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        let Some((argument, value)) = refusal(&error) else {
            return if refused.is_empty() {
                Checked::Other(error)
            } else {
                Checked::Refused(refused)
            };
        };
        let Some(known) = find(&command, &argument) else {
            return Checked::Other(error);
        };
        let allowed =
            std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
        let flag = format!("--{}", known.long);
        let at = arguments
            .iter()
            .position(|given| is_flag(&given.to_string_lossy(), &flag));
        given.refused.extend(known.variable.clone());
        refused.push(Mistake {
            setting: match (at, known.variable) {
                (None, Some(variable)) => variable,
                _ => flag,
            },
            value: (!known.is_secret).then_some(value),
            allowed,
        });
        // Parsing stops at the first mistake: take it out and go on.
        match at {
            Some(position) => take_out(&mut arguments, position),
            None => command = without_variable(command, &known.id),
        }
    }
}

/// The variables of what `matches` has from a flag or from the environment.
fn collect_given(command: &Command, matches: &ArgMatches, given: &mut Vec<String>) {
    for argument in command.get_arguments() {
        let from = matches.value_source(argument.get_id().as_str());
        let variable = argument.get_env().and_then(|variable| variable.to_str());
        if let Some(variable) = variable
            && matches!(
                from,
                Some(ValueSource::CommandLine | ValueSource::EnvVariable)
            )
        {
            given.push(variable.to_owned());
        }
    }
    if let Some((name, matches)) = matches.subcommand()
        && let Some(command) = command.find_subcommand(name)
    {
        collect_given(command, matches, given);
    }
}

/// The setting and value an error is about, when it is about one.
fn refusal(error: &clap::Error) -> Option<(String, String)> {
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
    /// Its value is not to be seen, right or wrong.
    is_secret: bool,
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
            is_secret: argument.is_hide_env_values_set(),
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
        let Checked::Parsed {
            parsed,
            given,
            refused,
        } = run(&["demo", "--port", "x", "--wait=10"])
        else {
            panic!("the rest can be parsed");
        };
        let settings: Vec<_> = refused
            .iter()
            .map(|mistake| (mistake.setting.as_str(), mistake.value.as_deref()))
            .collect();
        assert_eq!(settings, [("--port", Some("x")), ("--wait", Some("10"))]);
        let text = Mistakes(refused).to_string();
        assert!(text.contains("expected a port"), "{text}");
        assert_eq!((parsed.port, parsed.wait.as_secs()), (1, 1));
        assert!(given.refused("PALANG_TEST_PORT") && given.refused("PALANG_TEST_WAIT"));
    }

    #[test]
    fn what_is_right_is_parsed() {
        let Checked::Parsed {
            parsed,
            given,
            refused,
        } = run(&["demo", "--port=7"])
        else {
            panic!("nothing is wrong");
        };
        assert_eq!((parsed.port, parsed.wait.as_secs()), (7, 1));
        assert_eq!(refused, []);
        assert_eq!(given.variables().collect::<Vec<_>>(), ["PALANG_TEST_PORT"]);
        assert!(matches!(run(&["demo", "--nonsense"]), Checked::Other(_)));
    }
}
