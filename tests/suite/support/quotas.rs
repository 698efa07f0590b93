//! Short names for limits.

use palang::algorithm::Quota;

const SECOND: u64 = 1_000_000;

/// One of each algorithm, five hits or so in a second.
pub(crate) fn five() -> [Quota; 5] {
    [
        bucket(2, SECOND, 5),
        log(5),
        fixed(5),
        sliding(5),
        queue(2, SECOND, SECOND),
    ]
}

pub(crate) fn bucket(limit: u64, window: u64, capacity: u64) -> Quota {
    Quota::token_bucket(limit, window, capacity).expect("legal")
}

pub(crate) fn queue(limit: u64, window: u64, max_delay: u64) -> Quota {
    Quota::leaky_bucket(limit, window, max_delay).expect("legal")
}

pub(crate) fn fixed(limit: u64) -> Quota {
    Quota::fixed_window(limit, SECOND).expect("legal")
}

pub(crate) fn sliding(limit: u64) -> Quota {
    Quota::sliding_window(limit, SECOND).expect("legal")
}

pub(crate) fn log(limit: u64) -> Quota {
    Quota::sliding_log(limit, SECOND).expect("legal")
}
