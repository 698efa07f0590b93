//! A connection is made: the socket, encryption, and who we are.

use std::io;

use futures_util::future::select_ok;
use redis::{Cmd, RedisError};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::{
    address::Address,
    pool::Login,
    script::store_error,
    tls::Trust,
    wire::{Socket, Wire},
};
use crate::store::StoreError;

/// What a Redis without users says to a name and a password.
const ONE_ARGUMENT: &str = "wrong number of arguments for 'auth'";

/// Connects. A name is resolved each time: it may mean another server now.
pub(super) async fn open(address: &Address, trust: Option<&Trust>) -> io::Result<Wire> {
    let (host, port) = match address {
        Address::Unix(path) => {
            return Ok(Wire::new(Socket::Unix(UnixStream::connect(path).await?)));
        }
        Address::Tcp { host, port } => (host, *port),
    };
    let found: Vec<_> = lookup_host((host.as_str(), port)).await?.collect();
    if found.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the name has no address",
        ));
    }
    // All at once: one that is silent must not use up the time of the others.
    let dials = found.into_iter().map(|at| Box::pin(TcpStream::connect(at)));
    let (socket, _) = select_ok(dials).await?;
    // A batch is one write: nothing is gained by waiting for more.
    socket.set_nodelay(true)?;
    Ok(Wire::new(match trust {
        Some(trust) => Socket::Tls(Box::new(trust.shake_hands(host, socket).await?)),
        None => Socket::Tcp(socket),
    }))
}

/// Says who we are, and which database is meant. No greeting beyond what is needed: not every proxy and ACL lets it
/// pass.
pub(super) async fn greet(wire: &mut Wire, login: &Login, database: i64) -> Result<(), StoreError> {
    if let Some(password) = &login.password {
        let auth = |user: Option<&String>| {
            let mut command = Cmd::new();
            command.arg("AUTH").arg(user).arg(password.expose());
            command
        };
        let mut answer = wire.query(&auth(login.user.as_ref())).await;
        let too_many = |error: &RedisError| {
            error
                .detail()
                .is_some_and(|text| text.contains(ONE_ARGUMENT))
        };
        if login.user.is_some() && answer.as_ref().is_err_and(too_many) {
            answer = wire.query(&auth(None)).await;
        }
        answer.map_err(|error| not_let_in(&error))?;
    }
    if database != 0 {
        let mut command = Cmd::new();
        command.arg("SELECT").arg(database);
        let answer = wire.query(&command).await;
        answer.map_err(|error| store_error(&error))?;
    }
    Ok(())
}

/// Older servers have no word of their own for a wrong password.
fn not_let_in(error: &RedisError) -> StoreError {
    match store_error(error) {
        StoreError::Refused(word) if &*word == "ERR" => StoreError::Refused("WRONGPASS".into()),
        other => other,
    }
}
