//! Where rules come from: files, read and watched.

mod args;
mod files;
mod scan;
mod watch;

pub use args::Args;
pub use files::{Ignored, Layout, Loaded, Notices, Options, load};
pub use watch::{Reload, Watcher};
