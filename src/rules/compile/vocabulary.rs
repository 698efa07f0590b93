//! The words of a rule file and where each belongs.

use std::borrow::Cow;

use crate::rules::{
    file::{At, Node, Pair, Value},
    report::Report,
    scalar::Meaning,
};

/// What a mapping describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Domain,
    Descriptor,
    RateLimit,
    Replaces,
}

impl Level {
    fn what(self) -> &'static str {
        match self {
            Self::Domain => "the top of a file",
            Self::Descriptor => "a descriptor",
            Self::RateLimit => "a rate_limit",
            Self::Replaces => "an entry of replaces",
        }
    }

    fn whereabouts(self) -> String {
        let preposition = if self == Self::Domain { "at" } else { "in" };
        format!("{preposition} {}", self.what())
    }
}

/// Whose word it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Known to envoyproxy/ratelimit, which ignores it in the wrong place.
    Reference,
    /// Ours. Files that have it were written for us, so in the wrong place it is a mistake.
    Palang,
}

struct Word {
    name: &'static str,
    levels: &'static [Level],
    origin: Origin,
}

const fn word(name: &'static str, levels: &'static [Level]) -> Word {
    Word {
        name,
        levels,
        origin: Origin::Reference,
    }
}

const fn ours(name: &'static str, levels: &'static [Level]) -> Word {
    Word {
        name,
        levels,
        origin: Origin::Palang,
    }
}

const WORDS: [Word; 23] = [
    word("domain", &[Level::Domain]),
    word("descriptors", &[Level::Domain, Level::Descriptor]),
    ours("all_or_nothing", &[Level::Domain]),
    word("key", &[Level::Descriptor]),
    word("value", &[Level::Descriptor]),
    word("rate_limit", &[Level::Descriptor]),
    word("shadow_mode", &[Level::Descriptor]),
    word("quota_mode", &[Level::Descriptor]),
    word("detailed_metric", &[Level::Descriptor]),
    word("value_to_metric", &[Level::Descriptor]),
    word("share_threshold", &[Level::Descriptor]),
    word("metadata", &[Level::Descriptor]),
    word("unit", &[Level::RateLimit]),
    word("requests_per_unit", &[Level::RateLimit]),
    word("unlimited", &[Level::RateLimit]),
    word("name", &[Level::RateLimit, Level::Replaces]),
    word("replaces", &[Level::RateLimit]),
    ours("algorithm", &[Level::RateLimit]),
    ours("burst", &[Level::RateLimit]),
    ours("max_delay", &[Level::RateLimit]),
    ours("window", &[Level::RateLimit]),
    ours("cost", &[Level::RateLimit]),
    ours("on_store_failure", &[Level::RateLimit]),
];

/// Whether a key may stand in a mapping of that level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Here,
    /// The reference reads on without a word.
    Ignored,
    /// A word of ours where it means nothing.
    Misplaced,
    Unknown,
}

pub(super) fn fit(name: &str, level: Level) -> Fit {
    match WORDS.iter().find(|word| word.name == name) {
        None => Fit::Unknown,
        Some(word) if word.levels.contains(&level) => Fit::Here,
        Some(word) if word.origin == Origin::Reference => Fit::Ignored,
        Some(_) => Fit::Misplaced,
    }
}

/// Where a known word belongs, in words: `in a rate_limit`.
pub(super) fn home(name: &str) -> String {
    let levels = WORDS
        .iter()
        .filter(|word| word.name == name)
        .flat_map(|word| word.levels);
    levels
        .map(|level| level.whereabouts())
        .collect::<Vec<_>>()
        .join(" or ")
}

/// The known name that a misspelt one is closest to, if it is close at all.
pub(super) fn nearest<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |name: &str| name.to_lowercase().replace(['-', ' '], "_");
    let name = plain(name);
    let allowed = (name.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(&name, &plain(known)), known))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Finds every key that is not text or not known, and every list of something else than mappings. Goes where the
