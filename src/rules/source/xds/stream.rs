//! The stream: one after the other, and on each of them answers to what the control plane sends.

use std::{future, sync::Arc, time::Duration};

use prost_types::{Struct, Value, value::Kind};
use tokio::{
    select,
    sync::{Notify, mpsc},
    time::{Instant, sleep, sleep_until},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Request, Status as GrpcStatus,
    metadata::MetadataMap,
    transport::{Channel, Endpoint},
};
use tracing::{debug, error, info, warn};

use super::{
    Options, Status,
    backoff::Attempts,
    resource::{TYPE_URL, World, fault},
    words::{describe, told},
};
use crate::{
    proto::{
        envoy::{
            config::core::v3::Node,
            service::discovery::v3::{
                DiscoveryRequest, DiscoveryResponse,
                aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
            },
        },
        google::rpc,
    },
    rules::{
        CompileError, Mistake,
        source::{Loaded, Reload},
    },
    time::Clock,
};

/// A server that refuses our certificate says so only after our side of the handshake is done, and one that has nothing
/// to send yet may say nothing at all: a call that lives this long is taken for a stream.
const GRACE: Duration = Duration::from_millis(500);

pub(super) struct Room<F> {
    options: Options,
    endpoint: Endpoint,
    on_change: F,
    status: Arc<Status>,
    again: Arc<Notify>,
    clock: Clock,
    attempts: Attempts,
    /// What `on_change` was told last.
    told: Option<Told>,
    /// Why there is no stream, as the log was told; `None` while there is one.
    lost: Option<String>,
}

/// A configuration by its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Good(u64),
    Bad(u64),
}

/// Why there is no stream any more.
#[derive(Debug)]
enum End {
    /// There was none.
    Unreachable(String),
    Broken(String),
    /// Somebody wants a new one.
    Asked,
}

/// What one stream has to remember.
struct Session {
    /// The last version accepted on it.
    acked: String,
    /// The content refused last.
    refused: Option<u64>,
    /// Refusals of the same content, one after the other.
    refusals: Attempts,
}

impl<F: FnMut(Reload)> Room<F> {
    pub(super) fn new(
        options: Options,
        endpoint: Endpoint,
        on_change: F,
        status: Arc<Status>,
        again: Arc<Notify>,
    ) -> Self {
        Self {
            attempts: Attempts::new(options.backoff),
            options,
            endpoint,
            on_change,
            status,
            again,
            clock: Clock::system(),
            told: None,
            lost: None,
        }
    }

    /// Goes on until dropped.
    pub(super) async fn run(mut self) {
        let again = Arc::clone(&self.again);
        loop {
            let begun = Instant::now();
            let end = select! {
                end = self.stream() => end,
                () = again.notified() => End::Asked,
            };
            self.status.set_connected(false);
            // What lived for longer than the longest wait went well, whatever ended it.
            if begun.elapsed() >= self.options.backoff.max && !matches!(end, End::Unreachable(_)) {
                self.attempts.reset();
            }
            let backoff = self.options.backoff;
            let (wait, reason) = match end {
                End::Asked => continue,
                End::Unreachable(reason) => (self.attempts.wait(backoff.unreachable), reason),
                End::Broken(reason) => (self.attempts.wait(backoff.initial), reason),
            };
            self.tell_lost(reason, wait);
            select! {
                () = sleep(wait) => {}
                () = again.notified() => {}
            }
        }
    }

    /// One line for each way of being lost; an hour without a control plane is not an hour of lines.
    fn tell_lost(&mut self, reason: String, wait: Duration) {
        let server = &self.options.server.authority;
        if self.lost.as_ref() == Some(&reason) {
            debug!(%server, reason, retry_in = ?wait, "still no stream to the control plane");
            return;
        }
        warn!(
            %server,
            reason,
            retry_in = ?wait,
            "no stream to the control plane: rules in force stay in force"
        );
        self.lost = Some(reason);
    }

    fn tell_connected(&mut self) {
        if self.status.set_connected(true) {
            self.lost = None;
            info!(
                server = %self.options.server.authority,
                node = self.options.node.id,
                tls = self.options.server.tls.is_some(),
                "connected to the control plane"
            );
        }
    }

    async fn stream(&mut self) -> End {
        let channel = match self.options.server.connect(self.endpoint.clone()).await {
            Ok(channel) => channel,
            Err(error) => return End::Unreachable(error.to_string()),
        };
        match self.talk(channel).await {
            Ok(()) => End::Broken("the control plane closed the stream".to_owned()),
            Err(status) => {
                if status.code() == Code::OutOfRange {
                    // Too large to be read, so it has no nonce to refuse it by.
                    self.status.reject();
                }
                let reason = describe(&status, self.options.max_message_bytes);
                if self.status.connected() {
                    End::Broken(reason)
                } else {
                    End::Unreachable(reason)
                }
            }
        }
    }

