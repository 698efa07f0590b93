//! `palang healthcheck`.

use std::{process::ExitCode, time::Duration};

use super::client;
use crate::{
    go_values,
    proto::grpc::health::v1::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    },
};

/// Arguments of `palang healthcheck`.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(after_help = "\
Exit code: 0 ready, 1 not ready or not reached.

Example:
  palang healthcheck --address localhost:8081")]
pub(super) struct Args {
    /// Address of the gRPC port
    #[arg(long, default_value = "localhost:8081", value_name = "HOST:PORT")]
    address: String,
    /// Longest time to wait
    #[arg(long, default_value = "1s", value_parser = go_values::duration)]
    timeout: Duration,
    #[command(flatten)]
    tls: client::Tls,
}

pub(super) fn run(args: &Args) -> ExitCode {
    match client::block_on(ask(args)) {
        Ok(ServingStatus::Serving) => {
            println!("ready");
            ExitCode::SUCCESS
        }
        Ok(_) => {
            println!("not ready");
            ExitCode::FAILURE
        }
        Err(cause) => {
            eprintln!("palang: {cause:#}");
            ExitCode::FAILURE
        }
    }
}

async fn ask(args: &Args) -> anyhow::Result<ServingStatus> {
    let channel = client::connect(&args.address, args.timeout, &args.tls).await?;
    let answer = HealthClient::new(channel)
        .check(HealthCheckRequest::default())
        .await?;
    Ok(answer.into_inner().status())
}