/// reference goes: also below keys that are ignored, and not into `metadata`. `rule` is the path so far.
pub(super) fn sweep(node: &Node, level: Level, rule: &str, report: &mut Report) {
    match &node.value {
        Value::Scalar(_) => {}
        Value::List(items) => {
            for item in items {
                if item.as_map().is_some() {
                    sweep(item, level, rule, report);
                } else {
                    report.mistake(
                        item.at,
                        rule,
                        format!(
                            "config error, yaml file contains list of type other than map: {}: write {}",
                            shown(item),
                            if level == Level::Replaces { "`- name: ...`" } else { "`- key: ...`" }
                        ),
                    );
                }
            }
        }
        Value::Map(pairs) => {
            let rule = path(pairs, level, rule);
            for pair in pairs {
                if let Some(name) = key_text(pair) {
                    let fit = fit(name, level);
                    if fit == Fit::Unknown {
                        unknown(name, pair.key.at, level, &rule, report);
                    }
                    // Where no list belongs, the list is the mistake and not what is in it.
                    let is_list = matches!(pair.value.value, Value::List(_));
                    let stray =
                        is_list && fit == Fit::Here && !["descriptors", "replaces"].contains(&name);
                    if name != "metadata" && !stray {
                        sweep(&pair.value, below(name, level), &rule, report);
                    }
                } else {
                    report.mistake(
                        pair.key.at,
                        &rule,
                        format!(
                            "config error, key is not of type string: {}: put it in quotes if it is meant",
                            shown(&pair.key)
                        ),
                    );
                }
            }
        }
    }
}

/// The path of the rule that a mapping is about, as far as it can be read.
pub(super) fn path<'r>(pairs: &[Pair], level: Level, parent: &'r str) -> Cow<'r, str> {
    let text = |name: &str| {
        pairs
            .iter()
            .rev()
            .find(|pair| key_text(pair) == Some(name))
            .and_then(|pair| pair.value.as_scalar())
            .filter(|scalar| !scalar.is_null())
            .map_or("", |scalar| &*scalar.text)
    };
    match level {
        Level::Domain => text("domain").to_owned().into(),
        Level::Descriptor => match text("value") {
            "" => format!("{parent}.{}", text("key")).into(),
            value => format!("{parent}.{}_{value}", text("key")).into(),
        },
        Level::RateLimit | Level::Replaces => parent.into(),
    }
}

/// The key, when it is text.
pub(super) fn key_text(pair: &Pair) -> Option<&str> {
    let key = pair.key.as_scalar()?;
    (key.meaning() == Meaning::Text).then_some(&*key.text)
}

fn below(name: &str, level: Level) -> Level {
    match name {
        "descriptors" => Level::Descriptor,
        "rate_limit" => Level::RateLimit,
        "replaces" => Level::Replaces,
        _ => level,
    }
}

fn unknown(name: &str, at: At, level: Level, rule: &str, report: &mut Report) {
    let here = || {
        WORDS
            .iter()
            .filter(|word| word.levels.contains(&level))
            .map(|word| word.name)
    };
    let hint = match nearest(name, here()).or_else(|| nearest(name, WORDS.map(|word| word.name))) {
        Some(known) => format!("did you mean '{known}'?"),
        None => format!(
            "{} takes {}",
            level.what(),
            here().collect::<Vec<_>>().join(", ")
        ),
    };
    report.mistake(
        at,
        rule,
        format!("config error, unknown key '{}': {hint}", shortened(name)),
    );
}

/// The node in a few characters, for messages.
pub(super) fn shown(node: &Node) -> String {
    match &node.value {
        Value::Scalar(scalar) if scalar.is_null() => "null".to_owned(),
        Value::Scalar(scalar) => shortened(&scalar.text),
        Value::List(_) => "a list".to_owned(),
        Value::Map(_) => "a map".to_owned(),
    }
}

/// Long text cut short.
pub(super) fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(60).collect();
    if text.chars().nth(60).is_some() {
        shown.push_str("...");
    }
    shown
}
