//! Where rules come from: files, read and watched, or a control plane that pushes them.

mod args;
mod files;
mod last_good;
mod scan;
mod watch;
pub mod xds;

use std::{io, sync::Arc};

pub use args::{Args, ConfigType};
pub use files::{BadFile, Ignored, Layout, Loaded, Notices, Options, load};
pub use last_good::{Instead, Stale};
pub use watch::{Reload, Watcher};

/// Where rules come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Rule files.
    Files(Layout, Options),
    /// A control plane.
    Xds(Box<xds::Options>),
}

/// A source that is followed. Stops when dropped.
#[derive(Debug)]
pub enum Followed {
    /// Rule files.
    Files(Watcher),
    /// A control plane.
    Xds(xds::Client),
}

impl Source {
    /// Follows the source. `on_change` is called on a thread of its own: with the outcome of the first load, and then
    /// once for each change of content.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn follow(self, on_change: impl FnMut(Reload) + Send + 'static) -> io::Result<Followed> {
        Ok(match self {
            Self::Files(layout, options) => {
                Followed::Files(Watcher::spawn(layout, options, on_change)?)
            }
            Self::Xds(options) => Followed::Xds(xds::Client::spawn(*options, on_change)?),
        })
    }
}

impl Followed {
    /// Loads the rules again even if nothing changed, such as on SIGHUP. Returns at once.
    pub fn reload(&self) {
        match self {
            Self::Files(watcher) => watcher.reload(),
            Self::Xds(client) => client.reload(),
        }
    }

    /// How the stream of the control plane is doing; `None` with files.
    pub fn xds(&self) -> Option<Arc<xds::Status>> {
        match self {
            Self::Files(_) => None,
            Self::Xds(client) => Some(client.status()),
        }
    }
}
