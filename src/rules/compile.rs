//! From the text of rule files to [`Rules`], or to every mistake in them.
//!
//! The grammar is envoyproxy/ratelimit's with a few fields of our own. What the reference loads is loaded; what it
//! ignores without a word is warned of; what it refuses is refused, in its words and with the place.

mod algorithm;
mod descriptor;
mod duration;
mod fields;
mod metadata;
mod names;
mod rate_limit;
mod vocabulary;

use std::{collections::HashMap, rc::Rc, sync::Arc};

use sha2::{Digest, Sha256};

use self::{
    descriptor::Scope,
    fields::{Fields, cannot},
    names::Names,
    vocabulary::{Level, shortened},
};
use super::{
    file::{At, Documents, Node, Pair},
    limit::Place,
    report::{CompileError, Mistake, Report, Tally},
    tree::{Rules, RulesBuilder},
};

/// One rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file as the operator knows it: places name it so.
    pub name: Box<str>,
    /// Its content, of whatever kind.
    pub text: Vec<u8>,
}

/// How files are compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What a domain means that is written twice.
    pub domains: Domains,
    /// What a warning means.
    pub warnings: Warnings,
}

/// What a domain means that several files, or several documents of one file, name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Domains {
    /// A mistake.
    #[default]
    Distinct,
    /// Their descriptors are put together, in order of the files (`MERGE_DOMAIN_CONFIG`).
    Merged,
}

/// What a warning means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Warnings {
    /// The rules are in force all the same.
    #[default]
    Told,
    /// It is a mistake (`--strict`).
    Refused,
}

/// Rules, and what is odd about them.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The rules of all files.
    pub rules: Arc<Rules>,
    /// In order of their place.
    pub warnings: Vec<Mistake>,
}

/// Compiles files, in the order given: between two patterns that both fit, the one written first wins.
///
/// # Errors
/// [`CompileError`] with every mistake of every file.
pub fn compile(sources: &[Source], options: Options) -> Result<Compiled, CompileError> {
    let mut compiler = Compiler::new(options);
    for source in sources {
        compiler.file(source);
    }
    let names = sources.iter().map(|source| source.name.clone()).collect();
    compiler.finish(content_hash(sources), names)
}

/// A domain's rules that did not come as text, in the shape that text has.
#[derive(Debug)]
pub(super) struct Tree {
    /// What places name instead of a file.
    pub(super) name: Box<str>,
    /// What stands at the top of a file.
    pub(super) root: Node,
}

/// Compiles what did not come as text, by the same rules as files. `hash` is the fingerprint of its content.
///
/// # Errors
/// [`CompileError`] with every mistake of every tree.
pub(super) fn compile_trees(
    trees: &[Tree],
    hash: u64,
    options: Options,
) -> Result<Compiled, CompileError> {
    let mut compiler = Compiler::new(options);
    for tree in trees {
        compiler.report.file = tree.name.clone();
        compiler.root(&tree.root);
    }
    let names = trees.iter().map(|tree| tree.name.clone()).collect();
    compiler.finish(hash, names)
}

/// A fingerprint of the files' content: the same on every replica that has the same files.
pub fn content_hash(sources: &[Source]) -> u64 {
    hash_of(sources.iter().map(|source| source.text.as_slice()))
}

pub(super) fn hash_of<'t>(texts: impl Iterator<Item = &'t [u8]>) -> u64 {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text);
    }
    let digest = hasher.finalize();
    digest
        .iter()
        .take(8)
        .fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

struct Compiler {
    options: Options,
    builder: RulesBuilder,
    report: Report,
    domains: HashMap<Box<str>, Written>,
    names: Names,
}

/// Where a domain and its nodes are written.
#[derive(Debug, Default)]
struct Written {
    place: Place,
    nodes: HashMap<super::tree::NodeId, Place>,
}

