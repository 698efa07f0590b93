//! The store of the process, looked after from outside the workers: whether it answers, and how many replicas share it.

use std::{collections::HashSet, net::IpAddr, sync::Arc, time::Duration};

use tokio::{net::lookup_host, task::JoinSet, time::sleep};

use crate::{
    server::Readiness,
    settings::FailureArgs,
    store::{
        Guard, Redis, StoreError,
        guard::{Replicas, Shared, State},
    },
    telemetry::throttle::Throttle,
    time::{Clock, jittered},
};

/// Time between the first tries to reach the store, and between later ones.
const TRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Time between two tries while the breaker is not closed. Most find it open and cost nothing.
const RETRY: Duration = Duration::from_millis(100);

/// Looks after `redis` until the returned tasks are dropped.
pub(super) fn look_after(
    redis: Redis,
    guard: Arc<Shared>,
    readiness: Readiness,
    settings: &FailureArgs,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    readiness.needs_store();
    tasks.spawn(follow(redis, guard, readiness, settings.needs_store()));
    tasks
}

/// Keeps `replicas` up to date until the returned tasks are dropped.
pub(super) fn count(replicas: Replicas, settings: &FailureArgs) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if !settings.replicas_dns.is_empty() {
        tasks.spawn(count_replicas(
            settings.replicas_dns.clone(),
            settings.replicas_dns_interval,
            replicas,
        ));
    }
    tasks
}

/// Asks the store until it has answered once, and again whenever the breaker leaves it alone: it is found to be back
/// also where no caller asks, as while the process is not ready.
async fn follow(redis: Redis, guard: Arc<Shared>, readiness: Readiness, ready_needs_store: bool) {
    let mut states = guard.breaker().changes();
    first_answer(&redis, &guard).await;
    readiness.store_answered();
    tracing::info!("the store answers");
    let mut failing = false;
    loop {
        let state = *states.borrow_and_update();
        let fails = state != State::Closed;
        if ready_needs_store && fails != failing {
            readiness.store_fails(fails);
            failing = fails;
        }
        if state != State::Closed {
            // Lanes are the workers': this one goes as soon as it is not needed.
            let own = Guard::new(redis.lane(), Arc::clone(&guard));
            while guard.breaker().state() != State::Closed {
                // The breaker hears how it went.
                let _ = own.probe().await;
                sleep(jittered(RETRY, 0.25)).await;
            }
        } else if states.changed().await.is_err() {
            return;
        }
    }
}

async fn first_answer(redis: &Redis, guard: &Arc<Shared>) {
    let failures = Throttle::new(Clock::system());
    let own = Guard::new(redis.lane(), Arc::clone(guard));
    let mut wait = TRY.0;
    while let Err(error) = own.probe().await {
        if error != StoreError::Open
            && let Some(held) = failures.pass()
        {
            tracing::warn!(
                cause = error.cause(),
                not_shown = held,
                "the store has not answered yet: not ready"
            );
        }
        sleep(jittered(wait, 0.25)).await;
        wait = (wait * 2).min(TRY.1);
    }
}

/// Counts the addresses of `name` again and again. A name that does not resolve changes nothing.
async fn count_replicas(name: String, interval: Duration, replicas: Replicas) {
    loop {
        match lookup_host((name.as_str(), 0)).await {
            Ok(addresses) => {
                let distinct: HashSet<IpAddr> = addresses.map(|address| address.ip()).collect();
                let count = distinct.len() as u64;
                if count > 0 && count != replicas.count() {
                    replicas.set(count);
                    tracing::info!(replicas = count, "another number of replicas");
                }
            }
            Err(cause) => tracing::warn!(name, %cause, "REPLICAS_DNS does not resolve"),
        }
        sleep(jittered(interval, 0.1)).await;
    }
}
