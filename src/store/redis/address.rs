//! Addresses as operators write them.

use std::{fmt, path::PathBuf};

use redis::{ConnectionAddr, IntoConnectionInfo as _};

use super::config::{Config, ConfigError, Kind, SocketType};
use crate::secret::Secret;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// One item of an address: where, and what a url says besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) address: Address,
    pub(super) encrypted: bool,
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) database: i64,
}

/// All of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sites {
    Single(Site),
    Sentinel {
        primary: String,
        sentinels: Vec<Site>,
    },
    Cluster(Vec<Site>),
}

impl Sites {
    pub(super) fn read(config: &Config) -> Result<Self, ConfigError> {
        let mut items = config.url.split(',').map(str::trim);
        let read_all = |items: &mut dyn Iterator<Item = &str>| {
            items
                .map(|item| site(item, SocketType::Tcp))
                .collect::<Result<Vec<_>, _>>()
        };
        Ok(match config.kind {
            Kind::Single => {
                let socket =
                    config.socket_type == SocketType::Unix || config.url.trim().starts_with('/');
                // A url may have a comma in its password.
                if !socket && !config.url.contains("://") && config.url.contains(',') {
                    return Err(ConfigError::List(
                        "several addresses need REDIS_TYPE cluster or sentinel",
                    ));
                }
                Self::Single(site(config.url.trim(), config.socket_type)?)
            }
            Kind::Sentinel => {
                let primary = items.next().unwrap_or_default().to_owned();
                let sentinels = read_all(&mut items)?;
                if primary.is_empty() || sentinels.is_empty() {
                    return Err(ConfigError::List(
                        "sentinels need the primary's name, then at least one sentinel",
                    ));
                }
                Self::Sentinel { primary, sentinels }
            }
            Kind::Cluster => {
                let nodes = read_all(&mut items)?;
                if nodes.iter().any(|node| node.database != 0) {
                    return Err(ConfigError::List("a cluster has no database but 0"));
                }
                Self::Cluster(nodes)
            }
        })
    }

    /// Whether encryption is asked for where there is none.
    pub(super) fn encrypted_sockets(&self, config: &Config) -> bool {
        let (sites, encrypted) = match self {
            Self::Single(site) => (std::slice::from_ref(site), config.tls.is_some()),
            Self::Sentinel { sentinels, .. } => {
                (sentinels.as_slice(), config.sentinel_tls.is_some())
            }
            Self::Cluster(nodes) => (nodes.as_slice(), config.tls.is_some()),
        };
        let socket = |site: &Site| matches!(site.address, Address::Unix(_));
        encrypted && sites.iter().any(socket)
    }
}

/// `host:port` as servers tell it of each other.
pub(super) fn told(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    Some(Address::Tcp {
        host: unbracketed(host).to_owned(),
        port: port.parse().ok()?,
    })
}

fn site(text: &str, socket_type: SocketType) -> Result<Site, ConfigError> {
    if text.contains("://") {
        return from_url(text);
    }
    let address = if socket_type == SocketType::Unix || text.starts_with('/') {
        Address::Unix(PathBuf::from(text))
    } else {
        let (host, port) = text.rsplit_once(':').unwrap_or((text, "6379"));
        let port = port
            .parse()
            .map_err(|_| ConfigError::Address("the port is not a number up to 65535"))?;
        let host = unbracketed(host);
        if host.is_empty() {
            return Err(ConfigError::Address("there is no host"));
        }
        Address::Tcp {
            host: host.to_owned(),
            port,
        }
    };
    Ok(Site {
        address,
        encrypted: false,
        user: None,
        password: None,
        database: 0,
    })
}

