//! Text of requests as operators see it: on one line, without what hides or turns round its neighbours, and short.

use std::fmt::{self, Display};

use crate::request::Entry;

/// Longest text, bytes; a character more where it is escaped.
const LONGEST: usize = 128;

/// Text of an operator: nothing is hidden in it, nothing left out.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

/// Text of a request: escaped, and cut where it is long.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .chars()
            .try_for_each(|character| push(f, character).map(drop))
    }
}

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut length = 0;
        for character in self.0.chars() {
            if length >= LONGEST {
                return write!(f, "... ({} bytes)", self.0.len());
            }
            length += push(f, character)?;
        }
        Ok(())
    }
}

/// Appends the entries as `key=value,key=value`. Text that is too long is cut, and ends in `...`.
pub fn entries(text: &mut String, entries: &[Entry]) {
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
                // A String takes every write.
                let _ = push(text, character);
            }
            text.push_str(after);
        }
    }
}

/// Writes one character, and says how many bytes that took.
fn push(to: &mut impl fmt::Write, character: char) -> Result<usize, fmt::Error> {
    if !hides(character) {
        to.write_char(character)?;
        return Ok(character.len_utf8());
    }
    let escaped = character.escape_default();
    write!(to, "{escaped}")?;
    Ok(escaped.len())
}

/// Whether a character does something instead of being seen: it steers a terminal, turns the direction of the text
/// round it, or has no width.
fn hides(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: &str) -> Entry {
        Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }

    #[test]
    fn text_is_escaped_and_cut() {
        let mut text = String::new();
        entries(
            &mut text,
            &[entry("a", "x\ny\u{1b}[31m"), entry("b", "\u{202e}7\u{5d0}")],
        );
        assert_eq!(text, "a=x\\ny\\u{1b}[31m,b=\\u{202e}7\u{5d0}");
        let mut text = String::new();
        entries(&mut text, &vec![entry("user", &"é".repeat(1_000)); 100]);
        assert!(text.len() <= LONGEST + 4 && text.ends_with("..."), "{text}");
        let mut text = String::new();
        entries(&mut text, &[entry("user", &"\u{202e}".repeat(1 << 20))]);
        assert!(
            text.len() <= LONGEST + 12 && text.ends_with("..."),
            "{text}"
        );
    }

    #[test]
    fn what_operators_wrote_is_whole() {
        let long = "rule\u{200b}".repeat(100);
        let shown = Shown(&long).to_string();
        assert!(
            shown.len() <= LONGEST + 30 && shown.ends_with("... (700 bytes)"),
            "{shown}"
        );
        assert_eq!(Escaped(&long).to_string(), "rule\\u{200b}".repeat(100));
        assert_eq!(Shown("7").to_string(), "7");
    }
}