    async fn talk(&mut self, channel: Channel) -> Result<(), GrpcStatus> {
        let mut session = Session {
            acked: String::new(),
            refused: None,
            refusals: Attempts::new(self.options.backoff),
        };
        let (answers, requests) = mpsc::channel(4);
        // There is room for one: the channel is new.
        let _ = answers.try_send(self.request(String::new(), String::new()));
        let mut request = Request::new(ReceiverStream::new(requests));
        *request.metadata_mut() = MetadataMap::from_headers(self.options.headers.clone());
        let mut client = AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(self.options.max_message_bytes);
        let call = client.stream_aggregated_resources(request);
        tokio::pin!(call);
        let response = select! {
            response = &mut call => response?,
            () = sleep(GRACE) => {
                self.tell_connected();
                call.await?
            }
        };
        self.tell_connected();
        let mut responses = response.into_inner();
        let mut due: Option<(Instant, DiscoveryRequest)> = None;
        loop {
            let answer_is_due = async {
                match &due {
                    Some((at, _)) => sleep_until(*at).await,
                    None => future::pending().await,
                }
            };
            select! {
                response = responses.message() => {
                    let Some(response) = response? else { return Ok(()) };
                    let (answer, wait) = self.answer(&mut session, response);
                    // Only the last response is worth an answer.
                    due = Some((Instant::now() + wait, answer));
                }
                () = answer_is_due => {
                    if let Some((_, answer)) = due.take()
                        && answers.send(answer).await.is_err()
                    {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Puts a response in force or refuses it; what to say to the control plane, and when.
    fn answer(
        &mut self,
        session: &mut Session,
        response: DiscoveryResponse,
    ) -> (DiscoveryRequest, Duration) {
        let DiscoveryResponse {
            version_info: version,
            resources,
            type_url,
            nonce,
            ..
        } = response;
        let world = World::read(resources);
        let hash = world.hash();
        let compiled = if !type_url.is_empty() && type_url != TYPE_URL {
            let shown: String = type_url.escape_debug().take(200).collect();
            Err(CompileError {
                mistakes: vec![fault(
                    "response".to_owned(),
                    format!("has resources of type '{shown}', not '{TYPE_URL}'"),
                )],
                warnings: Vec::new(),
            })
        } else if self.told == Some(Told::Good(hash)) {
            debug!(version, "the control plane sent again what is in force");
            return (self.accepted(session, version, nonce), Duration::ZERO);
        } else {
            world.compile(self.options.compile)
        };
        match compiled {
            Ok(compiled) => {
                for warning in &compiled.warnings {
                    warn!("{warning}");
                }
                info!(
                    version,
                    resources = compiled.rules.files().len(),
                    domains = compiled.rules.domains().count(),
                    rules = compiled.rules.rules().len(),
                    hash = format_args!("{:016x}", compiled.rules.hash()),
                    "rules loaded from the control plane"
                );
                self.told = Some(Told::Good(hash));
                (self.on_change)(Reload::Loaded(Loaded {
                    rules: compiled.rules,
                    warnings: compiled.warnings,
                    ignored: Vec::new(),
                    stale: Vec::new(),
                }));
                (self.accepted(session, version, nonce), Duration::ZERO)
            }
            Err(failed) => {
                self.status.reject();
                let wait = session.wait_to_refuse(hash, self.options.backoff.unreachable);
                let mut request = self.request(session.acked.clone(), nonce);
                request.error_detail = Some(rpc::Status {
                    code: Code::InvalidArgument.into(),
                    message: told(&failed),
                    details: Vec::new(),
                });
                if self.told != Some(Told::Bad(hash)) {
                    self.told = Some(Told::Bad(hash));
                    for mistake in &failed.mistakes {
                        error!("{mistake}");
                    }
                    error!(
                        version,
                        mistakes = Mistake::count(&failed.mistakes),
                        "rules of the control plane refused, what was in force stays in force"
                    );
                    (self.on_change)(Reload::Failed(failed));
                }
                (request, wait)
            }
        }
    }

    fn accepted(&self, session: &mut Session, version: String, nonce: String) -> DiscoveryRequest {
        self.status.accept(&version, self.clock.now());
        session.refused = None;
        session.acked.clone_from(&version);
        self.request(version, nonce)
    }

    fn request(&self, version_info: String, response_nonce: String) -> DiscoveryRequest {
        let node = &self.options.node;
        let metadata = Struct {
            fields: node
                .metadata
                .iter()
                .map(|(name, value)| {
                    let kind = Some(Kind::StringValue(value.clone()));
                    (name.clone(), Value { kind })
                })
                .collect(),
        };
        DiscoveryRequest {
            version_info,
            node: Some(Node {
                id: node.id.clone(),
                metadata: Some(metadata),
                ..Node::default()
            }),
            resource_names: Vec::new(),
            type_url: TYPE_URL.to_owned(),
            response_nonce,
            error_detail: None,
        }
    }
}

impl Session {
    /// A control plane may answer a refusal with the same content at once, and would do so for ever.
    fn wait_to_refuse(&mut self, hash: u64, first: Duration) -> Duration {
        if self.refused.replace(hash) == Some(hash) {
            return self.refusals.wait(first);
        }
        self.refusals.reset();
        Duration::ZERO
    }
}
