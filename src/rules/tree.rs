//! The compiled rules: a tree of nodes for each domain, and how a list of entries walks down it.

use std::sync::Arc;

// Cheaper to ask than the standard library's. Callers cannot put anything into these maps, so they cannot make
// keys fall together either.
use hashbrown::HashMap;

use super::{
    limit::{Rule, RuleId},
    pattern::Pattern,
};
use crate::request::Entry;

/// All rules in force: one immutable snapshot. Made by [`RulesBuilder`].
#[derive(Debug, Default)]
pub struct Rules {
    domains: HashMap<Box<str>, Domain>,
    rules: Vec<Rule>,
    hash: u64,
    files: Box<[Box<str>]>,
}

/// The rules of one domain.
#[derive(Debug)]
pub struct Domain {
    nodes: Vec<Node>,
    all_or_nothing: bool,
}

/// Index of a node in its domain. The root is [`NodeId::ROOT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// The domain itself.
    pub const ROOT: Self = Self(0);
}

/// What the operator wrote for one level, and what hangs below it.
#[derive(Debug, Default)]
pub struct Node {
    /// The rule, when the node has a `rate_limit`.
    pub rule: Option<RuleId>,
    /// One counter for all values of the node's pattern.
    pub share_threshold: bool,
    /// The request's value is part of the metric series.
    pub value_to_metric: bool,
    /// The node's own `key` or `key_value`, for metrics.
    pub label: Box<str>,
    keys: HashMap<Box<str>, Branch>,
    /// Rules with a star in their key, in written order.
    key_patterns: Vec<KeyPattern>,
}

/// The children of one node that name the same key.
#[derive(Debug, Default)]
struct Branch {
    values: HashMap<Box<str>, NodeId>,
    /// In written order. Each of these is in `values` too, under its text.
    patterns: Vec<ValuePattern>,
    any: Option<NodeId>,
}

#[derive(Debug)]
struct ValuePattern {
    order: usize,
    value: Pattern,
    node: NodeId,
}

#[derive(Debug)]
struct KeyPattern {
    order: usize,
    key: Pattern,
    /// `None`: any value.
    value: Option<ValueTest>,
    node: NodeId,
}

#[derive(Debug)]
enum ValueTest {
    Exact(Box<str>),
    Pattern(Pattern),
}

/// How an entry came to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via<'r> {
    /// The node's key and value are the entry's.
    Value,
    /// A pattern in the value fits; its text.
    Pattern(&'r str),
    /// A pattern in the key fits, whatever the rule says of the value.
    KeyPattern,
    /// The node names the key alone.
    Key,
}

impl Rules {
    /// The rules of that domain.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.get(name)
    }

    /// The domains' names and trees, in no order.
    pub fn domains(&self) -> impl Iterator<Item = (&str, &Domain)> {
        self.domains
            .iter()
            .map(|(name, domain)| (name.as_ref(), domain))
    }

    /// Each rule and the name of the domain it belongs to, in no order.
    pub fn placed(&self) -> impl Iterator<Item = (&str, RuleId)> {
        self.domains().flat_map(|(name, domain)| {
            domain
                .nodes
                .iter()
                .filter_map(move |node| Some((name, node.rule?)))
        })
    }

    /// All rules; [`RuleId::index`] is the position here.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// A fingerprint of the files they were made from: equal on every replica that has the same rules. 0 when they
    /// were not made from files.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The files they were made from, in the order read.
    pub fn files(&self) -> &[Box<str>] {
        &self.files
    }

    /// The rule of that id.
    pub fn rule(&self, id: RuleId) -> &Rule {
        &self.rules[id.index()]
    }
}

impl Domain {
    /// Whether a refused request is charged nothing at all.
    pub fn all_or_nothing(&self) -> bool {
        self.all_or_nothing
    }

