//! What rules and stores share: a counter's key, its numbers, and the hits of one descriptor.
//!
//! A store never sees a rule and a rule never sees a store; this is the hatch between them.

mod selection;

use std::fmt;

use sha2::{Digest as _, Sha256};

pub use selection::{Selection, Under};

use crate::algorithm::Quota;

/// One counter of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Which counter.
    pub key: CounterKey,
    /// The limit's numbers. Not part of the key, so that what was taken survives a raise or a cut.
    pub quota: Quota,
    /// Positive takes, 0 looks, negative gives back. Weights are already multiplied in.
    pub hits: i64,
    /// What a refusal of this counter means for the others of its request.
    pub role: Role,
    /// What is answered in its place when the store cannot decide it.
    pub on_failure: OnFailure,
}

/// What is answered for a counter that its store could not decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OnFailure {
    /// Nothing: the call fails, and the caller's own failure mode decides.
    #[default]
    Error,
    /// It goes through, uncounted.
    Allow,
    /// It is refused, uncounted.
    Deny,
    /// It is counted in this process, against this replica's share of the limit.
    Local,
}

impl OnFailure {
    /// Every policy.
    pub const ALL: [Self; 4] = [Self::Error, Self::Allow, Self::Deny, Self::Local];

    /// Its name in rules, settings, labels and metadata.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Local => "local",
        }
    }

    /// The policy of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// How the counters of one request hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomicity {
    /// Each counter on its own. A fixed window counts refused hits too, as envoyproxy/ratelimit does.
    PerCounter,
    /// All counters are charged or none (see [`Role`] for who can hold the others back).
    /// Refused hits are counted nowhere.
    AllOrNothing,
}

/// What a refused counter does to a request that is charged all or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A refusal holds the whole request back.
    Enforced,
    /// The request is held back when all counters of this role refuse.
    Quota,
    /// Judged and charged, never holds the others back.
    Shadow,
}

/// Longest part that stands in a key as it is; a longer one is hashed.
const PLAIN: usize = 64;

/// Longest key whose entries all stand one by one.
const WHOLE: usize = 256;

/// Of a longer key, domain and entries that stand one by one take this much at most; the entries after them are hashed
/// together. What is left of [`WHOLE`] is for version, algorithm, window and that hash.
const CLEAR: usize = 180;

/// Identity of a counter, the same on every replica and in every version that shares the version byte.
///
/// Made of a version, the algorithm's letter, the window and the domain and entries, each length-prefixed:
/// `(a, b_c)` and `(a_b, c)` differ. A part that is long, or has bytes outside printable ASCII, or a brace or a
/// space, stands as its length and the first 128 bits of its SHA-256: client text can neither break out of a key
/// nor choose a cluster slot. Of a key that would be longer than 256 bytes the last entries are hashed together, so that a
/// caller with many entries costs no more memory than another. Where a rule shares one counter over all values of a pattern, the entry's value is the
/// pattern's text. The numbers of the limit are not in it, and neither is the place of a rule in its file: matching
/// gives each list of entries to exactly one rule, so the entries are the rule's identity.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterKey(Box<[u8]>);

impl CounterKey {
    /// The key of the counter that `quota`'s algorithm keeps over `window` microseconds for these entries.
    pub fn new<'a>(
        domain: &str,
        algorithm: u8,
        window: u64,
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let mut key = Vec::with_capacity(64);
        key.extend_from_slice(&[b'1', algorithm]);
        push_number(&mut key, window);
        let head = key.len();
        push_part(&mut key, b'|', domain);
        // Behind the last entry that stands by itself in any case.
        let mut clear = key.len();
        for (name, value) in entries {
            push_part(&mut key, b'|', name);
            push_part(&mut key, b'=', value);
            if key.len() - head <= CLEAR {
                clear = key.len();
            }
        }
        if key.len() > WHOLE {
            let entries = key.split_off(clear);
            key.push(b'|');
            push_hash(&mut key, &entries);
        }
        Self(key.into_boxed_slice())
    }

    /// The length of the limit's window, microseconds.
    pub fn window(&self) -> u64 {
        number(&self.0[2..]).0
    }

    /// The value of the first entry of that name, and the domain, as they stand in the key: each with its length, a
    /// long or odd one hashed.
    pub fn entry(&self, name: &str) -> Option<(&[u8], &[u8])> {
        let mut wanted = Vec::new();
        push_part(&mut wanted, b'|', name);
        let (_, mut rest) = number(&self.0[2..]);
        let mut domain = None;
        let mut found = false;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(part_len(rest));
            if found && part[0] == b'=' {
                return Some((domain?, &part[1..]));
            }
            found = domain.is_some() && part == wanted;
            domain = domain.or(Some(part));
            rest = after;
        }
        None
    }

    /// The key's bytes: printable ASCII without spaces and braces.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for CounterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

fn push_part(key: &mut Vec<u8>, separator: u8, part: &str) {
    key.push(separator);
    let plain = part.len() <= PLAIN
        && part
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'{' && byte != b'}');
    if plain {
        push_number(key, part.len() as u64);
        key.push(b':');
        key.extend_from_slice(part.as_bytes());
    } else {
        push_hash(key, part.as_bytes());
    }
}

