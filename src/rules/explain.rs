//! Why a request met the rules it met: each step of each descriptor's walk, with everything that was tried there.
//!
//! For people who ask, not for decisions: it looks at every child of a node, where a decision looks at the few that
//! can fit. A test holds both to the same walk.

use super::{
    limit::RuleId,
    tree::{Domain, Node, NodeId, Rules, ValueTest},
};
use crate::request::{Descriptor, Entry, Request};

/// Most children of one node that a level names; those that fit come first.
const MOST: usize = 20;

/// One descriptor's way down the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// One for each entry that was looked up.
    pub levels: Vec<Level>,
    /// Where it ended.
    pub end: End,
}

/// What was tried for one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// The entry.
    pub entry: Entry,
    /// The children of the node the walk stood at: the one that was taken first, then those that fit too, then others.
    pub tried: Vec<Tried>,
    /// Children beyond those in `tried`. None of them fits.
    pub not_shown: usize,
}

/// A child of the node the walk stood at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tried {
    /// Whether it was taken, and why or why not.
    pub why: Why,
    /// As the operator wrote it: `key`, or `key=value`.
    pub node: String,
}

/// Why a child was taken, or was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Taken: key and value are the entry's.
    TakenByValue,
    /// Taken: a pattern fits.
    TakenByPattern,
    /// Taken: it names the key alone, and nothing better fits.
    TakenByKey,
    /// It fits, and a better match (exact value, then the first pattern as written, then the bare key) hides it.
    Hidden,
    /// Another value of the same key.
    OtherValue,
    /// Its pattern does not fit.
    NoFit,
    /// Another key.
    OtherKey,
}

/// Where a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The domain has no rules.
    UnknownDomain,
    /// The descriptor brings its own limit: no rule was looked for.
    Brought,
    /// No child fits the last entry that was looked up.
    NoChild,
    /// The rules end above the last entry that was looked up: the descriptor is too deep.
    TooDeep,
    /// The walk ended at a node without a limit: the rules below it need more entries.
    TooShallow,
    /// A rule.
    Rule(RuleId),
}

impl Why {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::TakenByValue => "taken: the exact value",
            Self::TakenByPattern => "taken: the pattern fits",
            Self::TakenByKey => "taken: any value of the key",
            Self::Hidden => "fits too, hidden by the better match",
            Self::OtherValue => "another value",
            Self::NoFit => "the pattern does not fit",
            Self::OtherKey => "another key",
        }
    }

    /// Whether it was taken.
    pub const fn is_taken(self) -> bool {
        matches!(
            self,
            Self::TakenByValue | Self::TakenByPattern | Self::TakenByKey
        )
    }
}

impl End {
    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::UnknownDomain => "no rules for this domain",
            Self::Brought => "the request brings its own limit",
            Self::NoChild => "no rule fits the last entry shown",
            Self::TooDeep => "the rules do not go as deep as the last entry shown",
            Self::TooShallow => "no limit at this depth: the rules below need more entries",
            Self::Rule(_) => "a rule applies",
        }
    }
}

impl Rules {
    /// How each descriptor of a request walks down the tree.
    pub fn walks(&self, request: &Request) -> Vec<Walk> {
        let domain = self.domain(&request.domain);
        let walk = |descriptor| walk(domain, descriptor);
        request.descriptors.iter().map(walk).collect()
    }
}

fn walk(domain: Option<&Domain>, descriptor: &Descriptor) -> Walk {
    let mut levels = Vec::new();
    let Some(domain) = domain else {
        let end = End::UnknownDomain;
        return Walk { levels, end };
    };
    if descriptor.limit.is_some() {
        let end = End::Brought;
        return Walk { levels, end };
    }
    let mut at = NodeId::ROOT;
    for entry in &descriptor.entries {
        let (level, next) = level(domain.node(at), entry);
        let is_leaf = level.tried.is_empty();
        levels.push(level);
        let Some(next) = next else {
            let end = if is_leaf { End::TooDeep } else { End::NoChild };
            return Walk { levels, end };
        };
        at = next;
    }
    let end = domain.node(at).rule.map_or(End::TooShallow, End::Rule);
    Walk { levels, end }
}

struct Child {
    node: NodeId,
    text: String,
    /// What it is if it is taken, or why it cannot be. Of those that fit the least one wins, the first written of equals.
    why: Why,
    order: usize,
}

