//! What a caller asks, with the wire's defaults already resolved. Knows no wire, no rule and no store.

use crate::unit::Unit;

/// One call: may these descriptors of this domain go through?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The rule set to look in. Never empty.
    pub domain: String,
    /// At least one.
    pub descriptors: Vec<Descriptor>,
}

/// An ordered list of entries that is looked up in the rules level by level, and the hits to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// In order; the first is the rules' outermost level.
    pub entries: Vec<Entry>,
    /// Hits to take: positive takes, 0 looks without counting (peek), negative gives back.
    /// Its size is at most [`crate::algorithm::MAX`].
    pub hits: i64,
    /// A limit the caller brings, which takes the place of the configured one.
    pub limit: Option<Override>,
}

/// One key and its value. The value may be empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Name of the property, such as `remote_address`.
    pub key: String,
    /// The property's value in this call.
    pub value: String,
}

/// A limit that comes with the request. It is always a fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// Hits allowed in one unit; 0 refuses everything.
    pub requests_per_unit: u32,
    /// The window.
    pub unit: Unit,
}
