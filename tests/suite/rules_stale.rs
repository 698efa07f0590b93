//! One bad file among good ones: it stays as it last was, the others load, and everybody can see it.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::mpsc::{Receiver, channel},
    time::Instant,
};

use palang::rules::{
    Domains, compile,
    source::{BadFile, Followed, Instead, Layout, Options, Reload, Source, load},
};
use tempfile::TempDir;

use crate::support::PATIENCE;

struct Watched {
    dir: TempDir,
    reloads: Receiver<Reload>,
    _followed: Followed,
}

impl Watched {
    fn new(files: &[(&str, &str)]) -> Self {
        Self::with(files, Options::default())
    }

    fn with(files: &[(&str, &str)], options: Options) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            put(dir.path(), name, text);
        }
        let (sender, reloads) = channel();
        let layout = Layout::paths([dir.path().to_owned()]);
        let followed = Source::Files(layout, options)
            .follow(move |reload| {
                // The test may be over.
                let _ = sender.send(reload);
            })
            .expect("a thread");
        Self {
            dir,
            reloads,
            _followed: followed,
        }
    }

    /// Replaces files, none of which is ever half written.
    fn change(&self, files: &[(&str, &str)]) {
        let next = tempfile::tempdir_in(self.dir.path()).expect("a dot directory");
        for (name, text) in files {
            put(next.path(), name, text);
        }
        for (name, _) in files {
            fs::rename(next.path().join(name), self.dir.path().join(name)).expect("renamed");
        }
    }

    /// Waits for the state, through whatever comes before it.
    #[track_caller]
    fn expect(&self, state: &str) -> Reload {
        let until = Instant::now() + PATIENCE;
        let mut last = "nothing".to_owned();
        while let Ok(reload) = self
            .reloads
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            last = describe(&reload);
            if last == state {
                return reload;
            }
        }
        panic!("waited for {state}, last came {last}");
    }
}

fn put(dir: &Path, name: &str, text: &str) {
    fs::write(dir.join(name), text).expect("written");
}

/// `a=3 b=5; b.yaml stale`: each domain with the number of its first rule, then what is not as it is written.
fn describe(reload: &Reload) -> String {
    let loaded = match reload {
        Reload::Loaded(loaded) => loaded,
        Reload::Failed(_) => return "bad".to_owned(),
    };
    let mut domains: Vec<String> = loaded
        .rules
        .rules()
        .iter()
        .map(|rule| {
            let limit = rule.limit.as_ref().expect("a limit");
            let domain = rule.path.split('.').next().unwrap_or_default();
            format!("{domain}={}", limit.requests_per_unit)
        })
        .collect();
    domains.sort();
    let mut text = domains.join(" ");
    for stale in &loaded.stale {
        assert!(!stale.mistakes.is_empty(), "{stale:?}");
        let name = stale.file.rsplit('/').next().unwrap_or_default();
        let instead = match stale.instead {
            Instead::LastGood => "stale",
            Instead::Nothing => "absent",
        };
        text.push_str(&format!("; {name} {instead}"));
    }
    text
}

fn rules(domain: &str, requests: u32) -> String {
    format!(
        "domain: {domain}\ndescriptors:\n- key: k\n  rate_limit: {{unit: minute, requests_per_unit: {requests}}}\n"
    )
}

const BAD: &str = "domain: b\ndescriptors: [{kee: x}]\n";

#[test]
fn the_others_load_and_the_bad_one_stays_as_it_was() {
    let watched = Watched::new(&[("a.yaml", &rules("a", 1)), ("b.yaml", &rules("b", 1))]);
    watched.expect("a=1 b=1");
    watched.change(&[("a.yaml", &rules("a", 2)), ("b.yaml", BAD)]);
    let Reload::Loaded(loaded) = watched.expect("a=2 b=1; b.yaml stale") else {
        panic!("loaded")
    };
    let mistakes = &loaded.stale[0].mistakes;
    assert!(
        mistakes
            .iter()
            .any(|mistake| mistake.message.contains("did you mean 'key'?"))
    );
    assert!(mistakes.iter().all(|mistake| mistake.place.line == 2));
    // It stays so while others change, and is over when it is good again or gone.
    watched.change(&[("a.yaml", &rules("a", 3))]);
    watched.expect("a=3 b=1; b.yaml stale");
    watched.change(&[("b.yaml", &rules("b", 2))]);
    watched.expect("a=3 b=2");
    watched.change(&[("b.yaml", "domain: [")]);
    watched.expect("a=3 b=2; b.yaml stale");
    fs::remove_file(watched.dir.path().join("b.yaml")).expect("removed");
    watched.expect("a=3");
    // What it was before it went does not come back.
    watched.change(&[("b.yaml", BAD)]);
    watched.expect("a=3; b.yaml absent");
}

