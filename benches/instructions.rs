//! Instructions that the pure parts of a decision take, counted by callgrind: exact and the same on every run, where
//! times on a shared machine are neither.
//!
//! Each part runs twice under valgrind, with a few and with many decisions; the difference is what they cost. Run by
//! `cargo test`, each part only runs once, without valgrind.

use std::{env, fmt::Write as _, hint::black_box, process::Command, sync::Arc};

use anyhow::Context as _;
use futures_util::FutureExt as _;
use palang::{
    algorithm::{Outcome, Quota, Source},
    counter::{Atomicity, Counter},
    request::{Descriptor, Entry, Request},
    rules::{
        Modes, Rules,
        source::{Layout, Options, load},
    },
    store::{Memory, Store as _, memory::Config},
    time::{Clock, Timestamp},
    verdict::Verdict,
};

/// Decisions of the short and of the long run.
const RUNS: [u64; 2] = [100, 1_100];

const PARTS: [&str; 8] = [
    "plan, 1 descriptor",
    "plan, 4 descriptors",
    "verdict, 1 descriptor",
    "verdict, 4 descriptors",
    "memory take, fixed_window",
    "memory take, token_bucket",
    "memory take, sliding_window",
    "memory take, 4 token buckets",
];

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [part, times] = arguments.as_slice()
        && let Some(part) = PARTS.iter().find(|name| *name == part)
    {
        return run(part, times.parse()?);
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        return PARTS.iter().try_for_each(|part| run(part, 10));
    }
    let mut text = String::from("| part | instructions |\n|---|--:|\n");
    for part in PARTS {
        let [short, long] = [count(part, RUNS[0])?, count(part, RUNS[1])?];
        let each = long.saturating_sub(short) / (RUNS[1] - RUNS[0]);
        // A String takes every write.
        let _ = writeln!(text, "| {part} | {each} |");
    }
    print!("{text}");
    Ok(())
}

/// Instructions of this program when it runs a part so often.
fn count(part: &str, times: u64) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(env::current_exe()?)
        .args([part, &times.to_string()])
        .output()
        .context("cannot start valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{part} failed:\n{said}");
    let collected = said
        .lines()
        .find_map(|line| line.split_once("Collected :"))
        .with_context(|| format!("valgrind does not say what it collected:\n{said}"))?;
    Ok(collected.1.trim().parse()?)
}

fn run(part: &str, times: u64) -> anyhow::Result<()> {
    let descriptors = if part.contains('4') { 4 } else { 1 };
    match part.split_once(',').context("a part has a comma")? {
        ("plan", _) => {
            let (rules, request) = (rules()?, request(descriptors));
            for _ in 0..times {
                black_box(rules.plan(black_box(&request), Modes::default()));
            }
        }
        ("verdict", _) => {
            let (rules, request) = (rules()?, request(descriptors));
            // As many plans in both runs, made before and never dropped: only the verdicts make the difference.
            let mut plans: Vec<_> = (0..RUNS[1].max(times))
                .map(|_| rules.plan(&request, Modes::default()))
                .collect();
            for plan in plans.drain(..times as usize) {
                let outcomes = plan.counters.iter().map(|_| Ok(ALLOWED)).collect();
                std::mem::forget(black_box(Verdict::new(plan, outcomes)?));
            }
            std::mem::forget(plans);
        }
        (_, algorithm) => {
            let window = 60_000_000;
            let quota = match algorithm.trim() {
                "fixed_window" => Quota::fixed_window(1_000_000, window)?,
                "sliding_window" => Quota::sliding_window(1_000_000, window)?,
                _ => Quota::token_bucket(1_000_000, window, 1_000_000)?,
            };
            let clock = Clock::manual(Timestamp::from_micros(1_767_571_200_000_000));
            let memory = Memory::new(clock, Config::default());
            let counters: Vec<Counter> = rules()?
                .plan(&request(descriptors), Modes::default())
                .counters
                .into_iter()
                .map(|counter| Counter { quota, ..counter })
                .collect();
            for _ in 0..times {
                let taken = memory.take(black_box(&counters), Atomicity::PerCounter);
                black_box(taken.now_or_never().context("memory does not wait")?);
            }
        }
    }
    Ok(())
}

const ALLOWED: Outcome = Outcome {
    allowed: true,
    remaining: 9,
    reset_after: 1_000,
    retry_after: Some(0),
    next_after: Some(1_000),
    delay: 0,
    used: 1,
    source: Source::Counter,
    basis: None,
};

fn rules() -> anyhow::Result<Arc<Rules>> {
    let home = tempfile::tempdir()?;
    let mut text = String::from("domain: bench\ndescriptors:\n");
    for key in ["a", "b", "c", "d"] {
        let _ = writeln!(
            text,
            "- key: {key}\n  rate_limit: {{unit: minute, requests_per_unit: 1000000, algorithm: token_bucket}}"
        );
    }
    let file = home.path().join("rules.yaml");
    std::fs::write(&file, text)?;
    let layout = Layout::paths([file]);
    let loaded =
        load(&layout, &Options::default()).map_err(|mistakes| anyhow::anyhow!("{mistakes}"))?;
    Ok(loaded.rules)
}

fn request(descriptors: usize) -> Request {
    let keys = ["a", "b", "c", "d"];
    Request {
        domain: "bench".to_owned(),
        descriptors: keys[..descriptors]
            .iter()
            .map(|key| Descriptor {
                entries: vec![Entry {
                    key: (*key).to_owned(),
                    value: "user-1234567".to_owned(),
                }],
                hits: 1,
                limit: None,
            })
            .collect(),
    }
}
