//! A rule and its limit, compiled.

use std::fmt;

use crate::{algorithm::Quota, counter::OnFailure, request::Override, unit::Unit};

/// Index of a rule in [`super::Rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(pub(super) u32);

impl RuleId {
    /// Position in [`super::Rules::rules`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A node with a `rate_limit`, as the operator wrote it.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What it allows; `None` when it is `unlimited`.
    pub limit: Option<Limit>,
    /// Target of `replaces`, and the policy name callers see. May be empty.
    pub name: Box<str>,
    /// Names of the rules that do not apply in a request where this one matches.
    pub replaces: Box<[Box<str>]>,
    /// Judge and count, but never refuse.
    pub shadow: bool,
    /// One of several buckets: the request is refused only when all of them are empty.
    pub quota: bool,
    /// The domain and the composite keys on the way to the node, such as `mongo.database_users`.
    pub path: Box<str>,
    /// Which metric series the rule counts in.
    pub series: Series,
    /// Given to the proxy as dynamic metadata when the rule lets a request pass.
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Where it is written.
    pub place: Place,
}

/// Whose counters a rule's decisions are added to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Series {
    /// One series for the rule: the text of each level.
    Rule(Box<[Box<str>]>),
    /// The rule asked for text of the request in its series. With `detailed` the whole of it.
    Request {
        /// `detailed_metric`.
        detailed: bool,
    },
}

/// A named and configured limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// As written: hits in one unit or window.
    pub requests_per_unit: u32,
    /// As written; `None` when the rule says `window` instead.
    pub unit: Option<Unit>,
    /// Length of the unit or window, microseconds.
    pub window: u64,
    /// The numbers the algorithm works with.
    pub quota: Quota,
    /// Weight: each hit counts this many times. At least 1.
    pub cost: u64,
    /// What is answered when the store cannot decide; `None`: what the process is set to.
    pub on_store_failure: Option<OnFailure>,
}

impl Limit {
    /// What callers may call the limit: hits in one unit, or the burst where that is more.
    pub fn most(&self) -> u64 {
        self.quota.capacity().max(self.requests_per_unit.into())
    }

    /// The limit that a request brings along.
    pub fn from_override(limit: Override) -> Self {
        Self {
            requests_per_unit: limit.requests_per_unit,
            unit: Some(limit.unit),
            window: limit.unit.micros(),
            quota: Quota::FixedWindow {
                limit: limit.requests_per_unit.into(),
                window: limit.unit.micros(),
            },
            cost: 1,
            on_store_failure: None,
        }
    }
}

/// A place in a rule file. Lines and columns count from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Name of the file as the operator knows it.
    pub file: Box<str>,
    /// Line, from 1; 0 when the place is the file as a whole.
    pub line: u32,
    /// Column in characters, from 1; 0 when unknown.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        Ok(())
    }
}