#[test]
fn a_file_that_is_bad_at_the_start_is_absent_until_it_is_good() {
    let watched = Watched::new(&[("a.yaml", &rules("a", 1)), ("b.yaml", BAD)]);
    watched.expect("a=1; b.yaml absent");
    watched.change(&[("b.yaml", &rules("b", 1))]);
    watched.expect("a=1 b=1");
}

#[test]
fn when_no_file_is_good_nothing_changes() {
    let watched = Watched::new(&[("a.yaml", &rules("a", 1)), ("b.yaml", &rules("b", 1))]);
    watched.expect("a=1 b=1");
    watched.change(&[("a.yaml", BAD), ("b.yaml", BAD)]);
    watched.expect("bad");
    watched.change(&[("a.yaml", &rules("a", 2))]);
    watched.expect("a=2 b=1; b.yaml stale");
}

#[test]
fn of_two_files_that_contradict_each_other_the_changed_one_is_bad() {
    let watched = Watched::new(&[("a.yaml", &rules("a", 1)), ("b.yaml", &rules("b", 1))]);
    watched.expect("a=1 b=1");
    // Read first, it would be the other one's fault.
    watched.change(&[("a.yaml", &rules("b", 9))]);
    let Reload::Loaded(loaded) = watched.expect("a=1 b=1; a.yaml stale") else {
        panic!("loaded")
    };
    assert!(
        loaded.stale[0].mistakes[0]
            .message
            .contains("duplicate domain 'b'")
    );
}

#[test]
fn a_stale_file_holds_its_domain() {
    let watched = Watched::new(&[("a.yaml", &rules("a", 1)), ("b.yaml", &rules("b", 1))]);
    watched.expect("a=1 b=1");
    watched.change(&[("c.yaml", &rules("c", 1)), ("b.yaml", BAD)]);
    watched.expect("a=1 b=1 c=1; b.yaml stale");
    watched.change(&[("a.yaml", &rules("b", 9))]);
    watched.expect("a=1 b=1 c=1; a.yaml stale; b.yaml stale");
    // A new file cannot have it either, and a domain that moves with its file can.
    watched.change(&[("0.yaml", &rules("b", 9))]);
    watched.expect("a=1 b=1 c=1; 0.yaml absent; a.yaml stale; b.yaml stale");
    watched.change(&[
        ("0.yaml", &rules("a", 5)),
        ("a.yaml", &rules("b", 5)),
        ("b.yaml", &rules("d", 5)),
    ]);
    watched.expect("a=5 b=5 c=1 d=5");
}

#[test]
fn a_file_that_cannot_be_read_stays_as_it_was() {
    let options = Options {
        max_file_bytes: 200,
        ..Options::default()
    };
    let watched = Watched::with(
        &[("a.yaml", &rules("a", 1)), ("b.yaml", &rules("b", 1))],
        options,
    );
    watched.expect("a=1 b=1");
    let long = format!("{}# {}", rules("b", 2), "x".repeat(200));
    watched.change(&[("b.yaml", &long), ("a.yaml", &rules("a", 2))]);
    watched.expect("a=2 b=1; b.yaml stale");
}

#[test]
fn a_directory_that_cannot_be_read_keeps_its_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let more = dir.path().join("more");
    fs::create_dir(&more).expect("a directory");
    put(&more, "b.yaml", &rules("b", 1));
    let watched = {
        let (sender, reloads) = channel();
        let layout = Layout::paths([dir.path().join("a.yaml"), more.clone()]);
        put(dir.path(), "a.yaml", &rules("a", 1));
        let followed = Source::Files(layout, Options::default())
            .follow(move |reload| {
                // The test may be over.
                let _ = sender.send(reload);
            })
            .expect("a thread");
        Watched {
            dir,
            reloads,
            _followed: followed,
        }
    };
    watched.expect("a=1 b=1");
    // It goes away as a volume does.
    fs::rename(&more, watched.dir.path().join("away")).expect("renamed");
    watched.expect("a=1 b=1; b.yaml stale");
    fs::rename(watched.dir.path().join("away"), &more).expect("renamed");
    watched.expect("a=1 b=1");
}

