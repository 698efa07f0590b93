//! What a store says of one counter.

use super::Basis;

/// The answer for one counter at one instant. Times are microseconds from that instant.
///
/// On a peek or a refusal nothing was charged (but see `fixed_window`, which counts refused hits), and the figures
/// describe the state as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// May the hits go through? For a give-back always true.
    pub allowed: bool,
    /// How many hits of cost 1 would be admitted now, one after the other, after this decision.
    pub remaining: u64,
    /// Time until the counter is as if nothing had been taken. 0 when nothing is taken; but a fixed window always
    /// tells the time to its end (1 to the window's length), as envoyproxy/ratelimit does.
    pub reset_after: u64,
    /// The least time after which the same hits would be admitted if nobody else came.
    /// `Some(0)` when allowed, `None` when the hits are more than the counter can ever hold.
    pub retry_after: Option<u64>,
    /// Time until `remaining` grows by itself; `None` when it is as high as it gets.
    pub next_after: Option<u64>,
    /// How long the caller is to wait before it goes ahead. Only a queue (`max_delay`) says more than 0.
    pub delay: u64,
    /// Hits that stand against the limit after this decision. `fixed_window` counts refused hits here too,
    /// so it may exceed the limit.
    pub used: u64,
    /// Where the answer comes from.
    pub source: Source,
    /// What a refusal was based on, where its store says so; the answer is complete without it.
    pub basis: Option<Basis>,
}

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// The counter's own state.
    #[default]
    Counter,
    /// A refusal that was remembered: the counter was not asked.
    DenyCache,
    /// This replica's own count, kept while the store cannot decide.
    Local,
}
