//! Pure integer arithmetic: no clock, no I/O.

mod outcome;
mod quota;

pub use outcome::Outcome;
pub use quota::{MAX_LOG, MAX_WINDOW, Quota, QuotaError, Rate};

/// 2^53 - 1: the largest number a Lua double counts exactly, hence the bound of every count, time and product.
pub const MAX: u64 = (1 << 53) - 1;