#[test]
fn links_that_lead_nowhere_keep_what_they_led_to() {
    let home = tempfile::tempdir().expect("a directory");
    let (b, more) = (home.path().join("b.txt"), home.path().join("more"));
    fs::create_dir(&more).expect("a directory");
    put(home.path(), "b.txt", &rules("b", 1));
    put(&more, "c.yaml", &rules("c", 1));
    let watched = Watched::new(&[("a.yaml", &rules("a", 1))]);
    watched.expect("a=1");
    let linked = ["b.yaml", "more"].map(|name| watched.dir.path().join(name));
    symlink(&b, &linked[0]).expect("a link");
    symlink(&more, &linked[1]).expect("a link");
    watched.expect("a=1 b=1 c=1");

    fs::remove_file(&b).expect("removed");
    watched.expect("a=1 b=1 c=1; b.yaml stale");
    fs::rename(&more, home.path().join("away")).expect("renamed");
    watched.expect("a=1 b=1 c=1; b.yaml stale; c.yaml stale");
    // The others go on, and what was gone is found again where it comes back.
    watched.change(&[("a.yaml", &rules("a", 2))]);
    watched.expect("a=2 b=1 c=1; b.yaml stale; c.yaml stale");
    put(home.path(), "b.txt", &rules("b", 2));
    fs::rename(home.path().join("away"), &more).expect("renamed");
    watched.expect("a=2 b=2 c=1");

    // A link that is taken out takes its rules with it, also where it led nowhere.
    fs::remove_file(&b).expect("removed");
    fs::remove_dir_all(&more).expect("removed");
    watched.expect("a=2 b=2 c=1; b.yaml stale; c.yaml stale");
    fs::remove_file(&linked[1]).expect("removed");
    watched.expect("a=2 b=2; b.yaml stale");
    fs::remove_file(&linked[0]).expect("removed");
    watched.expect("a=2");
}

/// The kubelet swaps the volume first, and then takes out the links to what is no longer in it.
#[test]
fn a_key_taken_out_of_a_config_map_is_never_stale() {
    let watched = Watched::new(&[]);
    let dir = watched.dir.path();
    let swap = |version: usize, keys: &[&str]| {
        let fresh = dir.join(format!("..v{version}"));
        fs::create_dir(&fresh).expect("a directory");
        for key in keys {
            put(&fresh, &format!("{key}.yaml"), &rules(key, 1));
        }
        let old = fs::read_link(dir.join("..data")).ok();
        symlink(&fresh, dir.join("..data_tmp")).expect("a link");
        fs::rename(dir.join("..data_tmp"), dir.join("..data")).expect("swapped");
        for key in ["a", "b"] {
            let link = dir.join(format!("{key}.yaml"));
            match (keys.contains(&key), link.is_symlink()) {
                (true, false) => {
                    symlink(format!("..data/{key}.yaml"), link).expect("a link");
                }
                (false, true) => fs::remove_file(link).expect("removed"),
                _ => {}
            }
        }
        if let Some(old) = old {
            fs::remove_dir_all(old).expect("removed");
        }
    };
    let mut seen = Vec::new();
    for round in 0..10 {
        for (version, keys, state) in [
            (2 * round, &["a", "b"][..], "a=1 b=1"),
            (2 * round + 1, &["a"], "a=1"),
        ] {
            swap(version, keys);
            loop {
                let reload = watched.reloads.recv_timeout(PATIENCE).expect("a reload");
                seen.push(describe(&reload));
                if seen.last().is_some_and(|last| last == state) {
                    break;
                }
            }
        }
    }
    assert!(
        !seen.iter().any(|state| state.contains("stale")),
        "{seen:?}"
    );
}

#[test]
fn merged_domains_blame_the_changed_file_too() {
    let options = Options {
        compile: compile::Options {
            domains: Domains::Merged,
            ..compile::Options::default()
        },
        ..Options::default()
    };
    let other = rules("a", 1).replace("key: k", "key: other");
    let watched = Watched::with(&[("a.yaml", &other), ("b.yaml", &rules("a", 2))], options);
    watched.expect("a=1 a=2");
    watched.change(&[("a.yaml", &rules("a", 3))]);
    watched.expect("a=1 a=2; a.yaml stale");
}

#[test]
fn strict_files_load_all_or_nothing() {
    let options = Options {
        bad_file: BadFile::RefusesAll,
        ..Options::default()
    };
    let watched = Watched::with(
        &[("a.yaml", &rules("a", 1)), ("b.yaml", &rules("b", 1))],
        options,
    );
    watched.expect("a=1 b=1");
    watched.change(&[("a.yaml", &rules("a", 2)), ("b.yaml", BAD)]);
    watched.expect("bad");
    watched.change(&[("b.yaml", &rules("b", 2))]);
    watched.expect("a=2 b=2");
}

#[test]
fn the_offline_check_is_all_or_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    put(dir.path(), "a.yaml", &rules("a", 1));
    put(dir.path(), "b.yaml", BAD);
    let layout = Layout::paths([dir.path().to_owned()]);
    load(&layout, &Options::default()).expect_err("refused");
}
