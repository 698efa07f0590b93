//! One bad file among many: the others load, and the bad one stays as it last was.
//!
//! A file is bad when it cannot be read, when there is a mistake in it, or when it changed so that it contradicts a
//! file that did not change. In the place of a bad file its last good text is compiled, the text that was part of the
//! rules in force; a file that never had one, such as one that is bad at the start, is absent. When no file at all is
//! good as it is, nothing is loaded: what is in force stays in force as a whole.
//!
//! Every load that leaves a file stale counts as a failed load too. The offline check and `--strict-files` do none of
//! this: there a mistake in one file refuses all of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::Path,
};

use super::files::{Loaded, Options, Snapshot};
use crate::rules::{CompileError, Compiled, Mistake, Source, compile};

/// A file that is not in force as it is written now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The file.
    pub file: Box<str>,
    /// What is in force instead.
    pub instead: Instead,
    /// What is wrong with it, in order of the place.
    pub mistakes: Vec<Mistake>,
}

/// What is in force in the place of a bad file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// The file as it was when it was last good.
    LastGood,
    /// Nothing: it has not been good since the start.
    Nothing,
}

/// The texts that the rules in force were made from.
#[derive(Debug, Default)]
pub(super) struct LastGood {
    texts: HashMap<Box<str>, Vec<u8>>,
}

impl LastGood {
    /// Compiles the files, with last good texts in the place of bad ones, and remembers what it put in force.
    ///
    /// # Errors
    /// Every mistake, when no file is good.
    pub(super) fn load(
        &mut self,
        mut snapshot: Snapshot,
        options: &Options,
    ) -> Result<Loaded, CompileError> {
        let hidden = snapshot.hidden(self.texts.keys().map(|name| &**name));
        snapshot.unreadable.extend(hidden);
        let compiled = compile::compile(&snapshot.sources, options.compile);
        let (sources, compiled, stale) = match compiled {
            Ok(compiled) if snapshot.unreadable.is_empty() => {
                (snapshot.sources, compiled, Vec::new())
            }
            compiled => {
                let files = snapshot.sources.len();
                let first = match compiled {
                    Ok(compiled) => CompileError {
                        mistakes: Vec::new(),
                        warnings: compiled.warnings,
                    },
                    Err(error) => error,
                };
                let mut choice = Choice::new(&self.texts, snapshot.sources, snapshot.unreadable);
                // Names that are not UTF-8 can look the same: then there is no telling which file is which.
                let settled = if choice.distinct(files) {
                    choice.settle(options)
                } else {
                    None
                };
                settled.ok_or_else(|| choice.all_of(first))?
            }
        };
        self.texts = sources
            .into_iter()
            .map(|source| (source.name, source.text))
            .collect();
        Ok(Loaded {
            rules: compiled.rules,
            warnings: compiled.warnings,
            ignored: snapshot.scan.ignored,
            stale,
        })
    }
}

/// Which text of each file is compiled.
struct Choice<'g> {
    good: &'g HashMap<Box<str>, Vec<u8>>,
    /// Files as they are now. In the order of their names, as all of them are compiled.
    fresh: BTreeMap<Box<str>, Vec<u8>>,
    /// Files with what is wrong with them.
    bad: BTreeMap<Box<str>, Vec<Mistake>>,
    /// Of the bad ones, those with a last good text.
    kept: BTreeSet<Box<str>>,
}

impl<'g> Choice<'g> {
    fn new(
        good: &'g HashMap<Box<str>, Vec<u8>>,
        sources: Vec<Source>,
        unreadable: Vec<Mistake>,
    ) -> Self {
        let mut choice = Self {
            good,
            fresh: sources
                .into_iter()
                .map(|source| (source.name, source.text))
                .collect(),
            bad: BTreeMap::new(),
            kept: BTreeSet::new(),
        };
        for mistake in unreadable {
            choice.unreadable(mistake);
        }
        choice
    }

