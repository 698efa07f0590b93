//! What the machine does by itself: how late it wakes a timer, and how long it leaves threads waiting that want to run.

use std::{collections::HashMap, fs, time::Duration};

use tokio::time::Instant;

use super::support::{faults::Call, process::Process};

/// A call, and the time that the machine added to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) call: Call,
    pub(crate) budget: Duration,
    /// What a timer of the budget's length was late by that was set in the same client at the same time; and what those
    /// threads of the client and of the service waited for a processor meanwhile that waited longest.
    pub(crate) machine: Duration,
}

/// Both ends of a call.
#[derive(Clone, Debug)]
pub(crate) struct Ends([u32; 2]);

impl Ends {
    /// This process and `service`.
    pub(crate) fn of(service: &Process) -> Self {
        Self([std::process::id(), service.id()])
    }

    /// Makes a call with a control beside it.
    pub(crate) async fn time(&self, call: impl Future<Output = Call>, budget: Duration) -> Timed {
        let before = self.0.map(waited);
        let since = Instant::now();
        let timer = async {
            tokio::time::sleep(budget).await;
            since.elapsed().saturating_sub(budget)
        };
        let call = async {
            let call = call.await;
            let waits = self.0.iter().zip(before).map(|(process, before)| {
                let more = waited(*process).into_iter().map(|(thread, after)| {
                    let before = before.get(&thread).copied().unwrap_or_default();
                    after.saturating_sub(before)
                });
                more.max().unwrap_or_default()
            });
            (call, waits.sum::<Duration>())
        };
        let ((call, waits), late) = tokio::join!(call, timer);
        Timed {
            call,
            budget,
            machine: late + waits,
        }
    }
}

/// How long each thread of a process has waited for a processor since it began, where the system tells.
fn waited(process: u32) -> HashMap<String, Duration> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else {
        return HashMap::new();
    };
    threads
        .filter_map(|thread| {
            let thread = thread.ok()?;
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            let nanos = text.split_whitespace().nth(1)?.parse().ok()?;
            let name = thread.file_name().into_string().ok()?;
            Some((name, Duration::from_nanos(nanos)))
        })
        .collect()
}
