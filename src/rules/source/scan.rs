//! What is on disk: which files are rule files, what is ignored, and which directories tell of changes.
//!
//! Looks at names and file metadata only; does not read a file.

use std::{
    collections::{BTreeSet, HashSet},
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

/// Most symbolic links followed on the way to one file, as the kernel has it.
const MAX_LINKS: usize = 40;

/// A link that leads to nothing.
const DANGLING: &str = "dangling link";

/// One look at the disk. Two equal scans have the same files, unchanged as far as metadata can tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scan {
    /// The rule files, in order of their paths.
    pub(super) files: Vec<(PathBuf, Stamp)>,
    /// What is there and is no rule file. Dot names are not listed.
    pub(super) ignored: Vec<Ignored>,
    /// What should be there and cannot be read.
    pub(super) missing: Vec<(PathBuf, String)>,
    /// Directories, free of links, whose entries decide what is loaded; with what they are at this moment.
    pub(super) watched: BTreeSet<(PathBuf, u64, u64)>,
}

/// What changes when a file does. A write within one tick of the kernel's clock can leave it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// An entry of a rule directory that is not loaded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ignored {
    /// The entry.
    pub path: PathBuf,
    /// Why it is not loaded.
    pub reason: &'static str,
}

impl Scan {
    /// Links that lead to nothing and do not look like rule files: they may have led to directories of some.
    pub(super) fn dangling(&self) -> impl Iterator<Item = &Path> {
        self.ignored
            .iter()
            .filter(|ignored| ignored.reason == DANGLING)
            .map(|ignored| ignored.path.as_path())
    }

    /// Whether a link leads to nothing: the last step of a deletion may be still to come.
    pub(super) fn dangles(&self) -> bool {
        let missing = self.missing.iter().any(|(_, reason)| reason == DANGLING);
        missing || self.dangling().next().is_some()
    }

    pub(super) fn of(paths: &[PathBuf]) -> Self {
        let mut walk = Walk::default();
        for path in paths {
            walk.top(path);
        }
        let mut scan = walk.scan;
        scan.files.sort_by(|(a, _), (b, _)| a.cmp(b));
        scan.files.dedup_by(|(a, _), (b, _)| a == b);
        scan
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[derive(Default)]
struct Walk {
    scan: Scan,
    /// Directories already read: a link to one of them, or to a directory above, is not read again.
    visited: HashSet<(u64, u64)>,
}

impl Walk {
    /// A path that the operator named: a directory, or a file of any name.
    fn top(&mut self, path: &Path) {
        self.watch_links(path);
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.directory(path, &metadata),
            Ok(metadata) if metadata.is_file() => {
                self.scan
                    .files
                    .push((path.to_owned(), Stamp::of(&metadata)));
            }
            Ok(_) => self.miss(path, "neither a file nor a directory".to_owned()),
            Err(error) => self.miss(path, error.to_string()),
        }
    }

    fn directory(&mut self, path: &Path, metadata: &Metadata) {
        if !self.visited.insert((metadata.dev(), metadata.ino())) {
            return;
        }
        self.watch(path);
        let entries = fs::read_dir(path).and_then(|entries| {
            entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<io::Result<Vec<_>>>()
        });
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.miss(path, error.to_string()),
        };
        entries.sort();
        for entry in entries {
            self.entry(entry);
        }
    }

    fn entry(&mut self, path: PathBuf) {
        let name = path.file_name().map(|name| name.as_encoded_bytes());
        if name.is_none_or(|name| name.starts_with(b".")) {
            return;
        }
        let is_link = path.is_symlink();
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            // A rule file whose text is elsewhere, and gone from there: nobody took it out of the rules.
            Err(error) if is_link && error.kind() == io::ErrorKind::NotFound => {
                self.watch_links(&path);
                return if is_yaml(&path) {
                    self.miss(&path, DANGLING.to_owned());
                } else {
                    self.ignore(path, DANGLING);
                };
            }
            // Gone since the directory was read: the next scan sees the directory without it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return self.miss(&path, error.to_string()),
        };
        if metadata.is_dir() {
            if is_link {
                self.watch_links(&path);
            }
            self.directory(&path, &metadata);
        } else if !metadata.is_file() {
            self.ignore(path, "not a regular file");
        } else if !is_yaml(&path) {
            self.ignore(path, "its name does not end in .yaml or .yml");
        } else {
            if is_link {
                self.watch_links(&path);
            }
            self.scan.files.push((path, Stamp::of(&metadata)));
        }
    }

    fn ignore(&mut self, path: PathBuf, reason: &'static str) {
        self.scan.ignored.push(Ignored { path, reason });
    }

    fn miss(&mut self, path: &Path, reason: String) {
        self.scan.missing.push((path.to_owned(), reason));
    }

    /// Watches the directory of every link on the way to `path`, and of the file or directory it leads to: a swapped
    /// link shows only in the directory that holds the link.
    fn watch_links(&mut self, path: &Path) {
        let Ok(mut path) = std::path::absolute(path) else {
            return;
        };
        for _ in 0..MAX_LINKS {
            let Some((link, target)) = first_link(&path) else {
                break;
            };
            let Some(parent) = link.parent() else {
                break;
            };
            self.watch(parent);
            let rest = path.strip_prefix(&link).unwrap_or(Path::new("")).to_owned();
            path = parent.join(target).join(rest);
        }
        // What is missing shows first in the closest directory there is.
        if let Some(parent) = path.ancestors().skip(1).find(|parent| parent.is_dir()) {
            self.watch(parent);
        }
    }

    fn watch(&mut self, directory: &Path) {
        // A directory that is gone by now is seen by the next scan.
        if let Ok(real) = directory.canonicalize()
            && let Ok(metadata) = fs::metadata(&real)
        {
            self.scan
                .watched
                .insert((real, metadata.dev(), metadata.ino()));
        }
    }
}

/// The first part of the path that is a link, and what it says.
fn first_link(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut prefix = PathBuf::new();
    for component in path.components() {
        prefix.push(component);
        if matches!(component, Component::Normal(_))
            && let Ok(target) = fs::read_link(&prefix)
        {
            return Some((prefix, target));
        }
    }
    None
}

fn is_yaml(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml")
}
