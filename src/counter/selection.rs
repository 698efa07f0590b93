//! Which counters an operator means: one, or all below some entries.

use std::fmt;

use super::{CLEAR, CounterKey, push_part};

/// Counters to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// That one.
    One(CounterKey),
    /// All whose entries start with these.
    Under(Under),
}

/// The counters of a domain whose entries start with given ones, whatever their algorithm and window.
#[derive(Clone, PartialEq, Eq)]
pub struct Under(Box<[u8]>);

impl fmt::Debug for Under {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

impl Under {
    /// The counters of `domain` whose entries start with `entries`; without entries all counters of the domain.
    /// `None` when there is so much text that keys may not have it legible: which keys are meant cannot be told then.
    pub fn new<'a>(
        domain: &str,
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Option<Self> {
        let mut tail = Vec::with_capacity(64);
        push_part(&mut tail, b'|', domain);
        for (name, value) in entries {
            push_part(&mut tail, b'|', name);
            push_part(&mut tail, b'=', value);
        }
        (tail.len() <= CLEAR).then(|| Self(tail.into_boxed_slice()))
    }

    /// Whether the key with these bytes is one of them.
    pub fn matches(&self, key: &[u8]) -> bool {
        let Some([b'1', letter, rest @ ..]) = key.get(..) else {
            return false;
        };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let Some(rest) = rest[digits..].strip_prefix(&*self.0) else {
            return false;
        };
        letter.is_ascii_alphabetic() && digits > 0 && matches!(rest.first(), None | Some(b'|'))
    }

    /// What such a key holds after its algorithm and window. Other keys may hold it too: [`Under::matches`] decides.
    pub fn text(&self) -> &[u8] {
        &self.0
    }
}

impl Selection {
    /// Whether the key with these bytes is selected.
    pub fn matches(&self, key: &CounterKey) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Under(under) => under.matches(key.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(domain: &str, entries: &[(&str, &str)]) -> CounterKey {
        CounterKey::new(domain, b't', 60_000_000, entries.iter().copied())
    }

    #[test]
    fn a_prefix_is_whole_entries_of_one_domain() {
        let under = |domain, entries: &[(&'static str, &'static str)]| {
            Selection::Under(Under::new(domain, entries.iter().copied()).expect("short"))
        };
        let domain = under("d", &[]);
        let under = under("d", &[("user", "7")]);
        let long = "x".repeat(100);
        for (key, selected) in [
            (key("d", &[("user", "7")]), true),
            (key("d", &[("user", "7"), ("route", &long)]), true),
            (key("d", &[("user", "70")]), false),
            (key("d", &[("user", "")]), false),
            (key("dd", &[("user", "7")]), false),
            (key("d", &[("route", "a"), ("user", "7")]), false),
            // Text of a client that looks like the end of a key.
            (key("e", &[("k", "|1:d|4:user=1:7")]), false),
            (key("60|1:d|4:user=1:7", &[]), false),
        ] {
            assert_eq!(under.matches(&key), selected, "{key:?}");
        }
        assert!(domain.matches(&key("d", &[("user", "")])));
        assert!(!domain.matches(&key("dd", &[("user", "")])));
        let one = Selection::One(key("d", &[("user", "7")]));
        assert!(!one.matches(&key("d", &[("user", "7"), ("route", "")])));
    }

    #[test]
    fn a_prefix_finds_keys_however_much_follows_it() {
        let long = "x".repeat(64);
        let entries: Vec<(&str, &str)> = std::iter::repeat_n(("k", long.as_str()), 32).collect();
        for count in 0..=32 {
            let Some(under) = Under::new("d", entries[..count].iter().copied()) else {
                assert_eq!(count, 3, "told where it cannot be known");
                break;
            };
            for more in count..=32 {
                assert!(
                    under.matches(key("d", &entries[..more]).as_bytes()),
                    "{count}, {more}"
                );
            }
        }
    }
}
