//! How a server is let in to: who we are, by which encryption, over how many connections. Connects when a connection is
//! first wanted, not before: a service starts, and says that it is not ready, while its Redis is absent.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use deadpool::{
    Runtime,
    managed::{self, Hook, Metrics, Object, PoolError, RecycleError, RecycleResult, TimeoutType},
};
use redis::{Cmd, RedisError, Value};
use tokio::time::timeout;

use super::{
    address::{Address, Site},
    config::{Config, ConfigError},
    dial,
    script::store_error,
    tls::Trust,
    wire::Wire,
};
use crate::{secret::Secret, store::StoreError};

/// A connection that lay in the pool for longer is asked for a PING before it is trusted with a call: it may be dead
/// without anybody having said so.
const FRESH: Duration = Duration::from_millis(100);

/// What all servers of one kind are opened with.
#[derive(Clone, Debug)]
pub(super) struct Access {
    credentials: Credentials,
    trust: Option<Trust>,
    database: i64,
    size: usize,
    connect_timeout: Duration,
    recycle_timeout: Duration,
    slot_timeout: Duration,
}

/// Who we are.
#[derive(Clone, Debug, Default)]
struct Credentials {
    user: Option<String>,
    password: Option<Secret>,
    file: Option<PathBuf>,
}

/// Who we are, as of now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
}

impl Credentials {
    /// The url's, unless the settings have their own.
    fn of(site: &Site, auth: Option<&Secret>) -> Self {
        let mut credentials = Self {
            user: site.user.clone(),
            password: site.password.clone(),
            file: None,
        };
        if let Some(auth) = auth {
            match auth.expose().split_once(':') {
                Some((user, password)) => {
                    if !user.is_empty() {
                        credentials.user = Some(user.to_owned());
                    }
                    credentials.password = Some(Secret::from(password));
                }
                None => credentials.password = Some(auth.clone()),
            }
        }
        credentials
    }
}

impl Access {
    /// Most connections to one server.
    pub(super) const fn connections(&self) -> usize {
        self.size
    }

    /// To the servers that hold counters.
    pub(super) fn to_data(config: &Config, site: &Site) -> Result<Self, ConfigError> {
        let mut credentials = Credentials::of(site, config.auth.as_ref());
        if let Some(user) = &config.user {
            credentials.user = Some(user.clone());
        }
        if let Some(password) = &config.password {
            credentials.password = Some(password.clone());
        }
        credentials.file.clone_from(&config.password_file);
        Ok(Self {
            credentials,
            trust: trust(config.tls.as_ref(), site)?,
            database: site.database,
            size: config.pool_size,
            connect_timeout: config.connect_timeout,
            recycle_timeout: config.timeout,
            slot_timeout: config.slot_timeout,
        })
    }

    /// To a sentinel. Its password is its own.
    pub(super) fn to_sentinel(config: &Config, site: &Site) -> Result<Self, ConfigError> {
        Ok(Self {
            credentials: Credentials::of(site, config.sentinel_auth.as_ref()),
            trust: trust(config.sentinel_tls.as_ref(), site)?,
            database: 0,
            size: 1,
            connect_timeout: config.connect_timeout,
            recycle_timeout: config.timeout,
            slot_timeout: config.slot_timeout,
        })
    }

    /// Who we are. A password file is read each time: it may be filled, or changed, while we run.
    pub(super) fn login(&self) -> Result<Login, StoreError> {
        let Credentials {
            user,
            password,
            file,
        } = &self.credentials;
        let password = match file {
            Some(file) => match std::fs::read_to_string(file) {
                Ok(text) => Some(Secret::from(text.trim_end_matches(['\r', '\n']))),
                // Without one Redis might let us in as somebody else.
                Err(error) => {
                    let reason = format!("the password file {}: {error}", file.display());
                    return Err(StoreError::Unavailable(reason.into()));
                }
            },
            None => password.clone(),
        };
        Ok(Login {
            user: user.clone(),
            password,
        })
    }

