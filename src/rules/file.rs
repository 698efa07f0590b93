//! The YAML shape of a rule file, and the only file that knows the YAML crate.
//!
//! Gives back what is written, with the place of every key and value: scalars keep their source text, mappings keep
//! their order and their duplicates. It knows no rule: what the text means is the business of `compile`.

use std::{collections::HashMap, rc::Rc};

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use super::scalar::{Form, Scalar};

/// Deepest nesting of lists and mappings, aliases followed. A level of descriptors takes two.
const MAX_DEPTH: usize = 250;

/// Most nodes of one file, aliases followed: a few kilobytes of aliases of aliases can stand for billions.
const MAX_NODES: u64 = 4_000_000;

/// Where something is written: line and column in characters, both from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub(super) line: u32,
    pub(super) column: u32,
}

/// A value as written.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: At,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Scalar(Scalar),
    List(Vec<Rc<Node>>),
    Map(Vec<Pair>),
}

/// A key of a mapping and its value.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) key: Rc<Node>,
    pub(super) value: Rc<Node>,
    /// Came in through a `<<` at this place.
    pub(super) merged: Option<At>,
}

/// The documents of one file, as far as they could be read.
#[derive(Debug, Default)]
pub(super) struct Documents {
    pub(super) roots: Vec<Rc<Node>>,
    /// What is not YAML, or more than is read.
    pub(super) faults: Vec<(At, String)>,
}

impl Documents {
    /// Reads the text of a file. Never fails as a whole: the documents before a fault are there.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut reader = Reader::default();
        if let Err((at, message)) = text(bytes).and_then(|text| reader.read(text)) {
            reader
                .faults
                .push((at, format!("error loading config file: yaml: {message}")));
        }
        Self {
            roots: reader.roots,
            faults: reader.faults,
        }
    }
}

impl Node {
    pub(super) fn as_map(&self) -> Option<&[Pair]> {
        match &self.value {
            Value::Map(pairs) => Some(pairs),
            Value::Scalar(_) | Value::List(_) => None,
        }
    }

    pub(super) fn as_scalar(&self) -> Option<&Scalar> {
        match &self.value {
            Value::Scalar(scalar) => Some(scalar),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Nothing, `~` or `null`.
    pub(super) fn is_null(&self) -> bool {
        self.as_scalar().is_some_and(Scalar::is_null)
    }
}

/// The file's text, without byte order mark. The parser takes a NUL for the end of the file, so that what follows
/// would be lost without a word; like libyaml we refuse every control character.
fn text(bytes: &[u8]) -> Result<&str, (At, String)> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        (end_of(&valid), "the file is not valid UTF-8".to_owned())
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let strange = text.char_indices().find(|(_, c)| {
        (c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}'))
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    });
    match strange {
        Some((index, c)) => Err((
            end_of(&text[..index]),
            format!("control characters are not allowed (U+{:04X})", c as u32),
        )),
        None => Ok(text),
    }
}

fn end_of(text: &str) -> At {
    let line = text.matches('\n').count() + 1;
    let last = text.rsplit('\n').next().unwrap_or_default();
    at(line, last.chars().count())
}

fn at(line: usize, column: usize) -> At {
    let bounded = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    At {
        line: bounded(line),
        column: bounded(column).saturating_add(1),
    }
}

fn start(span: Span) -> At {
    at(span.start.line(), span.start.col())
}

fn scan_error(error: &ScanError, text: &str) -> (At, String) {
    let marker = error.marker();
    let message = error.info();
    if !message.contains("tab") {
        return (at(marker.line(), marker.col()), message);
    }
    // The parser names the start of what the tab is in; the operator looks for the tab.
    let place = text
        .lines()
        .zip(1..)
        .skip(marker.line().saturating_sub(1))
        .find_map(|(line, number)| {
            let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
            Some(at(number, line[..indent].find('\t')?))
        })
        .unwrap_or_else(|| at(marker.line(), marker.col()));
    (place, format!("{message}; indent with spaces"))
}

/// A finished node with what it weighs when every alias in it is followed.
#[derive(Clone, Debug)]
struct Built {
    node: Rc<Node>,
    nodes: u64,
    depth: usize,
}

/// A list or mapping whose end is not yet read.
#[derive(Debug)]
struct Open {
    at: At,
    anchor: usize,
    items: Items,
    nodes: u64,
    depth: usize,
}

#[derive(Debug)]
enum Items {
    List(Vec<Rc<Node>>),
    Map {
        pairs: Vec<Pair>,
        key: Option<Rc<Node>>,
    },
}

#[derive(Debug, Default)]
struct Reader {
    roots: Vec<Rc<Node>>,
    faults: Vec<(At, String)>,
    open: Vec<Open>,
    anchors: HashMap<usize, Built>,
    nodes: u64,
}

impl Reader {
    fn read(&mut self, text: &str) -> Result<(), (At, String)> {
        let mut options = granit_parser::options! {
            block_scalar_eof_without_line_feed: true,
            flow_nesting_limit: MAX_DEPTH,
            block_nesting_limit: MAX_DEPTH,
        };
        options.set_emit_comments(false);
        for event in Parser::new_from_str_with_options(text, options) {
            let (event, span) = event.map_err(|error| scan_error(&error, text))?;
            let at = start(span);
            match event {
                Event::Scalar(text, style, anchor, tag) => {
                    let form = self.form(style, tag.as_deref(), at);
                    let scalar = Scalar {
                        text: text.into(),
                        form,
                    };
                    self.leaf(at, anchor, scalar)?;
                }
                Event::SequenceStart(_, anchor, _) => {
                    self.open(at, anchor, Items::List(Vec::new()))?;
                }
                Event::MappingStart(_, anchor, _) => {
                    let items = Items::Map {
                        pairs: Vec::new(),
                        key: None,
                    };
                    self.open(at, anchor, items)?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.close()?,
                Event::Alias(anchor) => {
                    let built = self
                        .anchors
                        .get(&anchor)
                        .cloned()
                        .ok_or_else(|| (at, "an anchor contains its own alias".to_owned()))?;
                    self.count(at, built.nodes)?;
                    self.place(at, built)?;
                }
                // Ids of anchors are never used twice; without this their nodes would live on to the file's end.
                Event::DocumentStart(..) => self.anchors.clear(),
                _ => {}
            }
        }
        Ok(())
    }

    fn form(&mut self, style: ScalarStyle, tag: Option<&Tag>, at: At) -> Form {
        match tag {
            None if style == ScalarStyle::Plain => Form::Plain,
            None => Form::Quoted,
            Some(tag) => match tag.core_suffix() {
                Some("bool" | "int" | "float" | "null") => Form::Plain,
                _ => {
                    if tag.original() == "!!binary" {
                        self.faults.push((
                            at,
                            "error loading config file: yaml: !!binary is not supported, write the text itself"
                                .to_owned(),
                        ));
                    }
                    Form::Quoted
                }
            },
        }
    }

    fn count(&mut self, at: At, nodes: u64) -> Result<(), (At, String)> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return Err((
                at,
                format!(
                    "document contains excessive aliasing or is too large: more than {MAX_NODES} nodes, aliases \
                     followed"
                ),
            ));
        }
        Ok(())
    }

