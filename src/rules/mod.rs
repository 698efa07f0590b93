//! What the operator wrote: rules are compiled here, and a request is planned against them.
//!
//! Knows no store and no wire. A [`Rules`] that exists is valid.

pub mod compile;
mod dump;
mod explain;
mod file;
mod limit;
mod pattern;
mod plan;
mod report;
mod scalar;
pub mod source;
mod tree;

pub use compile::{Compiled, Domains, Source, Warnings};
pub use explain::{End, Level, Tried, Walk, Why};
pub use limit::{Limit, Place, Rule, RuleId, Series};
pub use pattern::Pattern;
pub use plan::{Modes, Plan, Step};
pub use report::{CompileError, Mistake};
pub use tree::{Domain, DomainBuilder, Node, NodeId, Rules, RulesBuilder};