impl Compiler {
    fn new(options: Options) -> Self {
        Self {
            options,
            builder: RulesBuilder::default(),
            report: Report::default(),
            domains: HashMap::new(),
            names: Names::default(),
        }
    }

    fn file(&mut self, source: &Source) {
        self.report.file = source.name.clone();
        let Documents { roots, faults } = Documents::read(&source.text);
        let broken = !faults.is_empty();
        for (at, message) in faults {
            self.report.mistake(at, "", message);
        }
        let documents: Vec<Rc<Node>> = roots.into_iter().filter(|root| !root.is_null()).collect();
        if documents.is_empty() && !broken {
            self.report.mistake(
                At::default(),
                "",
                "config file cannot have empty domain: the file has no content, write `domain: ...`",
            );
        }
        for root in &documents {
            self.root(root);
        }
    }

    fn root(&mut self, root: &Node) {
        vocabulary::sweep(root, Level::Domain, "", &mut self.report);
        match root.as_map() {
            Some(pairs) => self.document(root, pairs),
            None => self.report.mistake(
                root.at,
                "",
                format!(
                    "error loading config file: yaml: unmarshal errors: {}: a file starts with `domain: ...`",
                    cannot(root, "map[interface {}]interface {}")
                ),
            ),
        }
    }

    fn document(&mut self, root: &Node, pairs: &[Pair]) {
        let report = &mut self.report;
        let path = vocabulary::path(pairs, Level::Domain, "");
        let fields = Fields::read(pairs, Level::Domain, &path, report);
        let domain = fields.text("domain", "", report);
        let at = fields.get("domain").map_or(root.at, |field| field.value.at);
        if domain.is_empty()
            && fields
                .get("domain")
                .is_none_or(|field| field.value.as_scalar().is_some())
        {
            report.mistake(
                at,
                domain,
                "config file cannot have empty domain: write `domain: ...`",
            );
        }
        let all_or_nothing = fields.flag("all_or_nothing", domain, report);
        // A domain that may not be here is checked by itself, so that its content is not blamed on the other one.
        let mut aside = (RulesBuilder::default(), Written::default());
        let (builder, written) = match self.domains.get_mut(domain) {
            Some(earlier) if self.options.domains == Domains::Merged => {
                (&mut self.builder, earlier)
            }
            Some(earlier) => {
                if !domain.is_empty() {
                    report.mistake(
                        at,
                        domain,
                        format!(
                            "duplicate domain '{}' in config file, first written at {}: put both under one domain, or \
                             allow it with MERGE_DOMAIN_CONFIG=true or --merge-domains",
                            shortened(domain),
                            earlier.place
                        ),
                    );
                }
                (&mut aside.0, &mut aside.1)
            }
            None => {
                let written = Written {
                    place: report.place(at),
                    nodes: HashMap::new(),
                };
                let written = self.domains.entry(domain.into()).or_insert(written);
                (&mut self.builder, written)
            }
        };
        let mut tree = builder.domain(domain);
        if all_or_nothing {
            tree.all_or_nothing();
        }
        Scope {
            domain,
            tree,
            written,
            names: &mut self.names,
            report,
        }
        .descriptors(&fields, &descriptor::Trail::root(domain));
    }

    fn finish(self, hash: u64, names: Box<[Box<str>]>) -> Result<Compiled, CompileError> {
        let Self {
            options,
            mut builder,
            mut report,
            names: rule_names,
            ..
        } = self;
        rule_names.check(&mut report);
        let (mistakes, warnings) = match options.warnings {
            Warnings::Told => (report.mistakes, report.warnings),
            Warnings::Refused => (report.mistakes.and(report.warnings), Tally::default()),
        };
        let (mistakes, warnings) = (mistakes.sorted(), warnings.sorted());
        if !mistakes.is_empty() {
            return Err(CompileError { mistakes, warnings });
        }
        builder.origin(hash, names);
        Ok(Compiled {
            rules: builder.build(),
            warnings,
        })
    }
}

#[cfg(test)]
mod tests;
