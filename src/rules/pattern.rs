//! `*` in a rule's key or value.

/// Text in which each `*` stands for any bytes, also none. There is no other special character and no escape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
}

impl Pattern {
    /// The pattern, or `None` when the text has no `*`.
    pub fn new(text: &str) -> Option<Self> {
        text.contains('*').then(|| Self { text: text.into() })
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole of `text` fits. The part before the first `*` and the part after the last one do not
    /// overlap: `aba*aba` does not match `aba`.
    pub fn matches(&self, text: &str) -> bool {
        // The constructor holds that there is a star, hence a first and a last piece.
        let Some((head, rest)) = self.text.split_once('*') else {
            return *self.text == *text;
        };
        let Some(text) = text.strip_prefix(head) else {
            return false;
        };
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        let Some(mut text) = text.strip_suffix(tail) else {
            return false;
        };
        // Leftmost first: taking the earliest place for each piece leaves the most room for the next.
        for piece in middle.split('*') {
            match text.find(piece) {
                Some(at) => text = &text[at + piece.len()..],
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, yes, no) in [
            ("*", vec!["", "a", "日本"], vec![]),
            ("bar*b", vec!["barab", "barb"], vec!["bara", "xbarb", "bar"]),
            (
                "foo*bar*baz",
                vec!["foo1bar2baz", "foobarbaz"],
                vec!["foo1baz", "bar1baz", "foobazbar"],
            ),
            ("aba*aba", vec!["abaaba"], vec!["aba", "ababa"]),
            ("a**z", vec!["az", "a-mid-z"], vec!["a", "z"]),
            ("?*", vec!["?", "?x"], vec!["a", "ax"]),
            ("*a*a*", vec!["aa", "xaxax"], vec!["a"]),
        ] {
            let compiled = Pattern::new(pattern).expect("has a star");
            for text in yes {
                assert!(compiled.matches(text), "{pattern} {text}");
            }
            for text in no {
                assert!(!compiled.matches(text), "{pattern} {text}");
            }
        }
        assert_eq!(Pattern::new("plain"), None);
    }
}
