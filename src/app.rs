//! The composition root: from settings to running rooms, and in order out again.
//!
//! Sockets are bound first, so that a mistake in an address shows at once and nothing runs half. The admin ports run on
//! the caller's runtime, decisions on the workers' own.

mod exports;
mod intake;
mod ports;
mod store;

use std::{env, num::NonZeroUsize, sync::Arc, thread, time::Duration};

use anyhow::Context as _;
use tokio::{
    runtime,
    sync::oneshot,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    limiter::{InForce, Limiter},
    rules::source::Followed,
    server::{
        Age, Debug, Drain, Port, Readiness, Serving, Settings as AnswerSettings, Tls, Workers,
        debug_port, metrics_port, serve_admin,
    },
    settings::Settings,
    shutdown::{Reload, Shutdown, on_signals},
    store::{
        DenyCache, Guard, Memory, PerSecond, Redis, Store,
        deny_cache::Refusals,
        guard::{self, Replicas},
    },
    telemetry::{Stores, metrics::Metrics, statsd::Reporter, throttle::Throttle},
    time::Clock,
};

use exports::Exports;
pub use intake::Intake;
pub use ports::Addresses;
use ports::Ports;

/// Longest time that connections wait for the first rules.
const FIRST_LOAD: Duration = Duration::from_secs(2);

/// A process that has its sockets and serves nobody yet.
#[derive(Debug)]
pub struct App {
    settings: Settings,
    clock: Clock,
    ports: Ports,
    tls: Option<Arc<Tls>>,
    rules: Arc<InForce>,
    metrics: Arc<Metrics>,
    readiness: Readiness,
}

impl App {
    /// Binds every socket. Counters in this process go by `clock`.
    ///
    /// # Errors
    /// The first socket that cannot be bound, with the settings that ask for it.
    pub fn bind(settings: Settings, clock: Clock) -> anyhow::Result<Self> {
        let server = &settings.server;
        let metrics = Arc::new(Metrics::new(settings.metrics));
        let tls =
            Tls::load(&server.tls, Arc::clone(&metrics)).context("cannot serve gRPC over TLS")?;
        let ports = Ports::bind(&settings)?;
        Ok(Self {
            tls,
            ports,
            clock,
            rules: Arc::default(),
            metrics,
            readiness: Readiness::new(settings.rules.ready_when()),
            settings,
        })
    }

    /// Where the sockets are.
    pub fn addresses(&self) -> Addresses {
        self.ports.addresses()
    }

    /// Where rules are handed in.
    pub fn intake(&self) -> Intake {
        Intake {
            rules: Arc::clone(&self.rules),
            metrics: Arc::clone(&self.metrics),
            readiness: self.readiness.clone(),
        }
    }

    /// Serves with the rules and the store of the settings until `shutdown` begins, then finishes in order.
    ///
    /// # Errors
    /// What keeps it from serving.
    pub async fn run(self, shutdown: Shutdown, reload: Reload) -> anyhow::Result<()> {
        let (followed, loaded) = self.follow().context("cannot follow the rules")?;
        let by_files = followed.xds().is_none();
        if let Some(status) = followed.xds() {
            self.metrics.show_xds(status);
        }
        // Ends, with a last report, after everything that counts.
        let statsd = self.settings.statsd.options(|name| env::var(name).ok());
        let statsd = statsd.map_err(|wrong| {
            let first = wrong.into_iter().next();
            first.expect("an error says what is wrong")
        })?;
        let _reporter = statsd
            .map(|options| Reporter::spawn(Arc::clone(&self.metrics), options))
            .transpose()
            .context("cannot start the statsd reporter")?;
        let tls = self.tls.clone();
        let reloads = tokio::spawn(async move {
            loop {
                reload.asked().await;
                followed.reload();
                if let Some(tls) = &tls {
                    tls.reload();
                }
            }
        });
        // Connections wait in the meantime; a call that came before the rules would fail for nothing. A control plane may
        // take longer than a probe waits.
        if !self.settings.rules.force_start_without_initial_config && by_files {
            let _ = timeout(FIRST_LOAD, loaded).await;
        }
        let ended = self.with_store(shutdown).await;
        reloads.abort();
        ended
    }