    fn leaf(&mut self, at: At, anchor: usize, scalar: Scalar) -> Result<(), (At, String)> {
        self.count(at, 1)?;
        let built = Built {
            node: Rc::new(Node {
                at,
                value: Value::Scalar(scalar),
            }),
            nodes: 1,
            depth: 0,
        };
        if anchor > 0 {
            self.anchors.insert(anchor, built.clone());
        }
        self.place(at, built)
    }

    fn open(&mut self, at: At, anchor: usize, items: Items) -> Result<(), (At, String)> {
        self.count(at, 1)?;
        self.open.push(Open {
            at,
            anchor,
            items,
            nodes: 1,
            depth: 1,
        });
        self.bound_depth(at, 0)
    }

    fn close(&mut self) -> Result<(), (At, String)> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.items {
            Items::List(items) => Value::List(items),
            Items::Map { pairs, .. } => Value::Map(self.merge(pairs)),
        };
        let built = Built {
            node: Rc::new(Node { at: open.at, value }),
            nodes: open.nodes,
            depth: open.depth,
        };
        if open.anchor > 0 {
            self.anchors.insert(open.anchor, built.clone());
        }
        self.place(open.at, built)
    }

    /// Puts a finished node where it belongs: into the innermost open list or mapping, else it is a document.
    fn place(&mut self, at: At, built: Built) -> Result<(), (At, String)> {
        self.bound_depth(at, built.depth)?;
        let Some(open) = self.open.last_mut() else {
            self.roots.push(built.node);
            return Ok(());
        };
        open.nodes = open.nodes.saturating_add(built.nodes);
        open.depth = open.depth.max(built.depth + 1);
        match &mut open.items {
            Items::List(items) => items.push(built.node),
            Items::Map { pairs, key } => match key.take() {
                None => *key = Some(built.node),
                Some(key) => pairs.push(Pair {
                    key,
                    value: built.node,
                    merged: None,
                }),
            },
        }
        Ok(())
    }

    fn bound_depth(&self, at: At, depth: usize) -> Result<(), (At, String)> {
        if self.open.len() + depth > MAX_DEPTH {
            return Err((at, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        Ok(())
    }

    /// Puts the pairs of `<<: *anchor` in the place of the `<<`.
    fn merge(&mut self, pairs: Vec<Pair>) -> Vec<Pair> {
        if !pairs.iter().any(|pair| is_merge(&pair.key)) {
            return pairs;
        }
        let mut flat = Vec::with_capacity(pairs.len());
        for pair in pairs {
            if !is_merge(&pair.key) {
                flat.push(pair);
                continue;
            }
            let sources = match &pair.value.value {
                // The first of several comes last, because the last one wins.
                Value::List(items) => items.iter().rev().collect(),
                Value::Map(_) | Value::Scalar(_) => vec![&pair.value],
            };
            for source in sources {
                match source.as_map() {
                    Some(merged) => flat.extend(merged.iter().map(|inner| Pair {
                        merged: Some(pair.key.at),
                        ..inner.clone()
                    })),
                    None => self.faults.push((
                        pair.key.at,
                        "error loading config file: yaml: map merge requires map or sequence of maps as the value"
                            .to_owned(),
                    )),
                }
            }
        }
        flat
    }
}

fn is_merge(key: &Node) -> bool {
    key.as_scalar()
        .is_some_and(|key| key.form == Form::Plain && &*key.text == "<<")
}

#[cfg(test)]
mod tests;
