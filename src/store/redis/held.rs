//! A connection that a line has to itself for now.

use std::sync::Arc;

use deadpool::managed::Object;

use super::{node::Place, pool::Pooled, wire::Wire};

/// To be [released](Held::release) in the end.
pub(super) struct Held {
    connection: Pooled,
    place: Arc<Place>,
    /// It has answered a call: it, and the server, were sound once.
    pub(super) has_answered: bool,
    /// Nothing more is to be sent on it, nor by anybody else.
    pub(super) is_spoilt: bool,
}

impl Held {
    pub(super) fn new(connection: Pooled, place: Arc<Place>) -> Self {
        Self {
            connection,
            place,
            has_answered: false,
            is_spoilt: false,
        }
    }

    pub(super) fn wire(&mut self) -> &mut Wire {
        &mut self.connection
    }

    pub(super) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// Gives it back to its pool. An answer that may still come must not meet another call: such a connection is closed
    /// instead.
    pub(super) fn release(self) {
        if self.is_spoilt || !self.connection.is_settled() {
            drop(Object::take(self.connection));
        }
    }
}