/// The length and the hash of what is too long, or not fit, to stand as it is.
fn push_hash(key: &mut Vec<u8>, bytes: &[u8]) {
    push_number(key, bytes.len() as u64);
    key.push(b'#');
    for byte in &Sha256::digest(bytes)[..16] {
        key.extend_from_slice(&[hex(byte >> 4), hex(byte & 15)]);
    }
}

fn push_number(key: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    key.extend_from_slice(&digits[at..]);
}

/// The number at the start of `text`, and what follows it.
fn number(text: &[u8]) -> (u64, &[u8]) {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    let number = digits.iter().fold(0u64, |number, digit| {
        number
            .wrapping_mul(10)
            .wrapping_add(u64::from(digit - b'0'))
    });
    (number, rest)
}

/// Bytes of the part that `text` begins with: separator, length, mark, text or hash.
fn part_len(text: &[u8]) -> usize {
    let (length, rest) = number(&text[1..]);
    let head = text.len() - rest.len() + 1;
    let body = match rest.first() {
        Some(b'#') => 32,
        _ => usize::try_from(length).unwrap_or(usize::MAX),
    };
    head.saturating_add(body).min(text.len())
}

const fn hex(nibble: u8) -> u8 {
    if nibble < 10 {
        b'0' + nibble
    } else {
        b'a' + nibble - 10
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn key(domain: &str, entries: &[(&str, &str)]) -> CounterKey {
        CounterKey::new(domain, b'f', 60_000_000, entries.iter().copied())
    }

    #[test]
    fn a_key_is_short_readable_text() {
        assert_eq!(
            format!("{:?}", key("mongo", &[("database", "users"), ("ip", "")])),
            "1f60000000|5:mongo|8:database=5:users|2:ip=0:"
        );
    }

    #[test]
    fn a_key_tells_its_window_and_its_entries() {
        let long = "x".repeat(100);
        let odd = key(
            "d|1:a=1:b",
            &[
                ("path", "|6:tenant=1:a"),
                (&long, "{}"),
                ("tenant", "t"),
                ("tenant", "u"),
            ],
        );
        assert_eq!(odd.window(), 60_000_000);
        assert_eq!(
            odd.entry("tenant"),
            Some((&b"|9:d|1:a=1:b"[..], &b"1:t"[..]))
        );
        assert_eq!(
            odd.entry("path").map(|(_, value)| value),
            Some(&b"13:|6:tenant=1:a"[..])
        );
        assert_eq!(odd.entry(&long).map(|(_, value)| value.len()), Some(34));
        for absent in ["d", "t", "", "a", "d|1:a=1:b"] {
            assert_eq!(odd.entry(absent), None, "{absent}");
        }
        assert_eq!(key("tenant", &[]).entry("tenant"), None);
    }

    #[test]
    fn separators_in_client_text_never_join_counters() {
        let mut seen = HashSet::new();
        for separator in ["_", ":", "|", ".", "/", ",", "\n", "\0", "=", "#", "1:"] {
            let joined = |left: &str, right: &str| format!("{left}{separator}{right}");
            for entries in [
                vec![("a".to_owned(), joined("b", "c"))],
                vec![(joined("a", "b"), "c".to_owned())],
                vec![("a".to_owned(), joined("b", &joined("c", "d")))],
            ] {
                let entries: Vec<_> = entries
                    .iter()
                    .map(|(key, value)| (key.as_str(), value.as_str()))
                    .collect();
                assert!(seen.insert(key("d", &entries)), "{entries:?}");
            }
        }
        assert!(seen.insert(key("d", &[("a", "b"), ("c", "d")])));
        assert!(seen.insert(key("x_a", &[("b", "c")])));
        assert!(seen.insert(key("x", &[("a", "b_c")])));
    }

    #[test]
    fn many_entries_make_no_long_key() {
        let value = "x".repeat(60);
        let mut seen = HashSet::new();
        for count in 1..32 {
            let entries: Vec<_> = (0..count).map(|_| ("name", value.as_str())).collect();
            let key = key("d", &entries);
            assert!(key.as_bytes().len() <= WHOLE, "{key:?}");
            assert!(seen.insert(key));
        }
        let domain = "d".repeat(64);
        let longest = CounterKey::new(&domain, b'f', u64::MAX, [("n", &*value); 32]);
        assert!(longest.as_bytes().len() <= WHOLE, "{longest:?}");
        assert!(longest.entry("n").is_some(), "the first ones are legible");
    }

    #[test]
    fn text_that_is_long_or_not_printable_is_hashed() {
        for value in [
            "a b",
            "a\r\nSET x 1\r\n",
            "\0",
            "{a}",
            "日本語",
            "e\u{301}",
            "é",
        ] {
            let key = key("d", &[("k", value)]);
            assert!(
                key.as_bytes()
                    .iter()
                    .all(|byte| byte.is_ascii_graphic() && !b"{}".contains(byte)),
                "{key:?}"
            );
        }
        let long = "x".repeat(1 << 20);
        let longer = "x".repeat((1 << 20) + 1);
        assert!(key("d", &[("k", &long)]).as_bytes().len() < 80);
        assert_ne!(key("d", &[("k", &long)]), key("d", &[("k", &longer)]));
    }
}
