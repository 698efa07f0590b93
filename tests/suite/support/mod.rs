//! What the suite's modules share.

pub(crate) mod quotas;
pub(crate) mod redis;
pub(crate) mod stores;