    /// Chooses the store, and serves with it.
    async fn with_store(self, shutdown: Shutdown) -> anyhow::Result<()> {
        let settings = &self.settings.store;
        let clock = self.clock.clone();
        let remembered = settings.remembered();
        let refusals = (remembered > 0).then(|| Arc::new(Refusals::new(remembered, clock.clone())));
        if let Some(refusals) = &refusals {
            self.metrics.show_refusals(Arc::clone(refusals));
        }
        let Some(config) = settings.redis(&clock) else {
            tracing::info!(
                max_keys = settings.memory_max_keys,
                "counters live in this process: REDIS_URL is not set"
            );
            let memory = Arc::new(Memory::new(clock, settings.memory()));
            self.metrics.watch(Stores {
                memory: Some(Arc::clone(&memory)),
                refusals: refusals.clone(),
                ..Stores::default()
            });
            let make = move || DenyCache::new(Arc::clone(&memory), refusals.clone());
            return self.run_with(make, shutdown).await;
        };
        tracing::info!(prefix = config.prefix, "counters live in Redis");
        let (workers, pool_size) = (workers(self.settings.server.workers), config.pool_size);
        if workers > pool_size {
            tracing::warn!(
                workers,
                pool_size,
                "more workers than connections to Redis: they lend them to each other, and each loan costs a PING. \
                 Raise REDIS_POOL_SIZE to the number of workers"
            );
        }
        let redis = Redis::connect(config).context("REDIS_URL cannot be used")?;
        let replicas = Replicas::new(self.settings.failure.replicas as u64);
        let _count = store::count(replicas.clone(), &self.settings.failure);
        let (guard, _watch) = self.look_after("main", &redis, &replicas);
        let mut stores = Stores {
            redis: vec![("main", redis.clone())],
            refusals: refusals.clone(),
            ..Stores::default()
        };
        let Some(config) = settings.per_second(&clock) else {
            self.metrics.watch(stores);
            let make = move || {
                let guarded = Guard::new(redis.lane(), Arc::clone(&guard));
                DenyCache::new(guarded, refusals.clone())
            };
            return self.run_with(make, shutdown).await;
        };
        tracing::info!("counters of seconds live in a Redis of their own");
        let timeout = config.timeout;
        let seconds = Redis::connect(config).context("REDIS_PERSECOND_URL cannot be used")?;
        stores.redis.push(("per_second", seconds.clone()));
        self.metrics.watch(stores);
        let (seconds_guard, _watch_seconds) = self.look_after("per_second", &seconds, &replicas);
        let make = move || {
            // Each store has a breaker of its own: the loss of one touches only its own counters.
            let seconds = Arc::new(Guard::new(seconds.lane(), Arc::clone(&seconds_guard)));
            let others = Arc::new(Guard::new(redis.lane(), Arc::clone(&guard)));
            DenyCache::new(PerSecond::new(seconds, others, timeout), refusals.clone())
        };
        self.run_with(make, shutdown).await
    }

    /// A guard for a Redis, and the tasks that look after it until they are dropped.
    fn look_after(
        &self,
        name: &'static str,
        redis: &Redis,
        replicas: &Replicas,
    ) -> (Arc<guard::Shared>, JoinSet<()>) {
        let failure = &self.settings.failure;
        let config = failure.guard(&self.settings.store, replicas.clone(), &self.clock);
        let guard = Arc::new(guard::Shared::new(config));
        self.metrics.show_store(name, Arc::clone(&guard));
        let tasks = store::look_after(
            redis.clone(),
            Arc::clone(&guard),
            self.readiness.clone(),
            failure,
        );
        (guard, tasks)
    }

    /// Follows the rules from now on. What is returned second tells when they have been read for the first time.
    fn follow(&self) -> anyhow::Result<(Followed, oneshot::Receiver<()>)> {
        let source = self.settings.rules.source.source()?;
        let intake = self.intake();
        let (first, loaded) = oneshot::channel();
        let mut first = Some(first);
        let followed = source.follow(move |read| {
            intake.take(read);
            if let Some(first) = first.take() {
                // Nobody may be waiting any more.
                let _ = first.send(());
            }
        })?;
        Ok((followed, loaded))
    }

