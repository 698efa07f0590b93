//! The integration suite: one binary for all of it.

mod rules_check;
mod rules_fuzz;
mod rules_stale;
mod rules_watch;
mod xds;
