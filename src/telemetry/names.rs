//! Names of series: statsd-style text for `/stats`, escaped labels for Prometheus.

use std::fmt::{self, Write};

/// One part of a stat name as the reference cleans it: `:` and `|` become `_`, and so do the dots of an IPv4 address.
pub(super) fn sanitised(part: &str) -> String {
    let mut bytes: Vec<u8> = part
        .bytes()
        .map(|byte| {
            if matches!(byte, b':' | b'|') {
                b'_'
            } else {
                byte
            }
        })
        .collect();
    let mut at = 0;
    while at < bytes.len() {
        match ipv4(&bytes[at..]) {
            Some((length, dots)) => {
                for dot in dots {
                    bytes[at + dot] = b'_';
                }
                at += length;
            }
            None => at += 1,
        }
    }
    // Only ASCII bytes were replaced, by ASCII bytes.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Length of the `d.d.d.d` that `text` starts with, and where its dots are. Each number is one to three digits.
fn ipv4(text: &[u8]) -> Option<(usize, [usize; 3])> {
    let mut at = 0;
    let mut dots = [0; 3];
    for dot in &mut dots {
        at += digits(&text[at..])?;
        if text.get(at) != Some(&b'.') {
            return None;
        }
        *dot = at;
        at += 1;
    }
    at += digits(&text[at..])?;
    Some((at, dots))
}

/// How many of the digits that `text` starts with make a number, which has at most three.
fn digits(text: &[u8]) -> Option<usize> {
    let digits = text.iter().take(3);
    Some(digits.take_while(|byte| byte.is_ascii_digit()).count()).filter(|&digits| digits > 0)
}

/// A label's value between its quotes, for the Prometheus text format.
pub(super) struct Label<'a>(pub(super) &'a str);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_names_are_cleaned_as_the_reference_does() {
        for (part, clean) in [
            ("ip_50.0.0.5", "ip_50_0_0_5"),
            ("a:b|c", "a_b_c"),
            ("10.0.0.0/8", "10_0_0_0/8"),
            ("v1.2.3", "v1.2.3"),
            ("1.2.3.4.5", "1_2_3_4.5"),
            ("1234.5.6.7", "1234_5_6_7"),
            ("1.2.3.4567", "1_2_3_4567"),
            ("é:日.本", "é_日.本"),
            ("", ""),
        ] {
            assert_eq!(sanitised(part), clean, "{part}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(Label("a\"b\\c\nd").to_string(), "a\\\"b\\\\c\\nd");
    }
}
