//! The floor: the least that a stock tonic server can do for a call. It says OK to everyone.

use std::{io::Write as _, net::SocketAddr};

use palang::proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
    rate_limit_response::Code,
    rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

/// Makes this program the floor.
pub(crate) const ARGUMENT: &str = "floor";

struct Everyone;

#[tonic::async_trait]
impl RateLimitService for Everyone {
    async fn should_rate_limit(
        &self,
        _request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(RateLimitResponse {
            overall_code: Code::Ok.into(),
            ..RateLimitResponse::default()
        }))
    }
}

/// Serves on a free port, which it prints, until it is killed.
pub(crate) fn serve() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let incoming =
            TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?.with_nodelay(Some(true));
        println!("{}", incoming.local_addr()?);
        std::io::stdout().flush()?;
        Server::builder()
            .add_service(RateLimitServiceServer::new(Everyone))
            .serve_with_incoming(incoming)
            .await?;
        Ok(())
    })
}