    fn distinct(&self, files: usize) -> bool {
        self.fresh.len() == files
    }

    /// A directory that cannot be read hides the files that were in it: they stay too.
    fn unreadable(&mut self, mistake: Mistake) {
        let place = Path::new(&*mistake.place.file);
        let hidden: Vec<Box<str>> = self
            .good
            .keys()
            .filter(|name| {
                !self.fresh.contains_key(*name) && Path::new(&***name).starts_with(place)
            })
            .cloned()
            .collect();
        for name in &hidden {
            self.blame(name, vec![mistake.clone()]);
        }
        if hidden.is_empty() {
            let name = mistake.place.file.clone();
            self.blame(&name, vec![mistake]);
        }
    }

    fn blame(&mut self, name: &str, mistakes: Vec<Mistake>) {
        self.fresh.remove(name);
        self.bad.entry(name.into()).or_default().extend(mistakes);
        if self.good.contains_key(name) {
            self.kept.insert(name.into());
        }
    }

    /// Takes bad files out until the rest compiles. `None` when that leaves no file as it is written.
    fn settle(&mut self, options: &Options) -> Option<(Vec<Source>, Compiled, Vec<Stale>)> {
        // Each round takes out a file or ends.
        while !self.fresh.is_empty() {
            let Err(error) = compile::compile(&self.changed_last(), options.compile) else {
                return self.finish(options);
            };
            let mut blamed: BTreeMap<Box<str>, Vec<Mistake>> = BTreeMap::new();
            for mistake in error.mistakes {
                let file = mistake.place.file.clone();
                blamed.entry(file).or_default().push(mistake);
            }
            // What is in force compiled as a whole, so a mistake is in a file that changed.
            blamed.retain(|name, _| self.fresh.contains_key(name));
            if blamed.is_empty() {
                return None;
            }
            for (name, mistakes) in blamed {
                self.blame(&name, mistakes);
            }
        }
        None
    }

    fn finish(&self, options: &Options) -> Option<(Vec<Source>, Compiled, Vec<Stale>)> {
        let sources = self.in_order();
        // In the order of their names they say the same, but for which of two patterns comes first.
        let compiled = compile::compile(&sources, options.compile).ok()?;
        let stale = self
            .bad
            .iter()
            .map(|(file, mistakes)| Stale {
                file: file.clone(),
                instead: if self.kept.contains(file) {
                    Instead::LastGood
                } else {
                    Instead::Nothing
                },
                mistakes: mistakes.clone(),
            })
            .collect();
        Some((sources, compiled, stale))
    }

    fn in_order(&self) -> Vec<Source> {
        let mut sources: Vec<Source> = self.kept().chain(self.fresh()).collect();
        sources.sort_by(|a, b| Path::new(&*a.name).cmp(Path::new(&*b.name)));
        sources
    }

    /// Of two files that contradict each other the later one is blamed: that has to be the one that changed.
    fn changed_last(&self) -> Vec<Source> {
        let (settled, changed): (Vec<Source>, Vec<Source>) = self
            .fresh()
            .partition(|source| self.good.get(&source.name) == Some(&source.text));
        self.kept().chain(settled).chain(changed).collect()
    }

    fn fresh(&self) -> impl Iterator<Item = Source> {
        self.fresh.iter().map(|(name, text)| source(name, text))
    }

    fn kept(&self) -> impl Iterator<Item = Source> {
        self.kept
            .iter()
            .filter_map(|name| Some(source(name, self.good.get(name)?)))
    }

    /// Every mistake found, each once.
    fn all_of(&self, first: CompileError) -> CompileError {
        let mut mistakes = first.mistakes;
        mistakes.extend(self.bad.values().flatten().cloned());
        mistakes.sort();
        mistakes.dedup();
        CompileError {
            mistakes,
            warnings: first.warnings,
        }
    }
}

fn source(name: &str, text: &[u8]) -> Source {
    Source {
        name: name.into(),
        text: text.to_vec(),
    }
}
