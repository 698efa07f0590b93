//! Mogrifiers: parts of a statistic's name become tags, as operators of DogStatsD asked the reference for.

use regex::Regex;

use super::args;

/// What a DogStatsD receiver is told a statistic is called.
pub(super) struct Mogrified {
    pub(super) name: String,
    /// `name:text`.
    pub(super) tags: Vec<String>,
}

/// Mogrifiers, in the order they are tried.
#[derive(Clone, Debug, Default)]
pub struct Mogrifiers(Vec<Mogrifier>);

#[derive(Clone, Debug)]
struct Mogrifier {
    pattern: Regex,
    name: String,
    tags: Vec<(String, String)>,
}

impl PartialEq for Mogrifiers {
    fn eq(&self, other: &Self) -> bool {
        let parts = |mogrifier: &Mogrifier| {
            (
                mogrifier.pattern.as_str().to_owned(),
                mogrifier.name.clone(),
                mogrifier.tags.clone(),
            )
        };
        self.0.iter().map(parts).eq(other.0.iter().map(parts))
    }
}

impl Eq for Mogrifiers {}

/// A mogrifier that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: {reason}")]
pub struct MogrifierError {
    /// The environment variable.
    pub variable: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Mogrifiers {
    /// Those of these names, by the variables of the environment.
    ///
    /// # Errors
    /// Each variable that is missing, or cannot be used.
    pub fn new(
        names: &[String],
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Vec<MogrifierError>> {
        let mut wrong = Vec::new();
        let mogrifiers = names
            .iter()
            .filter_map(|name| Mogrifier::new(name, &variable, &mut wrong))
            .collect();
        if wrong.is_empty() {
            Ok(Self(mogrifiers))
        } else {
            Err(wrong)
        }
    }

    /// What `name` is called by the first that fits it; itself when none does.
    pub(super) fn apply(&self, name: &str) -> Mogrified {
        for mogrifier in &self.0 {
            if let Some(groups) = mogrifier.pattern.captures(name) {
                let filled = |template: &str| filled(template, &groups);
                return Mogrified {
                    name: filled(&mogrifier.name),
                    tags: mogrifier
                        .tags
                        .iter()
                        .map(|(tag, value)| format!("{tag}:{}", clean(&filled(value))))
                        .collect(),
                };
            }
        }
        Mogrified {
            name: name.to_owned(),
            tags: Vec::new(),
        }
    }
}

impl Mogrifier {
    fn new(
        name: &str,
        variable: impl Fn(&str) -> Option<String>,
        wrong: &mut Vec<MogrifierError>,
    ) -> Option<Self> {
        let mut part = |part: &str, needed: bool| {
            let variable_name = format!("DOG_STATSD_MOGRIFIER_{name}_{part}");
            let value = variable(&variable_name).filter(|value| !value.is_empty());
            if needed && value.is_none() {
                wrong.push(MogrifierError {
                    variable: variable_name.clone(),
                    reason: format!("is not set, and USE_DOG_STATSD_MOGRIFIERS names {name}"),
                });
            }
            (variable_name, value)
        };
        let (pattern_name, pattern) = part("PATTERN", true);
        let (_, new) = part("NAME", true);
        let (tags_name, tags) = part("TAGS", false);
        let mut told = |variable, reason: String| wrong.push(MogrifierError { variable, reason });
        let pattern = pattern.and_then(|pattern| {
            Regex::new(&pattern)
                .map_err(|error| told(pattern_name, one_line(&error)))
                .ok()
        });
        let tags = args::pairs(&tags.unwrap_or_default())
            .map_err(|error| told(tags_name, error.to_string()))
            .ok();
        Some(Self {
            pattern: pattern?,
            name: new?,
            tags: tags?.0.into_iter().collect(),
        })
    }
}

/// What is wrong with a pattern, without the picture of where.
fn one_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().next_back().unwrap_or_default();
    let reason = last.strip_prefix("error: ").unwrap_or(last);
    format!("is no regular expression: {reason}")
}

/// The template with each `$N` replaced by that group. A group that fits nothing, or is none, is empty.
fn filled(template: &str, groups: &regex::Captures<'_>) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('$') {
        text.push_str(before);
        let digits = after
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(after.len());
        match after[..digits].parse::<usize>() {
            Ok(number) => text.push_str(groups.get(number).map_or("", |group| group.as_str())),
            Err(_) => text.push('$'),
        }
        rest = &after[digits..];
    }
    text + rest
}

/// A tag's text, without what would end it.
pub(super) fn clean(text: &str) -> String {
    text.replace([',', '|', '\n', '\r', '#'], "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mogrifiers(variables: &[(&str, &str)]) -> Result<Mogrifiers, Vec<MogrifierError>> {
        Mogrifiers::new(&["HITS".to_owned()], |name| {
            variables
                .iter()
                .find(|(variable, _)| *variable == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn parts_of_a_name_become_tags() {
        let mogrifiers = mogrifiers(&[
            (
                "DOG_STATSD_MOGRIFIER_HITS_PATTERN",
                r"^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.(.*)$",
            ),
            ("DOG_STATSD_MOGRIFIER_HITS_NAME", "ratelimit.$3"),
            (
                "DOG_STATSD_MOGRIFIER_HITS_TAGS",
                "domain:$1,descriptor:$2,fixed:x$9",
            ),
        ])
        .expect("all parts are there");
        let changed = mogrifiers.apply("ratelimit.service.rate_limit.shop.user.over_limit");
        assert_eq!(changed.name, "ratelimit.over_limit");
        assert_eq!(changed.tags, ["descriptor:user", "domain:shop", "fixed:x"]);
        let other = mogrifiers.apply("ratelimit.service.config_load_success");
        assert_eq!(other.name, "ratelimit.service.config_load_success");
        assert!(other.tags.is_empty());
    }

    #[test]
    fn a_mogrifier_needs_its_parts() {
        let named = |variables: &[(&str, &str)]| {
            let wrong = mogrifiers(variables).expect_err("something is missing or wrong");
            wrong
                .into_iter()
                .map(|error| error.variable)
                .collect::<Vec<_>>()
        };
        let [pattern, name, tags] =
            ["PATTERN", "NAME", "TAGS"].map(|part| format!("DOG_STATSD_MOGRIFIER_HITS_{part}"));
        assert_eq!(named(&[]), [pattern.clone(), name.clone()]);
        assert_eq!(
            named(&[(&pattern, "("), (&tags, "no pair")]),
            [name, pattern, tags]
        );
    }
}
