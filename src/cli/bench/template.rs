//! What a call asks: descriptors with a place for the key.

use super::keys::Keys;
use crate::{
    go_values::Malformed,
    proto::envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::ratelimit::v3::RateLimitRequest,
    },
};

/// Stands for the key in a value.
const KEY: char = '%';

/// The calls of a run.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pub(super) domain: String,
    pub(super) descriptors: Vec<DescriptorTemplate>,
    pub(super) hits: Option<u64>,
    /// In front of the key's number.
    pub(super) prefix: String,
    pub(super) keys: Keys,
}

/// One descriptor, such as `route=draw,user=%`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DescriptorTemplate(Vec<(String, String)>);

impl DescriptorTemplate {
    /// Reads it from the command line.
    ///
    /// # Errors
    /// An entry without a key.
    pub(super) fn parse(text: &str) -> Result<Self, Malformed> {
        let entries: Vec<(String, String)> = text
            .split(',')
            .map(|entry| entry.split_once('=').unwrap_or((entry, "")))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        if entries.iter().any(|(key, _)| key.is_empty()) {
            return Err(Malformed::new(
                "expected key=value, or several separated by commas; % in a value stands for the key drawn",
            ));
        }
        Ok(Self(entries))
    }

    fn has_key(&self) -> bool {
        self.0.iter().any(|(_, value)| value.contains(KEY))
    }

    fn descriptor(&self, key: &str, hits: Option<u64>) -> RateLimitDescriptor {
        let entries = self.0.iter().map(|(name, value)| Entry {
            key: name.clone(),
            value: value.replace(KEY, key),
        });
        RateLimitDescriptor {
            entries: entries.collect(),
            hits_addend: hits,
            ..RateLimitDescriptor::default()
        }
    }
}

impl Template {
    /// A call, and the key of each of its descriptors, each drawn by itself.
    pub(super) fn draw(&self, random: &mut fastrand::Rng) -> (RateLimitRequest, Vec<usize>) {
        let mut drawn = Vec::with_capacity(self.descriptors.len());
        let descriptors = self.descriptors.iter().map(|template| {
            let key = if template.has_key() {
                self.keys.draw(random)
            } else {
                0
            };
            drawn.push(key);
            template.descriptor(&format!("{}{key}", self.prefix), self.hits)
        });
        let request = RateLimitRequest {
            domain: self.domain.clone(),
            descriptors: descriptors.collect(),
            hits_addend: 0,
        };
        (request, drawn)
    }

    /// Where the counters of each descriptor start in one row of all counters: those of equal descriptors are the same.
    pub(super) fn rows(&self) -> Vec<usize> {
        self.descriptors
            .iter()
            .map(|template| {
                let first = self.descriptors.iter().position(|other| other == template);
                first.unwrap_or(0) * self.keys.count()
            })
            .collect()
    }

    /// The descriptor at `place` with `key` in it, as it is written on the command line.
    pub(super) fn shown(&self, place: usize, key: usize) -> String {
        let Some(DescriptorTemplate(entries)) = self.descriptors.get(place) else {
            return String::new();
        };
        let key = format!("{}{key}", self.prefix);
        let entries: Vec<String> = entries
            .iter()
            .map(|(name, value)| format!("{name}={}", value.replace(KEY, &key)))
            .collect();
        entries.join(",")
    }

    /// Hits of one descriptor of one call.
    pub(super) fn hits(&self) -> u64 {
        self.hits.unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::bench::Distribution;

    #[test]
    fn each_descriptor_draws_its_own_key() {
        let descriptors = ["route=draw,user=%", "ip=%", "all"].map(DescriptorTemplate::parse);
        let template = Template {
            domain: "d".to_owned(),
            descriptors: descriptors
                .into_iter()
                .collect::<Result<_, _>>()
                .expect("good"),
            hits: Some(2),
            prefix: "k".to_owned(),
            keys: Keys::new(1_000, Distribution::Uniform, 1.0),
        };
        let (request, drawn) = template.draw(&mut fastrand::Rng::with_seed(1));
        let entry = |descriptor: usize, entry: usize| {
            let entry = &request.descriptors[descriptor].entries[entry];
            format!("{}={}", entry.key, entry.value)
        };
        assert_eq!(entry(0, 0), "route=draw");
        assert_eq!(entry(0, 1), format!("user=k{}", drawn[0]));
        assert_eq!(entry(1, 0), format!("ip=k{}", drawn[1]));
        assert_eq!(entry(2, 0), "all=");
        assert_ne!(drawn[0], drawn[1]);
        assert_eq!(drawn[2], 0);
        assert_eq!(template.rows(), [0, 1_000, 2_000]);
        assert_eq!(template.shown(0, 7), "route=draw,user=k7");
    }
}