fn from_url(text: &str) -> Result<Site, ConfigError> {
    let (plain, encrypted) = match unencrypted(text) {
        Some(plain) if plain.contains('#') => {
            return Err(ConfigError::Address(
                "#insecure would trust every server; REDIS_TLS_SKIP_HOSTNAME_VERIFICATION passes over its name only",
            ));
        }
        Some(plain) => (plain, true),
        None => (text.to_owned(), false),
    };
    let info = plain
        .into_connection_info()
        .map_err(|_| ConfigError::Address("the url cannot be parsed"))?;
    let address = match info.addr() {
        ConnectionAddr::Tcp(host, port) => tcp(host, *port),
        ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
        _ => return Err(ConfigError::Address("the scheme is unknown")),
    };
    let redis = info.redis_settings();
    Ok(Site {
        address,
        encrypted,
        user: redis.username().map(str::to_owned),
        password: redis.password().map(Secret::from),
        database: redis.db(),
    })
}

/// The url without its encryption, which is ours to do; `None` where it asks for none.
fn unencrypted(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let encrypted = ["rediss", "valkeys"];
    encrypted
        .iter()
        .any(|name| scheme.eq_ignore_ascii_case(name))
        .then(|| format!("redis://{rest}"))
}

fn tcp(host: &str, port: u16) -> Address {
    Address::Tcp {
        host: unbracketed(host).to_owned(),
        port,
    }
}

fn unbracketed(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, url: &str) -> Result<Sites, ConfigError> {
        Sites::read(&Config {
            kind,
            url: url.to_owned(),
            ..Config::default()
        })
    }

    fn single(url: &str) -> Site {
        match read(Kind::Single, url) {
            Ok(Sites::Single(site)) => site,
            other => panic!("{url}: {other:?}"),
        }
    }

    #[test]
    fn addresses_are_read_in_all_their_forms() {
        for (url, expected) in [
            ("localhost:6379", tcp("localhost", 6379)),
            ("redis", tcp("redis", 6379)),
            ("[::1]:7000", tcp("::1", 7000)),
            ("redis://[::1]:7000", tcp("::1", 7000)),
            ("redis://h:1/2", tcp("h", 1)),
            ("/run/redis.sock", Address::Unix("/run/redis.sock".into())),
            (
                "unix:///run/redis.sock",
                Address::Unix("/run/redis.sock".into()),
            ),
        ] {
            assert_eq!(single(url).address, expected, "{url}");
        }
        let site = single("rediss://u:p%40%3A%2F%25%23@h:1/2");
        assert_eq!(site.user.as_deref(), Some("u"));
        assert_eq!(site.password, Some(Secret::from("p@:/%#")));
        assert_eq!((site.database, site.encrypted), (2, true));
    }

    #[test]
    fn lists_are_read_as_the_reference_reads_them() {
        let Ok(Sites::Sentinel { primary, sentinels }) =
            read(Kind::Sentinel, "mymaster, s1:26379 ,redis://:pw@s2:1")
        else {
            panic!("a list of sentinels");
        };
        assert_eq!((&*primary, sentinels.len()), ("mymaster", 2));
        assert_eq!(sentinels[0].address, tcp("s1", 26379));
        let Ok(Sites::Cluster(nodes)) = read(Kind::Cluster, "a:1,b:2") else {
            panic!("a list of nodes");
        };
        assert_eq!(nodes[1].address, tcp("b", 2));
        for url in ["mymaster", "", ",s1:1"] {
            assert!(read(Kind::Sentinel, url).is_err(), "{url}");
        }
        for url in ["a:1,b:2", "a,b"] {
            assert!(
                matches!(read(Kind::Single, url), Err(ConfigError::List(_))),
                "{url}"
            );
        }
        for url in ["/run/a,b.sock", "redis://:p,w@a:1"] {
            assert!(read(Kind::Single, url).is_ok(), "{url}");
        }
        assert!(read(Kind::Cluster, "redis://a:1/3").is_err());
        assert!(read(Kind::Cluster, "a:1,").is_err());
    }

    #[test]
    fn what_cannot_be_used_is_refused_without_repeating_it() {
        for url in [
            "h:99999",
            ":1",
            "http://h:1",
            "redis://",
            "rediss://h:1/#insecure",
        ] {
            let error = read(Kind::Single, url).err();
            assert!(
                matches!(error, Some(ConfigError::Address(_))),
                "{url}: {error:?}"
            );
        }
    }
}