    /// The node of that id.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// One step down from `at`: the child for the entry, and how it was found.
    ///
    /// The order is the reference's: the exact value, then the first pattern as written, then the bare key. A step
    /// is never taken back: what hangs below a better match hides what hangs below a worse one.
    pub fn step(&self, at: NodeId, entry: &Entry) -> Option<(NodeId, Via<'_>)> {
        let node = self.node(at);
        let branch = node.keys.get(entry.key.as_str());
        if let Some(&exact) = branch.and_then(|branch| branch.values.get(entry.value.as_str())) {
            return Some((exact, Via::Value));
        }
        let by_value = branch
            .and_then(|branch| {
                branch
                    .patterns
                    .iter()
                    .find(|pattern| pattern.value.matches(&entry.value))
            })
            .map(|pattern| {
                (
                    pattern.order,
                    pattern.node,
                    Via::Pattern(pattern.value.as_str()),
                )
            });
        let by_key = node
            .key_patterns
            .iter()
            .find(|pattern| {
                pattern.key.matches(&entry.key)
                    && match &pattern.value {
                        None => true,
                        Some(ValueTest::Exact(value)) => **value == *entry.value,
                        Some(ValueTest::Pattern(value)) => value.matches(&entry.value),
                    }
            })
            .map(|pattern| {
                let via = match &pattern.value {
                    Some(ValueTest::Pattern(value)) => Via::Pattern(value.as_str()),
                    _ => Via::KeyPattern,
                };
                (pattern.order, pattern.node, via)
            });
        match (by_value, by_key) {
            (Some(value), Some(key)) => Some(if value.0 < key.0 { value } else { key }),
            (found, None) | (None, found) => found,
        }
        .map(|(_, node, via)| (node, via))
        .or_else(|| Some((branch?.any?, Via::Key)))
    }
}

/// Collects domains and rules into [`Rules`].
#[derive(Debug, Default)]
pub struct RulesBuilder {
    rules: Rules,
}

impl RulesBuilder {
    /// The domain's builder; a second call with the same name goes on with the same domain.
    pub fn domain(&mut self, name: &str) -> DomainBuilder<'_> {
        let domain = self
            .rules
            .domains
            .entry(name.into())
            .or_insert_with(|| Domain {
                nodes: vec![Node::default()],
                all_or_nothing: false,
            });
        DomainBuilder {
            domain,
            rules: &mut self.rules.rules,
        }
    }

    /// Notes what the rules were made from, for [`Rules::hash`] and [`Rules::files`].
    pub fn origin(&mut self, hash: u64, files: Box<[Box<str>]>) {
        self.rules.hash = hash;
        self.rules.files = files;
    }

    /// The finished rules.
    pub fn build(self) -> Arc<Rules> {
        Arc::new(self.rules)
    }
}

/// Adds nodes to one domain.
#[derive(Debug)]
pub struct DomainBuilder<'b> {
    domain: &'b mut Domain,
    rules: &'b mut Vec<Rule>,
}

impl DomainBuilder<'_> {
    /// Charges a request of this domain all or nothing.
    pub fn all_or_nothing(&mut self) {
        self.domain.all_or_nothing = true;
    }

    /// Adds a child to `parent` for `key` and `value` (empty: any value), after the children already there.
    ///
    /// # Errors
    /// The child that already has that key and value, untouched.
    pub fn child(
        &mut self,
        parent: NodeId,
        key: &str,
        value: &str,
        child: Node,
    ) -> Result<NodeId, NodeId> {
        // Node ids grow in written order, so they are the order between patterns too.
        let order = self.domain.nodes.len();
        let id = NodeId(u32::try_from(order).expect("fewer nodes than 2^32 fit in memory"));
        let node = &mut self.domain.nodes[parent.0 as usize];
        if let Some(key) = Pattern::new(key) {
            let twin = node.key_patterns.iter().find(|other| {
                other.key == key && other.value.as_ref().map_or("", ValueTest::as_str) == value
            });
            if let Some(twin) = twin {
                return Err(twin.node);
            }
            node.key_patterns.push(KeyPattern {
                order,
                key,
                value: ValueTest::new(value),
                node: id,
            });
        } else {
            let branch = node.keys.entry(key.into()).or_default();
            if value.is_empty() {
                if let Some(twin) = branch.any {
                    return Err(twin);
                }
                branch.any = Some(id);
            } else {
                if let Some(&twin) = branch.values.get(value) {
                    return Err(twin);
                }
                branch.values.insert(value.into(), id);
                if let Some(value) = Pattern::new(value) {
                    branch.patterns.push(ValuePattern {
                        order,
                        value,
                        node: id,
                    });
                }
            }
        }
        self.domain.nodes.push(child);
        Ok(id)
    }

    /// Registers a rule and hands out its id for [`Node::rule`].
    pub fn rule(&mut self, rule: Rule) -> RuleId {
        let id = RuleId(u32::try_from(self.rules.len()).expect("fewer rules than 2^32"));
        self.rules.push(rule);
        id
    }
}

impl ValueTest {
    fn new(value: &str) -> Option<Self> {
        if value.is_empty() {
            return None;
        }
        Some(match Pattern::new(value) {
            Some(pattern) => Self::Pattern(pattern),
            None => Self::Exact(value.into()),
        })
    }

    fn as_str(&self) -> &str {
        match self {
            Self::Exact(text) => text,
            Self::Pattern(pattern) => pattern.as_str(),
        }
    }
}
