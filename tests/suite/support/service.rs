//! The service inside the test's process, on free ports, with its clock in the test's hand.

use std::{collections::BTreeMap, net::SocketAddr};

use palang::{
    proto::envoy::service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_service_client::RateLimitServiceClient,
    },
    time::{Clock, SECOND, Timestamp},
};
use prost_types::{Struct, value::Kind};
use serde_json::Value;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
