//! The ports: gRPC, HTTP, metrics and debug. The only room that knows tonic, HTTP and headers.

mod admin;
mod answer;
mod args;
mod bounds;
mod calm;
mod connection;
mod debug;
mod drain;
mod figures;
#[cfg(test)]
mod fixtures;
mod flood;
mod headers;
mod health;
mod http;
mod json;
mod listener;
mod metadata;
mod rls;
mod socket;
mod tls;
mod unary;
mod unfinished;
mod wire;
mod worker;

pub use admin::{metrics as metrics_port, serve as serve_admin};
pub use answer::Settings;
pub use args::{AnswerArgs, Args, Styles};
pub use bounds::{Bound, Bounds};
pub use connection::Age;
pub use debug::{AdminArgs, Debug, router as debug_port};
pub use drain::Drain;
pub use headers::{Header, Headers, Style, Triple};
pub use health::{Readiness, ReadyWhen};
pub use json::response as json_response;
pub use listener::{BindError, Listener};
pub use socket::Socket;
pub use tls::{Names, Tls, TlsArgs, TlsError, TlsErrors};
pub use worker::{Port, Serving, Workers};
