//! What a decision costs, as ratios to a bare tonic server that only says OK. `make bench` runs it.
//!
//! Absolute numbers depend on the machine and on what else it does, ratios taken side by side much less: each round
//! measures every case once, every ratio is taken within a round, and the median of the rounds is shown. The service,
//! the floor, Redis and the load generator are processes of their own, so that each one's CPU time is its own.
//!
//! `BENCH_ROUNDS` and `BENCH_SECONDS` (for each case) set how long it takes, `BENCH_ONLY=memory;hot` (parts of names,
//! separated by semicolons) leaves out the cases whose names have none of them, but for the floor's; `BENCH_QUICK=1`, or
//! a run by `cargo test`, only shows that everything works. `BENCH_OTHER=name=HOST:PORT` (several separated by commas)
//! measures other services that are running, in the same rounds and against the same floor.

mod bars;
mod cases;
mod floor;
mod processes;
mod sample;
mod table;

use std::{env, io::IsTerminal as _, time::Duration};

use anyhow::Context as _;

use crate::{
    cases::{CASES, Servers},
    sample::Results,
};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    rounds: usize,
    each: Duration,
    live_keys: usize,
}

impl Scale {
    fn of_environment() -> anyhow::Result<Self> {
        // cargo bench says --bench, cargo test does not.
        let is_bench = env::args().any(|argument| argument == "--bench");
        let is_quick = env::var("BENCH_QUICK").is_ok_and(|quick| quick == "1");
        if !is_bench || is_quick {
            return Ok(Self {
                rounds: 1,
                each: Duration::from_millis(100),
                live_keys: 10_000,
            });
        }
        let number = |name: &str, otherwise: f64| -> anyhow::Result<f64> {
            match env::var(name) {
                Ok(text) => text.parse().with_context(|| format!("{name} is no number")),
                Err(_) => Ok(otherwise),
            }
        };
        Ok(Self {
            rounds: number("BENCH_ROUNDS", 7.0)? as usize,
            each: Duration::from_secs_f64(number("BENCH_SECONDS", 1.2)?),
            live_keys: 1_000_000,
        })
    }
}

fn main() -> anyhow::Result<()> {
    if env::args().nth(1).as_deref() == Some(floor::ARGUMENT) {
        return floor::serve();
    }
    let scale = Scale::of_environment()?;
    let only = env::var("BENCH_ONLY").unwrap_or_default();
    let mut cases: Vec<_> = CASES
        .iter()
        .copied()
        .filter(|case| case.is_wanted(&only))
        .collect();
    cases.extend(cases::others()?);
    let servers = Servers::start()?;
    let bytes_per_key = if cases.iter().any(|case| case.needs_live_keys()) {
        eprintln!("filling {} keys", scale.live_keys);
        Some(servers.fill(scale.live_keys)?)
    } else {
        None
    };
    let mut results = Results::default();
    let shows = std::io::stderr().is_terminal();
    for round in 1..=scale.rounds {
        for case in &cases {
            if shows {
                eprint!("\rround {round} of {}: {:<32}", scale.rounds, case.name);
            }
            let sample = servers
                .measure(case, scale)
                .with_context(|| format!("{} in round {round}", case.name))?;
            results.add(case.name, sample);
        }
    }
    if shows {
        eprint!("\r{:60}\r", "");
    }
    print!("{}", table::of(&cases, &results));
    print!("{}", bars::of(&cases, &results, bytes_per_key));
    Ok(())
}
