//! What a caller asks, with the wire's defaults already resolved. Knows no wire, no rule and no store.

use crate::unit::Unit;

/// One call: may these descriptors of this domain go through?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The rule set to look in. Never empty.
    pub domain: String,
    /// At least one.
    pub descriptors: Vec<Descriptor>,
}

/// An ordered list of entries that is looked up in the rules level by level, and the hits to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// In order; the first is the rules' outermost level.
    pub entries: Vec<Entry>,
    /// Hits to take: positive takes, 0 looks without counting (peek), negative gives back.
    /// Its size is at most [`crate::algorithm::MAX`].
    pub hits: i64,
    /// A limit the caller brings, which takes the place of the configured one.
    pub limit: Option<Override>,
}

impl Descriptor {
    /// The descriptor that `text` writes as `key=value,key=value`; `None` when a key is empty. A key without `=` has
    /// the empty value. A backslash makes the comma or backslash after it part of the text.
    pub fn parse(text: &str, hits: i64) -> Option<Self> {
        let mut written = vec![String::new()];
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let literal = match character {
                ',' => {
                    written.push(String::new());
                    continue;
                }
                '\\' => characters.next().unwrap_or('\\'),
                other => other,
            };
            written.last_mut()?.push(literal);
        }
        let entries: Vec<Entry> = written
            .iter()
            .map(|entry| {
                let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
                Entry {
                    key: key.to_owned(),
                    value: value.to_owned(),
                }
            })
            .collect();
        entries
            .iter()
            .all(|entry| !entry.key.is_empty())
            .then_some(Self {
                entries,
                hits,
                limit: None,
            })
    }
}

/// One key and its value. The value may be empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Name of the property, such as `remote_address`.
    pub key: String,
    /// The property's value in this call.
    pub value: String,
}

/// A limit that comes with the request. It is always a fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// Hits allowed in one unit; 0 refuses everything.
    pub requests_per_unit: u32,
    /// The window.
    pub unit: Unit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_written_as_pairs() {
        let pairs = |text: &str| {
            let parsed = Descriptor::parse(text, 1)?;
            let entries = parsed.entries.into_iter();
            Some(
                entries
                    .map(|entry| (entry.key, entry.value))
                    .collect::<Vec<_>>(),
            )
        };
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let two = vec![pair("route", "draw"), pair("user", "a=b")];
        assert_eq!(pairs("route=draw,user=a=b"), Some(two));
        assert_eq!(pairs("ip=a\\,b\\\\"), Some(vec![pair("ip", "a,b\\")]));
        assert_eq!(pairs("ip"), Some(vec![pair("ip", "")]));
        for nonsense in ["", "=x", "a=b,", ",a=b"] {
            assert_eq!(pairs(nonsense), None, "{nonsense}");
        }
    }
}
