//! What is wrong with the rules, and where.

use std::fmt;

use super::{file::At, limit::Place};

/// Something in the rules that is wrong, or that does not do what it seems to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// Where it is written.
    pub place: Place,
    /// How many mistakes this stands for that are not told; 0 for one that is told, and comes first.
    pub untold: usize,
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

    /// How many there are, with those that are not told.
    pub fn count(list: &[Self]) -> usize {
        list.iter().map(|mistake| mistake.untold.max(1)).sum()
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
            // The path has text of the file in it, line breaks as well.
            write!(f, " (rule {})", mistake.rule.escape_debug())?;
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

/// Most mistakes, and most warnings, that are told one by one: who generates rules may make the same mistake in all of
/// them.
const MAX_TOLD: usize = 1_000;

/// Collects mistakes and warnings while files are compiled one after the other.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// The file that places are in.
    pub(super) file: Box<str>,
    pub(super) mistakes: Tally,
    pub(super) warnings: Tally,
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
        self.mistakes.add(place, rule, message);
    }

    pub(super) fn warning(&mut self, at: At, rule: &str, message: impl Into<Box<str>>) {
        let place = self.place(at);
        self.warnings.add(place, rule, message);
    }
}

/// A bounded list that counts what it leaves out.
#[derive(Debug, Default)]
pub(super) struct Tally {
    told: Vec<Mistake>,
    untold: usize,
}

impl Tally {
    pub(super) fn add(&mut self, place: Place, rule: &str, message: impl Into<Box<str>>) {
        if self.told.len() < MAX_TOLD {
            self.told.push(Mistake {
                place,
                rule: rule.into(),
                message: one_line(message.into()),
                untold: 0,
            });
        } else {
            self.untold += 1;
        }
    }

    /// Whether one more would be counted but not told.
    pub(super) fn is_full(&self) -> bool {
        self.told.len() >= MAX_TOLD
    }

    /// Both lists as one.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.told.extend(other.told);
        self.untold += other.untold;
        self
    }

    /// In order of the place, what is left out as the last.
    pub(super) fn sorted(mut self) -> Vec<Mistake> {
        self.told.sort();
        self.told.dedup();
        if self.untold > 0
            && let Some(last) = self.told.last()
        {
            self.told.push(Mistake {
                place: last.place.clone(),
                rule: "".into(),
                message: format!("and {} more", self.untold).into(),
                untold: self.untold,
            });
        }
        self.told
    }
}

/// A message quotes what is in a file, and must not break the line or steer the terminal it is shown on.
fn one_line(message: Box<str>) -> Box<str> {
    if !message.contains(char::is_control) {
        return message;
    }
    let mut line = String::with_capacity(message.len() + 8);
    for c in message.chars() {
        if c.is_control() {
            line.extend(c.escape_debug());
        } else {
            line.push(c);
        }
    }
    line.into()
}

#[cfg(test)]
mod tests {
    use super::{MAX_TOLD, Mistake, Place, Tally};

    #[test]
    fn what_is_too_much_to_tell_is_counted() {
        let mut tally = Tally::default();
        for line in 0..MAX_TOLD + 5 {
            let place = Place {
                line: u32::try_from(line).expect("few"),
                ..Place::default()
            };
            tally.add(place, "", "wrong");
        }
        let list = tally.sorted();
        assert_eq!(list.len(), MAX_TOLD + 1);
        assert_eq!(&*list[MAX_TOLD].message, "and 5 more");
        assert_eq!(Mistake::count(&list), MAX_TOLD + 5);
        assert_eq!(Mistake::count(&list[..2]), 2);
    }
}
