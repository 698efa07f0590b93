//! What is wrong with the rules, and where.

use std::fmt;

use super::{file::At, limit::Place};

/// Something in the rules that is wrong, or that does not do what it seems to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// Where it is written.
    pub place: Place,
    /// Path of the rule, such as `mongo.database_users`; empty outside of one.
    pub rule: Box<str>,
    /// What was found, and what is allowed.
    pub message: Box<str>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Labelled(self, "").fmt(f)
    }
}

impl Mistake {
    /// As one line, `file:line:column: <label>: what (rule path)`.
    pub fn labelled<'m>(&'m self, label: &'m str) -> impl fmt::Display + 'm {
        Labelled(self, label)
    }
}

struct Labelled<'m>(&'m Mistake, &'m str);

impl fmt::Display for Labelled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(mistake, label) = self;
        write!(f, "{}: ", mistake.place)?;
        if !label.is_empty() {
            write!(f, "{label}: ")?;
        }
        f.write_str(&mistake.message)?;
        if !mistake.rule.is_empty() {
            write!(f, " (rule {})", mistake.rule)?;
        }
        Ok(())
    }
}

/// The rules cannot be used: every mistake in all of the files, in order of their place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct CompileError {
    /// Never empty.
    pub mistakes: Vec<Mistake>,
    /// What would have been said had there been no mistake.
    pub warnings: Vec<Mistake>,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.mistakes.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{mistake}")?;
        }
        Ok(())
    }
}

/// Collects mistakes and warnings while files are compiled one after the other.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The file that places are in.
    pub(super) file: Box<str>,
    pub(super) mistakes: Vec<Mistake>,
    pub(super) warnings: Vec<Mistake>,
}

impl Report {
    pub(super) fn place(&self, at: At) -> Place {
        Place {
            file: self.file.clone(),
            line: at.line,
            column: at.column,
        }
    }

    pub(super) fn mistake(&mut self, at: At, rule: &str, message: impl Into<Box<str>>) {
        let place = self.place(at);
        self.mistakes.push(Mistake {
            place,
            rule: rule.into(),
            message: message.into(),
        });
    }

    pub(super) fn warning(&mut self, at: At, rule: &str, message: impl Into<Box<str>>) {
        let place = self.place(at);
        self.warnings.push(Mistake {
            place,
            rule: rule.into(),
            message: message.into(),
        });
    }
}
