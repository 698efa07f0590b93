//! What the operator wrote: rules are compiled here, and a request is planned against them.
//!
//! Knows no store and no wire. A [`Rules`] that exists is valid.

mod limit;
mod pattern;
mod plan;
mod tree;

pub use limit::{Limit, Place, Rule, RuleId, Series};
pub use pattern::Pattern;
pub use plan::{Modes, Plan, Step};
pub use tree::{Domain, DomainBuilder, Node, NodeId, Rules, RulesBuilder};
