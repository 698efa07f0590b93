//! The settings of the statsd receiver, with envoyproxy/ratelimit's names.

use std::{collections::BTreeMap, time::Duration};

use super::{MogrifierError, Mogrifiers, Options, Protocol};
use crate::go_values::{self, Malformed};

/// Shortest time between two reports: below it the reports would be the load.
const SHORTEST: Duration = Duration::from_millis(20);

/// How statistics are sent to a statsd receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Statsd")]
pub struct Args {
    /// Send statistics to a statsd receiver. Without it: when STATSD_HOST or STATSD_PORT is set
    #[arg(long, env = "USE_STATSD", value_parser = go_values::boolean, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub use_statsd: Option<bool>,
    /// Send them as DogStatsD takes them: over UDP, with tags
    #[arg(long, env = "USE_DOG_STATSD", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub use_dog_statsd: bool,
    /// Names of the mogrifiers for DogStatsD, separated by commas: the first that fits a statistic renames it
    #[arg(long, env = "USE_DOG_STATSD_MOGRIFIERS", default_value = "", value_parser = names)]
    pub use_dog_statsd_mogrifiers: Names,
    /// Tell nobody any statistics, whatever else is set: nothing is sent, and there is no metrics port
    #[arg(long, env = "DISABLE_STATS", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub disable_stats: bool,
    /// Host of the receiver; localhost when not set
    #[arg(long, env = "STATSD_HOST", value_parser = go_values::host)]
    pub statsd_host: Option<String>,
    /// Port of the receiver; 8125 when not set
    #[arg(long, env = "STATSD_PORT", value_parser = go_values::port)]
    pub statsd_port: Option<u16>,
    /// tcp or udp
    #[arg(long, env = "STATSD_PROTOCOL", default_value = "tcp", value_parser = protocol)]
    pub statsd_protocol: Protocol,
    /// Time between two reports, at least 20ms
    #[arg(long, env = "STATS_FLUSH_INTERVAL", default_value = "10s", value_parser = interval)]
    pub stats_flush_interval: Duration,
    /// Tags of every statistic, as name:text pairs with commas between
    #[arg(long, env = "EXTRA_TAGS", default_value = "", value_parser = pairs)]
    pub extra_tags: Pairs,
}

/// Names in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

/// Names and what they stand for, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(pub BTreeMap<String, String>);

impl Args {
    /// What is sent and where to; `None` when nothing is. `variable` looks into the environment: the mogrifiers' names
    /// are part of their variables' names.
    ///
    /// # Errors
    /// Each variable of a mogrifier that is missing, or cannot be used.
    pub fn options(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Options>, Vec<MogrifierError>> {
        let named = self.statsd_host.is_some() || self.statsd_port.is_some();
        let plain = self.use_statsd.unwrap_or(named && !self.use_dog_statsd);
        if self.disable_stats || !(plain || self.use_dog_statsd) {
            return Ok(None);
        }
        Ok(Some(Options {
            host: self
                .statsd_host
                .clone()
                .unwrap_or_else(|| "localhost".to_owned()),
            port: self.statsd_port.unwrap_or(8125),
            protocol: if self.use_dog_statsd {
                Protocol::Udp
            } else {
                self.statsd_protocol
            },
            interval: self.stats_flush_interval,
            tags: self.extra_tags.0.clone().into_iter().collect(),
            dog: if self.use_dog_statsd {
                Some(Mogrifiers::new(
                    &self.use_dog_statsd_mogrifiers.0,
                    variable,
                )?)
            } else {
                None
            },
        }))
    }
}

fn protocol(text: &str) -> Result<Protocol, Malformed> {
    match text.to_ascii_lowercase().as_str() {
        "tcp" => Ok(Protocol::Tcp),
        "udp" => Ok(Protocol::Udp),
        _ => Err(Malformed::new("expected tcp or udp")),
    }
}

fn interval(text: &str) -> Result<Duration, Malformed> {
    go_values::duration(text)
        .ok()
        .filter(|interval| *interval >= SHORTEST)
        .ok_or_else(|| Malformed::new("expected a duration of 20ms or more, such as 10s"))
}

fn names(text: &str) -> Result<Names, Malformed> {
    Ok(Names(
        text.split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
    ))
}

pub(super) fn pairs(text: &str) -> Result<Pairs, Malformed> {
    text.split(',')
        .filter(|pair| !pair.trim().is_empty())
        .map(|pair| match pair.split_once(':') {
            Some((name, value)) if !name.trim().is_empty() => {
                Ok((name.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(Malformed::new(
                "expected name:text pairs with commas between, such as env:prod,team:edge",
            )),
        })
        .collect::<Result<_, _>>()
        .map(Pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: Args) -> Option<Options> {
        args.options(|_| None).expect("no mogrifiers")
    }

    fn args() -> Args {
        Args {
            stats_flush_interval: Duration::from_secs(10),
            ..Args::default()
        }
    }

    #[test]
    fn nothing_is_sent_to_a_receiver_nobody_named() {
        assert_eq!(options(args()), None);
        let named = Args {
            statsd_host: Some("statsd".to_owned()),
            ..args()
        };
        let sent = options(named.clone()).expect("a receiver is named");
        assert_eq!((sent.host.as_str(), sent.port), ("statsd", 8125));
        assert_eq!(sent.protocol, Protocol::Tcp);
        let off = Args {
            use_statsd: Some(false),
            ..named.clone()
        };
        assert_eq!(options(off), None);
        let asked = Args {
            use_statsd: Some(true),
            ..args()
        };
        assert_eq!(options(asked).map(|sent| sent.port), Some(8125));
        let disabled = Args {
            disable_stats: true,
            use_dog_statsd: true,
            ..named.clone()
        };
        assert_eq!(options(disabled), None);
        let dog = Args {
            use_dog_statsd: true,
            ..named
        };
        let dog = options(dog).expect("a receiver is named");
        assert!(dog.dog.is_some() && dog.protocol == Protocol::Udp);
    }

    #[test]
    fn values_are_the_references() {
        assert!(interval("20ms").is_ok() && interval("19ms").is_err());
        assert_eq!(protocol("UDP"), Ok(Protocol::Udp));
        let tags = pairs("b:2,a:1").expect("two pairs");
        assert_eq!(tags.0.into_keys().collect::<Vec<_>>(), ["a", "b"]);
        assert!(pairs("a").is_err());
    }
}
