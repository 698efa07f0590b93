//! Text of requests as operators see it: on one line, without control characters, and short.

use std::fmt::Write as _;

use crate::request::Entry;

/// Longest text, bytes.
const LONGEST: usize = 128;

/// Appends the entries as `key=value,key=value`. Text that is too long is cut, and ends in `...`.
pub(super) fn entries(text: &mut String, entries: &[Entry]) {
    for (place, entry) in entries.iter().enumerate() {
        if place > 0 {
            text.push(',');
        }
        for (part, after) in [(&entry.key, "="), (&entry.value, "")] {
            // Most text is like that, and this is on the way of decisions.
            let is_plain = part.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            if is_plain && text.len() + part.len() <= LONGEST {
                text.push_str(part);
                text.push_str(after);
                continue;
            }
            for character in part.chars() {
                if text.len() >= LONGEST {
                    text.push_str("...");
                    return;
                }
                if character.is_control() {
                    // A String takes every write.
                    let _ = write!(text, "{}", character.escape_default());
                } else {
                    text.push(character);
                }
            }
            text.push_str(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_cut() {
        let entry = |key: &str, value: &str| Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        let mut text = String::new();
        entries(&mut text, &[entry("a", "x\ny\u{1b}[31m"), entry("b", "")]);
        assert_eq!(text, "a=x\\ny\\u{1b}[31m,b=");
        let mut text = String::new();
        entries(&mut text, &vec![entry("user", &"é".repeat(1_000)); 100]);
        assert!(text.len() <= LONGEST + 4 && text.ends_with("..."), "{text}");
    }
}