    /// Connections to `address`, at most so many. Each that is made is counted in `opened`.
    pub(super) fn pool(
        &self,
        address: &Address,
        login: &Login,
        opened: &Arc<AtomicU64>,
    ) -> Result<Pool, StoreError> {
        let opened = Arc::clone(opened);
        Pool::builder(Dialler {
            access: self.clone(),
            address: address.clone(),
            login: login.clone(),
        })
        .max_size(self.size)
        .post_create(Hook::sync_fn(move |_, _| {
            opened.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }))
        .wait_timeout(Some(self.slot_timeout))
        // An idle connection that does not answer is dropped for the next, or a new one.
        .recycle_timeout(Some(self.recycle_timeout))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|error| StoreError::Unavailable(error.to_string().into()))
    }

    /// One connection outside any pool, for a question about where to go, and the answer to that question.
    pub(super) async fn ask(&self, address: &Address, question: &Cmd) -> Result<Value, StoreError> {
        let login = self.login()?;
        let answer = async {
            let mut wire = self.dial(address, &login).await?;
            wire.query(question)
                .await
                .map_err(|error| store_error(&error))
        };
        timeout(self.connect_timeout, answer)
            .await
            .unwrap_or(Err(StoreError::Timeout))
    }

    async fn dial(&self, address: &Address, login: &Login) -> Result<Wire, StoreError> {
        let open = async {
            let mut wire = dial::open(address, self.trust.as_ref())
                .await
                .map_err(|error| store_error(&RedisError::from(error)))?;
            dial::greet(&mut wire, login, self.database).await?;
            Ok(wire)
        };
        timeout(self.connect_timeout, open)
            .await
            .unwrap_or(Err(StoreError::Timeout))
    }
}

fn read(tls: &super::config::Tls) -> Result<Option<Trust>, ConfigError> {
    match Trust::read(tls) {
        Ok(trust) => Ok(Some(trust)),
        Err(wrong) => Err(wrong
            .into_iter()
            .next()
            .expect("an error says what is wrong")),
    }
}

fn trust(tls: Option<&super::config::Tls>, site: &Site) -> Result<Option<Trust>, ConfigError> {
    match (tls, &site.address) {
        (Some(_), Address::Unix(_)) => Err(ConfigError::TlsOnSocket),
        (Some(tls), Address::Tcp { .. }) => read(tls),
        (None, _) if site.encrypted => read(&super::config::Tls::default()),
        (None, _) => Ok(None),
    }
}

/// Connections to one server.
pub(super) type Pool = managed::Pool<Dialler>;

/// One of them. Goes back when it is dropped.
pub(super) type Pooled = Object<Dialler>;

/// Makes the connections of a pool, and looks at those that come out of it again.
pub(super) struct Dialler {
    access: Access,
    address: Address,
    login: Login,
}

impl managed::Manager for Dialler {
    type Type = Wire;
    type Error = StoreError;

    async fn create(&self) -> Result<Wire, StoreError> {
        self.access.dial(&self.address, &self.login).await
    }

    async fn recycle(&self, wire: &mut Wire, metrics: &Metrics) -> RecycleResult<StoreError> {
        if !wire.is_settled() || !wire.is_silent() {
            return Err(RecycleError::message("closed, or in use"));
        }
        if metrics.last_used() < FRESH {
            return Ok(());
        }
        let mut ping = Cmd::new();
        ping.arg("PING");
        match wire.query(&ping).await {
            Ok(_) => Ok(()),
            Err(error) => Err(RecycleError::Backend(store_error(&error))),
        }
    }
}

/// A connection that was there a moment ago, or answered a PING just now, or is new.
pub(super) async fn checkout(pool: &Pool) -> Result<Pooled, StoreError> {
    pool.get().await.map_err(|error| match error {
        PoolError::Backend(error) => error,
        PoolError::Timeout(TimeoutType::Wait) => StoreError::NoConnection,
        PoolError::Timeout(_) => StoreError::Timeout,
        other => StoreError::Unavailable(other.to_string().into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(config: Config) -> Login {
        let sites = super::super::address::Sites::read(&config).expect("an address");
        let super::super::address::Sites::Single(site) = sites else {
            panic!("one server");
        };
        assert!(!format!("{config:?}").contains("secret"));
        let access = Access::to_data(&config, &site).expect("fine");
        access.login().expect("no file")
    }

    #[test]
    fn auth_is_a_password_or_a_user_and_a_password() {
        for (auth, user, password) in [
            ("secret", None, "secret"),
            ("user:se:cret", Some("user"), "se:cret"),
            (":secret", None, "secret"),
        ] {
            let login = login(Config {
                auth: Some(Secret::from(auth)),
                ..Config::default()
            });
            assert_eq!(login.user.as_deref(), user);
            assert_eq!(login.password, Some(Secret::from(password)));
        }
    }

    #[test]
    fn a_password_of_its_own_may_have_colons() {
        let login = login(Config {
            auth: Some(Secret::from("other:secret")),
            user: Some("user".to_owned()),
            password: Some(Secret::from("a:b@/%#")),
            ..Config::default()
        });
        assert_eq!(login.user.as_deref(), Some("user"));
        assert_eq!(login.password, Some(Secret::from("a:b@/%#")));
    }
}
