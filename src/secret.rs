//! Text that is not to be seen.

use std::fmt;

/// Text that must not appear in a log, an error or a dump: a password, or an address that may hold one.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether nothing was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() {
            "Secret(none)"
        } else {
            "Secret(set)"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn a_secret_does_not_show() {
        let secret = Secret::from("redis://user:hunter2@host");
        assert_eq!(format!("{secret:?}"), "Secret(set)");
        assert_eq!(secret.expose(), "redis://user:hunter2@host");
    }
}
