//! What the suite's modules share.

pub(crate) mod redis;
pub(crate) mod stores;
