//! Every way a rule file changes on a real disk takes effect within a second, and a bad change takes none.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use palang::rules::source::{Layout, Notices, Options, Reload, Watcher, load};
use tempfile::TempDir;

/// What the product promises, and a little for a machine that does other things meanwhile.
const PROMISE: Duration = Duration::from_millis(1_500);

struct Watched {
    watcher: Watcher,
    reloads: Receiver<Reload>,
}

impl Watched {
    fn new(layout: Layout) -> Self {
        Self::with(layout, Notices::Kernel)
    }

    fn with(layout: Layout, notices: Notices) -> Self {
        let (sender, reloads) = channel();
        let options = Options {
            notices,
            ..Options::default()
        };
        let watcher = Watcher::spawn(layout, options, move |reload| {
            // The test may be over.
            let _ = sender.send(reload);
        })
        .expect("a thread");
        Self { watcher, reloads }
    }

    fn on(path: &Path) -> Self {
        Self::new(Layout::paths([path.to_owned()]))
    }

    /// Waits for the state, through whatever comes before it.
    #[track_caller]
    fn expect(&self, state: &str) {
        let until = Instant::now() + PROMISE;
        let mut last = "nothing".to_owned();
        while let Ok(reload) = self
            .reloads
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            last = describe(&reload);
            if last == state {
                return;
            }
        }
        panic!("waited for {state}, last came {last}");
    }

    /// Nothing is reloaded while two polls go by.
    #[track_caller]
    fn expect_quiet(&self) {
        match self.reloads.recv_timeout(Duration::from_millis(1_100)) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(reload) => panic!("reloaded for nothing: {}", describe(&reload)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// `a=3 b=5`: each domain with the number of its first rule; or `bad`.
fn describe(reload: &Reload) -> String {
    let Reload::Loaded(loaded) = reload else {
        return "bad".to_owned();
    };
    let mut domains: Vec<String> = loaded
        .rules
        .rules()
        .iter()
        .map(|rule| {
            let domain = rule.path.split('.').next().unwrap_or_default();
            let requests = rule
                .limit
                .as_ref()
                .map_or(0, |limit| limit.requests_per_unit);
            format!("{domain}={requests}")
        })
        .collect();
    domains.sort();
    domains.join(" ")
}

fn rules(domain: &str, requests: u32) -> String {
    format!(
        "domain: {domain}\ndescriptors:\n- key: k\n  rate_limit: {{unit: minute, requests_per_unit: {requests}}}\n"
    )
}

fn put(path: impl AsRef<Path>, domain: &str, requests: u32) {
    fs::write(path, rules(domain, requests)).expect("written");
}

fn temp() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// A Kubernetes volume: `c.yaml -> ..data/c.yaml`, `..data -> ..t<version>`.
fn swap_data(dir: &Path, version: u32) {
    let fresh = dir.join(format!("..t{version}"));
    fs::create_dir(&fresh).expect("a directory");
    put(fresh.join("c.yaml"), "d", version);
    let old = fs::read_link(dir.join("..data")).ok();
    symlink(format!("..t{version}"), dir.join("..tmp")).expect("a link");
    fs::rename(dir.join("..tmp"), dir.join("..data")).expect("swapped");
    if let Some(old) = old {
        fs::remove_dir_all(dir.join(old)).expect("removed");
    } else {
        symlink("..data/c.yaml", dir.join("c.yaml")).expect("a link");
    }
}

#[test]
fn files_come_change_and_go() {
    come_change_and_go(Notices::Kernel);
}

#[test]
fn files_come_change_and_go_without_notices() {
    come_change_and_go(Notices::Off);
}

fn come_change_and_go(notices: Notices) {
    let dir = temp();
    let file = dir.path().join("a.yaml");
    put(&file, "a", 1);
    let watched = Watched::with(Layout::paths([dir.path().to_owned()]), notices);
    watched.expect("a=1");

    put(&file, "a", 2);
    watched.expect("a=2");

    // As editors save.
    put(dir.path().join("a.yaml.tmp"), "a", 3);
    fs::rename(dir.path().join("a.yaml.tmp"), &file).expect("renamed");
    watched.expect("a=3");

    put(dir.path().join("b.yml"), "b", 1);
    watched.expect("a=3 b=1");

    fs::create_dir(dir.path().join("more")).expect("a directory");
    put(dir.path().join("more/c.yaml"), "c", 1);
    watched.expect("a=3 b=1 c=1");
    put(dir.path().join("more/c.yaml"), "c", 2);
    watched.expect("a=3 b=1 c=2");

    fs::rename(dir.path().join("more"), dir.path().join(".more")).expect("hidden");
    watched.expect("a=3 b=1");
    fs::remove_file(&file).expect("removed");
    watched.expect("b=1");
    // No file is a state like any other: no domain.
    fs::remove_file(dir.path().join("b.yml")).expect("removed");
    watched.expect("");
    put(&file, "a", 4);
    watched.expect("a=4");
}

#[test]
fn a_bad_file_changes_nothing_and_is_told_once() {
    let dir = temp();
    let file = dir.path().join("a.yaml");
    put(&file, "a", 1);
    let watched = Watched::on(dir.path());
    watched.expect("a=1");
    fs::write(&file, "domain: a\ndescriptors: [{kee: x}]\n").expect("written");
    watched.expect("bad");
    watched.expect_quiet();
    put(&file, "a", 2);
    watched.expect("a=2");
}

#[test]
fn the_same_content_is_not_loaded_again_unless_asked_for() {
    let dir = temp();
    let file = dir.path().join("a.yaml");
    put(&file, "a", 1);
    let watched = Watched::on(dir.path());
    watched.expect("a=1");
    put(&file, "a", 1);
    fs::write(dir.path().join("README"), "unrelated").expect("written");
    watched.expect_quiet();
    watched.watcher.reload();
    watched.expect("a=1");
}

#[test]
fn every_swap_of_a_kubernetes_volume_is_seen() {
    every_swap(Notices::Kernel);
}

#[test]
fn every_swap_of_a_kubernetes_volume_is_seen_without_notices() {
    every_swap(Notices::Off);
}

fn every_swap(notices: Notices) {
    let dir = temp();
    swap_data(dir.path(), 1);
    let watched = Watched::with(Layout::paths([dir.path().to_owned()]), notices);
    watched.expect("d=1");
    for version in 2..=21 {
        swap_data(dir.path(), version);
        // The pace is what is tested here: swaps that come faster than they are loaded.
        std::thread::sleep(Duration::from_millis(100));
    }
    watched.expect("d=21");
    // The watch is still alive, also for the directory behind the link.
    swap_data(dir.path(), 22);
    watched.expect("d=22");
    put(dir.path().join("..data/c.yaml"), "d", 23);
    watched.expect("d=23");
    watched.expect_quiet();
}

#[test]
fn only_yaml_files_that_are_not_dot_named_are_loaded() {
    let dir = temp();
    swap_data(dir.path(), 1);
    for junk in [
        ".c.yaml.swp",
        ".hidden.yaml",
        "c.yaml~",
        "c.yaml.bak",
        "README",
    ] {
        fs::write(dir.path().join(junk), rules("d", 9)).expect("written");
    }
    fs::create_dir(dir.path().join("empty")).expect("a directory");
    symlink("nowhere", dir.path().join("dangling")).expect("a link");
    symlink(".", dir.path().join("loop")).expect("a link");
    let _socket = UnixListener::bind(dir.path().join("s.yaml")).expect("a socket");

    let layout = Layout::paths([dir.path().to_owned()]);
    let loaded = load(&layout, &Options::default()).expect("loads");
    assert_eq!(loaded.rules.files().len(), 1);
    let mut ignored: Vec<_> = loaded
        .ignored
        .iter()
        .map(|ignored| {
            (
                ignored
                    .path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default(),
                ignored.reason,
            )
        })
        .collect();
    ignored.sort_unstable();
    let not_yaml = "its name does not end in .yaml or .yml";
    assert_eq!(
        ignored,
        [
            ("README", not_yaml),
            ("c.yaml.bak", not_yaml),
            ("c.yaml~", not_yaml),
            ("dangling", "dangling link"),
            ("s.yaml", "not a regular file"),
        ]
    );
}

#[test]
fn the_root_may_be_a_link_that_is_swapped() {
    let dir = temp();
    for version in [1, 2] {
        let config = dir.path().join(format!("v{version}/ratelimit/config"));
        fs::create_dir_all(&config).expect("directories");
        put(config.join("a.yaml"), "a", version);
    }
    let current = dir.path().join("current");
    symlink("v1", &current).expect("a link");
    let watched = Watched::new(Layout::runtime(
        &current,
        Path::new("ratelimit"),
        Path::new("config"),
    ));
    watched.expect("a=1");
    symlink("v2", dir.path().join("next")).expect("a link");
    fs::rename(dir.path().join("next"), &current).expect("swapped");
    watched.expect("a=2");
    put(dir.path().join("v2/ratelimit/config/a.yaml"), "a", 3);
    watched.expect("a=3");
}

#[test]
fn a_directory_that_comes_later_is_loaded_when_it_comes() {
    let dir = temp();
    let late = dir.path().join("late/config");
    let watched = Watched::on(&late);
    watched.expect("bad");
    watched.expect_quiet();
    fs::create_dir_all(&late).expect("directories");
    watched.expect("");
    put(late.join("a.yaml"), "a", 1);
    watched.expect("a=1");
    // Gone as a whole is not the same as empty: a volume that went away keeps the rules.
    fs::rename(&late, dir.path().join("late/away")).expect("renamed");
    watched.expect("bad");
    fs::rename(dir.path().join("late/away"), &late).expect("renamed");
    watched.expect("a=1");
}

#[test]
fn a_single_file_of_any_name_is_watched() {
    let dir = temp();
    let file = dir.path().join("rules.conf");
    put(&file, "a", 1);
    let watched = Watched::on(&file);
    watched.expect("a=1");
    put(&file, "a", 2);
    watched.expect("a=2");
}

#[test]
fn links_to_files_elsewhere_are_followed_and_watched() {
    let (dir, other) = (temp(), temp());
    put(other.path().join("real.yaml"), "a", 1);
    symlink(other.path().join("real.yaml"), dir.path().join("a.yaml")).expect("a link");
    symlink(other.path(), dir.path().join("more")).expect("a link");
    let watched = Watched::on(&dir.path().join("a.yaml"));
    watched.expect("a=1");
    put(other.path().join("real.yaml"), "a", 2);
    watched.expect("a=2");
    let linked = Watched::on(&dir.path().join("more"));
    linked.expect("a=2");
}
