//! Asks the sentinels where the primary is.

use redis::{Cmd, from_redis_value};

use super::{
    address::{Address, Site},
    config::{Config, ConfigError},
    pool::Access,
    script::store_error,
};
use crate::store::StoreError;

/// The sentinels of one primary.
#[derive(Debug)]
pub(super) struct Sentinels {
    primary: String,
    sentinels: Vec<(Address, Access)>,
}

impl Sentinels {
    pub(super) fn new(
        config: &Config,
        primary: String,
        sites: &[Site],
    ) -> Result<Self, ConfigError> {
        let sentinels = sites
            .iter()
            .map(|site| Ok((site.address.clone(), Access::to_sentinel(config, site)?)))
            .collect::<Result<_, _>>()?;
        Ok(Self { primary, sentinels })
    }

    /// The primary's address, by the first sentinel that answers. All are asked at once, so that a dead one costs no
    /// time.
    pub(super) async fn primary(&self) -> Result<Address, StoreError> {
        let mut asked: futures_util::stream::FuturesUnordered<_> = self
            .sentinels
            .iter()
            .map(|(address, access)| self.ask(address, access))
            .collect();
        let mut last = StoreError::Unavailable("no sentinel".into());
        while let Some(answer) = futures_util::StreamExt::next(&mut asked).await {
            match answer {
                Ok(address) => return Ok(address),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn ask(&self, address: &Address, access: &Access) -> Result<Address, StoreError> {
        let mut command = Cmd::new();
        command
            .arg("SENTINEL")
            .arg("get-master-addr-by-name")
            .arg(&self.primary);
        let answer = access.ask(address, &command).await?;
        let primary: Option<(String, u16)> =
            from_redis_value(answer).map_err(|error| store_error(&error.into()))?;
        match primary {
            Some((host, port)) => Ok(Address::Tcp { host, port }),
            None => Err(StoreError::Unavailable(
                "the sentinels know no primary of that name".into(),
            )),
        }
    }
}
