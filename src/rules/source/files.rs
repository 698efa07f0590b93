//! Rule files, read and compiled once. The offline check, the start and every reload come through here.
//!
//! [`load`] takes all of the files or none. A watcher is kinder to the files beside a bad one: see [`BadFile`].

use std::{
    collections::hash_map::DefaultHasher,
    fs::File,
    hash::{Hash, Hasher},
    io::{self, Read},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

pub use super::scan::Ignored;
use super::{last_good::Stale, scan::Scan};
use crate::rules::{CompileError, Mistake, Place, Rules, Source, compile};

/// How often the files are read again when they change while being read.
const ATTEMPTS: usize = 5;

/// The files and directories that hold the rules.
///
/// Of a directory, every `*.yaml` and `*.yml` regular file counts, links followed, in all of its subdirectories;
/// names that begin with a dot never do. A file that is named itself counts whatever its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    paths: Vec<PathBuf>,
}

impl Layout {
    /// These files and directories.
    pub fn paths(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            paths: paths.into_iter().collect(),
        }
    }

    /// The directory that envoyproxy/ratelimit's three settings make; an empty one is left out, and slashes around one
    /// say nothing, as when Go joins paths.
    pub fn runtime(root: &Path, subdirectory: &Path, appdirectory: &Path) -> Self {
        let below = [subdirectory, appdirectory];
        let below = below
            .iter()
            .flat_map(|part| part.components())
            .filter(|part| !matches!(part, Component::RootDir));
        Self {
            paths: vec![root.components().chain(below).collect()],
        }
    }
}

/// How rule files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How they are compiled.
    pub compile: compile::Options,
    /// Largest file that is read, in bytes.
    pub max_file_bytes: u64,
    /// How a watcher learns of changes.
    pub notices: Notices,
    /// What a watcher makes of a bad file among good ones.
    pub bad_file: BadFile,
}

/// What a watcher makes of a bad file among good ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadFile {
    /// It stays as it last was, or is absent if it never was good; the others load.
    #[default]
    StaysAsItWas,
    /// Nothing loads (`--strict-files`).
    RefusesAll,
}

/// How a watcher learns of changes. Either way they are in force within a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Notices {
    /// From the kernel, and by looking.
    #[default]
    Kernel,
    /// By looking alone: for file systems where the kernel's notices are missing or a burden.
    Off,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            compile: compile::Options::default(),
            max_file_bytes: 16 << 20,
            notices: Notices::default(),
            bad_file: BadFile::default(),
        }
    }
}

/// Rules as loaded from files. No file at all is a valid state: no domain, hence no limit.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The rules of all files.
    pub rules: Arc<Rules>,
    /// What is odd about them, in order of the place.
    pub warnings: Vec<Mistake>,
    /// What lies beside the rule files and was not loaded.
    pub ignored: Vec<Ignored>,
    /// Bad files, which are not in force as they are written now, in order of their names. A load that has any counts
    /// as a failed one too.
    pub stale: Vec<Stale>,
}

/// Reads and compiles the rules.
///
/// # Errors
/// Every mistake in the files, and every file and directory that cannot be read.
pub fn load(layout: &Layout, options: &Options) -> Result<Loaded, CompileError> {
    Snapshot::take(layout, options).compile(options)
}

/// The content of all files at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) scan: Scan,
    pub(super) sources: Vec<Source>,
    /// Files and directories, as mistakes.
    pub(super) unreadable: Vec<Mistake>,
}

impl Layout {
    pub(super) fn scan(&self) -> Scan {
        Scan::of(&self.paths)
    }
}

impl Snapshot {
    /// Reads the files until nothing changes meanwhile, so that no mixture of an old and a new set is compiled.
    pub(super) fn take(layout: &Layout, options: &Options) -> Self {
        let mut scan = layout.scan();
        for _ in 1..ATTEMPTS {
            let snapshot = Self::read(scan, options);
            scan = layout.scan();
            if scan == snapshot.scan {
                return snapshot;
            }
        }
        Self::read(scan, options)
    }

    fn read(scan: Scan, options: &Options) -> Self {
        let mut sources = Vec::with_capacity(scan.files.len());
        let mut unreadable: Vec<Mistake> = scan
            .missing
            .iter()
            .map(|(path, reason)| fault(path, format!("cannot be read: {reason}")))
            .collect();
        for (path, _) in &scan.files {
            match read(path, options.max_file_bytes) {
                Ok(Some(text)) => sources.push(Source {
                    name: name(path),
                    text,
                }),
                Ok(None) => unreadable.push(fault(
                    path,
                    format!(
                        "larger than {} bytes, the most that is read of one file",
                        options.max_file_bytes
                    ),
                )),
                Err(error) => unreadable.push(fault(path, format!("cannot be read: {error}"))),
            }
        }
        Self {
            scan,
            sources,
            unreadable,
        }
    }

    /// Links to directories of files that are known, and can no longer be found, as mistakes.
    pub(super) fn hidden<'f>(&self, known: impl Iterator<Item = &'f str> + Clone) -> Vec<Mistake> {
        self.scan
            .dangling()
            .filter(|link| known.clone().any(|file| Path::new(file).starts_with(link)))
            .map(|link| fault(link, "cannot be read: it leads nowhere".to_owned()))
            .collect()
    }

    /// Equal when the same files have the same content, and the same ones cannot be read.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for source in &self.sources {
            (&source.name, &source.text).hash(&mut hasher);
        }
        for fault in &self.unreadable {
            (&fault.place, &fault.message).hash(&mut hasher);
        }
        for link in self.scan.dangling() {
            link.hash(&mut hasher);
        }
        hasher.finish()
    }

    pub(super) fn compile(self, options: &Options) -> Result<Loaded, CompileError> {
        let compiled = compile::compile(&self.sources, options.compile);
        if self.unreadable.is_empty() {
            return compiled.map(|compiled| Loaded {
                rules: compiled.rules,
                warnings: compiled.warnings,
                ignored: self.scan.ignored,
                stale: Vec::new(),
            });
        }
        let (mut mistakes, warnings) = match compiled {
            Ok(compiled) => (Vec::new(), compiled.warnings),
            Err(error) => (error.mistakes, error.warnings),
        };
        mistakes.extend(self.unreadable);
        mistakes.sort();
        Err(CompileError { mistakes, warnings })
    }
}

/// The file's content, `None` when it is larger than `max` bytes.
fn read(path: &Path, max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    File::open(path)?
        .take(max.saturating_add(1))
        .read_to_end(&mut text)?;
    Ok((text.len() as u64 <= max).then_some(text))
}

fn name(path: &Path) -> Box<str> {
    path.to_string_lossy().into()
}

fn fault(path: &Path, message: String) -> Mistake {
    Mistake {
        place: Place {
            file: name(path),
            line: 0,
            column: 0,
        },
        rule: "".into(),
        message: message.into(),
        untold: 0,
    }
}
