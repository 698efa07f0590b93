//! The log: what is written, in which form. One line each event, on standard error.

use std::{fmt, io};

use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::Writer,
        time::{FormatTime as _, SystemTime},
    },
    layer::SubscriberExt as _,
    registry::LookupSpan,
    util::{SubscriberInitExt as _, TryInitError},
};

use crate::go_values::Malformed;

/// Settings of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Log")]
pub struct Args {
    /// Least level that is written: error (also panic, fatal), warn (warning), info, debug or trace.
    #[arg(long, env = "LOG_LEVEL", default_value = "info", value_parser = level)]
    pub log_level: LevelFilter,
    /// Form of a line: text or json.
    #[arg(long, env = "LOG_FORMAT", default_value = "text", value_parser = format)]
    pub log_format: Format,
}

/// Form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object with the reference's keys: `@timestamp`, `@message`, `level`.
    Json,
}

fn level(text: &str) -> Result<LevelFilter, Malformed> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "panic" | "fatal" | "error" => LevelFilter::ERROR,
        "warn" | "warning" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => {
            return Err(Malformed::new(
                "expected panic, fatal, error, warn, warning, info, debug or trace",
            ));
        }
    })
}

fn format(text: &str) -> Result<Format, Malformed> {
    match text.to_ascii_lowercase().as_str() {
        "text" | "" => Ok(Format::Text),
        "json" => Ok(Format::Json),
        _ => Err(Malformed::new("expected text or json")),
    }
}

/// Starts the log.
///
/// # Errors
/// When the process has one already.
pub fn start(args: Args) -> Result<(), TryInitError> {
    // The libraries' own chatter below a warning is of no use to an operator, except when everything is asked for.
    let libraries = if args.log_level == LevelFilter::TRACE {
        LevelFilter::TRACE
    } else {
        args.log_level.min(LevelFilter::WARN)
    };
    let targets = Targets::new()
        .with_default(libraries)
        .with_target("palang", args.log_level);
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let registry = tracing_subscriber::registry();
    match args.log_format {
        Format::Text => registry
            .with(
                lines
                    .with_ansi(false)
                    .with_target(false)
                    .with_filter(targets),
            )
            .try_init(),
        Format::Json => registry
            .with(lines.event_format(JsonLines).with_filter(targets))
            .try_init(),
    }
}

/// Writes an event as one JSON object.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut object = Map::new();
        object.insert("@timestamp".to_owned(), Value::String(time));
        object.insert("@message".to_owned(), Value::String(String::new()));
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            Level::DEBUG => "debug",
            Level::TRACE => "trace",
        };
        object.insert("level".to_owned(), Value::String(level.to_owned()));
        event.record(&mut Fields(&mut object));
        writeln!(writer, "{}", Value::Object(object))
    }
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Fields<'_> {
    fn set(&mut self, field: &Field, value: Value) {
        let name = match field.name() {
            "message" => "@message",
            name => name,
        };
        self.0.insert(name.to_owned(), value);
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, Value::String(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_the_references() {
        for (text, filter) in [
            ("WARN", LevelFilter::WARN),
            ("warning", LevelFilter::WARN),
            ("Panic", LevelFilter::ERROR),
            ("fatal", LevelFilter::ERROR),
            ("info", LevelFilter::INFO),
            ("TRACE", LevelFilter::TRACE),
        ] {
            assert_eq!(level(text), Ok(filter), "{text}");
        }
        assert!(level("loud").is_err());
        assert_eq!(format("JSON"), Ok(Format::Json));
        assert!(format("xml").is_err());
    }
}
