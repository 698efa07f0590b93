//! How a server is let in to: who we are, by which encryption, over how many connections. Connects when a connection is
//! first wanted, not before: a service starts, and says that it is not ready, while its Redis is absent.

use std::{path::PathBuf, time::Duration};

use deadpool_redis::{
    Connection, Manager, Pool, PoolError, Runtime,
    redis::{
        AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _,
        RedisConnectionInfo, RedisError, aio::MultiplexedConnection, io::tcp::TcpSettings,
    },
};

use super::{
    address::{Address, Site},
    config::{Config, ConfigError},
    script::store_error,
    tls::{Elsewhere, Trust},
};
use crate::{secret::Secret, store::StoreError};

/// What all servers of one kind are opened with.
#[derive(Clone, Debug)]
pub(super) struct Access {
    credentials: Credentials,
    trust: Option<Trust>,
    database: i64,
    size: usize,
    connect_timeout: Duration,
    recycle_timeout: Duration,
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
    user: Option<String>,
    password: Option<Secret>,
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

    /// Connections to `address`, at most so many.
    pub(super) fn pool(&self, address: &Address, login: &Login) -> Result<Pool, StoreError> {
        let info = self
            .info(address, login)
            .map_err(|error| store_error(&error))?;
        let manager = Manager::new_with_config(info, self.connection(address))
            .map_err(|error| store_error(&error))?;
        Pool::builder(manager)
            .max_size(self.size)
            // An idle connection that does not answer is dropped for the next, or a new one.
            .recycle_timeout(Some(self.recycle_timeout))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| StoreError::Unavailable(error.to_string().into()))
    }

    /// One connection outside any pool, for a question about where to go.
    pub(super) async fn dial(
        &self,
        address: &Address,
    ) -> Result<MultiplexedConnection, StoreError> {
        let login = self.login()?;
        let open = async {
            let client = Client::open(self.info(address, &login)?)?;
            let config = self
                .connection(address)
                .set_response_timeout(Some(self.connect_timeout));
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
        };
        open.await.map_err(|error| store_error(&error))
    }

    fn connection(&self, address: &Address) -> AsyncConnectionConfig {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            // A lane times its calls itself, and drops the connection of one that took too long.
            .set_response_timeout(None);
        match (address, &self.trust) {
            (
                Address::Tcp { host, .. },
                Some(Trust {
                    server_name: Some(_),
                    ..
                }),
            ) => config.set_dns_resolver(Elsewhere(host.clone())),
            _ => config,
        }
    }

    fn info(&self, address: &Address, login: &Login) -> Result<ConnectionInfo, RedisError> {
        let info = match (address, &self.trust) {
            (Address::Unix(path), _) => {
                ConnectionAddr::Unix(path.clone()).into_connection_info()?
            }
            (Address::Tcp { host, port }, Some(trust)) => trust.connection_info(host, *port)?,
            (Address::Tcp { host, port }, None) => {
                ConnectionAddr::Tcp(host.clone(), *port).into_connection_info()?
            }
        };
        // No greeting beyond what is needed: not every proxy and ACL lets it pass.
        let mut redis = RedisConnectionInfo::default()
            .set_db(self.database)
            .set_skip_set_lib_name();
        if let Some(user) = &login.user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &login.password {
            redis = redis.set_password(password.expose());
        }
        Ok(info
            .set_redis_settings(redis)
            // A batch is one write: nothing is gained by waiting for more.
            .set_tcp_settings(TcpSettings::default().set_nodelay(true)))
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

/// A connection that answered a PING just now, or is new.
pub(super) async fn checkout(pool: &Pool) -> Result<Connection, StoreError> {
    pool.get().await.map_err(|error| match error {
        PoolError::Backend(error) => store_error(&error),
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