fn level(node: &Node, entry: &Entry) -> (Level, Option<NodeId>) {
    let mut children = children(node, entry);
    children.sort_by(|a, b| (a.why, a.order, &a.text).cmp(&(b.why, b.order, &b.text)));
    let taken = children.first().filter(|child| child.why.is_taken());
    let next = taken.map(|child| child.node);
    let not_shown = children.len().saturating_sub(MOST);
    let tried = children
        .into_iter()
        .take(MOST)
        .enumerate()
        .map(|(place, child)| Tried {
            why: if place > 0 && child.why.is_taken() {
                Why::Hidden
            } else {
                child.why
            },
            node: child.text,
        });
    let level = Level {
        entry: entry.clone(),
        tried: tried.collect(),
        not_shown,
    };
    (level, next)
}

/// Every child of a node, in no order.
fn children(node: &Node, entry: &Entry) -> Vec<Child> {
    let mut children = Vec::new();
    for (key, branch) in &node.keys {
        let same_key = **key == *entry.key;
        let fits = |fits: bool, taken: Why, not: Why| match (same_key, fits) {
            (false, _) => Why::OtherKey,
            (true, true) => taken,
            (true, false) => not,
        };
        for (value, id) in &branch.values {
            let pattern = branch.patterns.iter().find(|pattern| pattern.node == *id);
            let why = if **value == *entry.value {
                fits(true, Why::TakenByValue, Why::OtherValue)
            } else if let Some(pattern) = pattern {
                let matches = pattern.value.matches(&entry.value);
                fits(matches, Why::TakenByPattern, Why::NoFit)
            } else {
                fits(false, Why::TakenByValue, Why::OtherValue)
            };
            children.push(Child {
                node: *id,
                text: format!("{key}={value}"),
                why,
                order: pattern.map_or(0, |pattern| pattern.order),
            });
        }
        if let Some(id) = branch.any {
            children.push(Child {
                node: id,
                text: key.to_string(),
                why: fits(true, Why::TakenByKey, Why::TakenByKey),
                order: 0,
            });
        }
    }
    for pattern in &node.key_patterns {
        let key = pattern.key.as_str();
        let value = pattern.value.as_ref();
        let fits = pattern.key.matches(&entry.key)
            && value.is_none_or(|value| value.matches(&entry.value));
        children.push(Child {
            node: pattern.node,
            text: match value.map(ValueTest::as_str) {
                Some(value) => format!("{key}={value}"),
                None => key.to_owned(),
            },
            why: if fits {
                Why::TakenByPattern
            } else {
                Why::NoFit
            },
            order: pattern.order,
        });
    }
    children
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prop_assert_eq, proptest, sample::select};

    use super::*;
    use crate::rules::tree::RulesBuilder;

    const KEYS: [&str; 4] = ["a", "b", "a*", "*"];
    const VALUES: [&str; 6] = ["", "x", "xy", "x*", "*y", "*"];

    proptest! {
        #[test]
        fn the_walk_explained_is_the_walk_taken(
            nodes in vec((select(&KEYS[..]), select(&VALUES[..])), 0..12),
            key in select(&["a", "ab", "b", "c"][..]),
            value in select(&["", "x", "xy", "y", "x*"][..]),
        ) {
            let mut builder = RulesBuilder::default();
            let mut domain = builder.domain("d");
            for (key, value) in nodes {
                // A second one of the same name is refused, as it is when rules are loaded.
                let _ = domain.child(NodeId::ROOT, key, value, Node::default());
            }
            let rules = builder.build();
            let domain = rules.domain("d").expect("made above");
            let entry = Entry { key: key.to_owned(), value: value.to_owned() };
            let (level, next) = level(domain.node(NodeId::ROOT), &entry);
            prop_assert_eq!(next, domain.step(NodeId::ROOT, &entry).map(|(node, _)| node));
            let taken = level.tried.iter().filter(|tried| tried.why.is_taken()).count();
            prop_assert_eq!(taken, usize::from(next.is_some()));
        }
    }

    #[test]
    fn a_level_is_bounded_and_shows_what_fits() {
        let mut builder = RulesBuilder::default();
        let mut domain = builder.domain("d");
        for number in 0..1_000 {
            let value = format!("v{number}");
            let child = domain.child(NodeId::ROOT, "k", &value, Node::default());
            child.expect("a new value");
        }
        let rules = builder.build();
        let domain = rules.domain("d").expect("made above");
        let entry = Entry {
            key: "k".to_owned(),
            value: "v777".to_owned(),
        };
        let (level, _) = level(domain.node(NodeId::ROOT), &entry);
        assert_eq!((level.tried.len(), level.not_shown), (MOST, 1_000 - MOST));
        assert_eq!(level.tried[0].why, Why::TakenByValue);
        assert_eq!(level.tried[0].node, "k=v777");
    }
}