    /// Serves until `shutdown` begins, then finishes in order. `store` makes the store of one worker, on that worker's
    /// runtime.
    ///
    /// # Errors
    /// When a worker cannot be started, or a socket cannot be watched.
    pub async fn run_with<S, M>(self, store: M, shutdown: Shutdown) -> anyhow::Result<()>
    where
        S: Store + 'static,
        M: Fn() -> S + Clone + Send + Sync + 'static,
    {
        let listening = self.ports.shown();
        let server = &self.settings.server;
        let exports = Exports::start(&self.settings, &self.metrics)?;
        let drain = Drain::default();
        let admin = Drain::default();
        let mut tasks = JoinSet::new();
        let certificates = self
            .tls
            .clone()
            .map(|tls| tokio::spawn(async move { tls.watch().await }));
        if let Some(listener) = self.ports.metrics {
            let metrics = metrics_port(&server.prometheus_path, Arc::clone(&self.metrics));
            tasks.spawn(serve_admin(listener, metrics, admin.clone()));
        }

        let serving = Serving {
            answers: Arc::new(AnswerSettings::new(
                server.bounds,
                server.answers.headers(),
                server.answers.response_dynamic_metadata,
                Arc::clone(&self.metrics),
            )),
            readiness: self.readiness.clone(),
            age: Age {
                limit: server.grpc_max_connection_age,
                grace: server.grpc_max_connection_age_grace,
                ping: server.keepalive_interval,
                pong: server.keepalive_timeout,
            },
            tls: self.tls.clone(),
            max_connections: server.max_connections,
            drain: drain.clone(),
        };
        let limiter = {
            let (rules, metrics) = (Arc::clone(&self.rules), Arc::clone(&self.metrics));
            let modes = self.settings.modes;
            let modes = modes.modes(self.settings.failure.failure_mode);
            move || Limiter::new(Arc::clone(&rules), store(), modes, Arc::clone(&metrics))
        };
        let debug = debug_port(Debug::new(
            Arc::clone(&self.rules),
            Arc::clone(&self.metrics),
            server.admin.admin_token.clone(),
            limiter.clone(),
        ));
        tasks.spawn(serve_admin(self.ports.debug, debug, admin.clone()));
        let workers = Workers::start(workers(server.workers), &serving, limiter)
            .await
            .context("cannot start the workers")?;
        let workers = Arc::new(workers);
        let mut acceptors = JoinSet::new();
        for (port, listener) in [(Port::Grpc, self.ports.grpc), (Port::Http, self.ports.http)] {
            let (workers, drain) = (Arc::clone(&workers), drain.clone());
            acceptors.spawn(async move {
                let failures = Throttle::new(Clock::system());
                tokio::select! {
                    ended = listener.accept(&failures, |stream| workers.take(port, stream)) => ended,
                    () = drain.begun() => Ok(()),
                }
            });
        }
        for (port, address) in listening {
            tracing::info!(port, address, "listening");
        }

        let failed = tokio::select! {
            () = shutdown.begun() => None,
            // No task ends by itself, unless its socket cannot be watched.
            Some(ended) = tasks.join_next() => Some(ended),
            Some(ended) = acceptors.join_next() => Some(ended),
        };
        let ended = async {
            // They let go of the workers.
            while acceptors.join_next().await.is_some() {}
            if let Some(workers) = Arc::into_inner(workers) {
                workers.ended().await;
            }
        };
        stop(&self.settings, &self.readiness, &drain, ended).await;
        admin.end();
        if let Some(certificates) = certificates {
            certificates.abort();
        }
        while tasks.join_next().await.is_some() {}
        exports.finish().await;
        match failed {
            None => Ok(()),
            Some(ended) => Ok(ended??),
        }
    }
}

/// Runs a whole process by `settings`: the log is started, and signals are listened to from here on.
///
/// # Errors
/// What keeps it from serving.
pub fn serve(settings: Settings) -> anyhow::Result<()> {
    let app = App::bind(settings, Clock::system())?;
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the admin runtime")?;
    let ended = runtime.block_on(async {
        let (shutdown, reload) = (Shutdown::default(), Reload::default());
        tokio::spawn(on_signals(shutdown.clone(), reload.clone())?);
        app.run(shutdown, reload).await
    });
    // A name that is being looked up is not waited for.
    runtime.shutdown_background();
    ended
}

/// Not ready; a pause for callers to notice; GOAWAY; calls in flight finish. One deadline for all of it.
async fn stop(
    settings: &Settings,
    readiness: &Readiness,
    drain: &Drain,
    ended: impl Future<Output = ()>,
) {
    let stop = settings.stop;
    let deadline = Instant::now() + stop.shutdown_delay + stop.shutdown_timeout;
    readiness.stopping();
    sleep(stop.shutdown_delay).await;
    drain.begin();
    let mut ended = std::pin::pin!(ended);
    if timeout_at(deadline, ended.as_mut()).await.is_ok() {
        tracing::info!("stopped, every call finished");
        return;
    }
    drain.end();
    ended.await;
    tracing::warn!("stopped at the deadline, calls were dropped");
}

fn workers(wanted: Option<usize>) -> usize {
    wanted
        .or_else(|| thread::available_parallelism().map(NonZeroUsize::get).ok())
        .unwrap_or(1)
}
