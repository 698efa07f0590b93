//! Settings of what operators may change.

use crate::{go_values, secret::Secret};

/// Settings of what operators may change.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
pub struct AdminArgs {
    /// Who sends this as a bearer token may read and reset counters and take profiles on the debug port. Empty: nobody may.
    #[arg(long, env = "ADMIN_TOKEN", default_value = "", value_parser = go_values::secret, hide_env_values = true)]
    pub admin_token: Secret,
}
