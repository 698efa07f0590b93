//! How large a request may be. What is over a bound is refused by name, counted, and charged nowhere.

use crate::go_values;

/// The bounds of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Bounds")]
pub struct Bounds {
    /// Most descriptors of one request.
    #[arg(long, env = "MAX_DESCRIPTORS", default_value = "100", value_parser = go_values::count)]
    pub max_descriptors: usize,
    /// Most entries of one descriptor.
    #[arg(long, env = "MAX_ENTRIES", default_value = "32", value_parser = go_values::count)]
    pub max_entries: usize,
    /// Longest domain or key, bytes.
    #[arg(long, env = "MAX_KEY_LENGTH", default_value = "1024", value_parser = go_values::count)]
    pub max_key_length: usize,
    /// Longest value, bytes.
    #[arg(long, env = "MAX_VALUE_LENGTH", default_value = "65536", value_parser = go_values::count)]
    pub max_value_length: usize,
    /// Largest gRPC message or HTTP body, bytes.
    #[arg(long, env = "MAX_MESSAGE_SIZE", default_value = "1048576", value_parser = go_values::count)]
    pub max_message_size: usize,
    /// Most bytes of messages and bodies that have come in part, of all connections together.
    #[arg(long, env = "MAX_UNFINISHED_SIZE", default_value = "67108864", value_parser = go_values::count)]
    pub max_unfinished_size: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_descriptors: 100,
            max_entries: 32,
            max_key_length: 1024,
            max_value_length: 65_536,
            max_message_size: 1_048_576,
            max_unfinished_size: 67_108_864,
        }
    }
}

/// What a request was refused for: the label of `palang_bad_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Too many descriptors.
    Descriptors,
    /// Too many entries in a descriptor.
    Entries,
    /// A domain or key that is too long.
    KeyLength,
    /// A value that is too long.
    ValueLength,
    /// A message or body that is too large.
    MessageSize,
    /// A message that is not complete, when there are too many of its kind.
    Unfinished,
    /// Nothing too large: the request does not make sense.
    Meaning,
}

impl Bound {
    /// The label's text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Descriptors => "descriptors",
            Self::Entries => "entries",
            Self::KeyLength => "key_length",
            Self::ValueLength => "value_length",
            Self::MessageSize => "message_size",
            Self::Unfinished => "unfinished",
            Self::Meaning => "meaning",
        }
    }
}
