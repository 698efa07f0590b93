//! The script on a real Redis equals the Rust model, over generated limits and calls; and laws that both keep, stated
//! without looking at either.

use std::time::Instant;

use futures_util::future::join_all;
use palang::{
    algorithm::{MAX, MAX_LOG, MAX_WINDOW, Outcome, Quota, Refused, State, take},
    counter::{Atomicity, Counter, CounterKey, OnFailure, Role},
    store::{Memory, Redis, Store as _, StoreError, memory, redis::Config},
    time::{Clock, Timestamp},
};
use proptest::{prelude::*, sample::select, test_runner::TestRunner};
use redis::Cmd;

use crate::support::{
    redis::RedisServer,
    stores::{START, config},
};

/// What pinned calls add to an expiry, microseconds.
const DAY: u64 = 86_400_000_000;

/// One counter of a generated call: which key, which of the key's quotas, hits, role.
type Ask = (usize, usize, i64, u8);

#[derive(Clone, Debug)]
struct Step {
    /// How the clock moves before the call.
    moved: i64,
    asks: Vec<Ask>,
    together: bool,
}

#[derive(Clone, Debug)]
struct Scenario {
    /// Quotas of each key: one algorithm and window, changing limits.
    keys: Vec<Vec<Quota>>,
    steps: Vec<Step>,
}

fn windows() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => select(vec![1_000_000u64, 60_000_000, 500_000]),
        2 => 1..2_000_000u64,
        1 => select(vec![1u64, 2, 86_400_000_000, MAX_WINDOW]),
    ]
}

fn limits() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 1..12u64,
        1 => Just(0u64),
        2 => 1..5_000u64,
        1 => select(vec![1_000_000u64, 1 << 32, (1 << 43) + 7, MAX / 2, MAX]),
    ]
}

/// The quotas that one key may have in turn.
fn quotas() -> impl Strategy<Value = Vec<Quota>> {
    let several = prop::collection::vec((limits(), limits(), windows()), 1..4);
    (
        select(vec![b'f', b's', b'l', b't', b'q']),
        windows(),
        several,
    )
        .prop_map(|(letter, window, several)| {
            let make = |(limit, other, odd): (u64, u64, u64)| {
                let quota = match letter {
                    b'f' => Quota::fixed_window(limit, window),
                    b's' => Quota::sliding_window(limit, window),
                    b'l' => Quota::sliding_log(limit.min(MAX_LOG), window),
                    // The rate of a bucket may change; it is no part of its key.
                    b't' => Quota::token_bucket(limit, odd, other.max(1)),
                    _ => Quota::leaky_bucket(limit, odd, window.saturating_mul(other.min(9))),
                };
                quota.ok()
            };
            several.into_iter().filter_map(make).collect::<Vec<_>>()
        })
        .prop_filter("at least one legal quota", |quotas| !quotas.is_empty())
}

fn moves() -> impl Strategy<Value = i64> {
    prop_oneof![
        5 => Just(0i64),
        6 => 0..700_000i64,
        2 => select(vec![1i64, 250_000, 500_000, 1_000_000, 60_000_000]),
        2 => -900_000..0i64,
        1 => select(vec![3_600_000_000i64, -3_600_000_000, 86_400_000_000, -86_400_000_000]),
    ]
}

fn hits() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => 1..4i64,
        2 => Just(0i64),
        2 => -3..0i64,
        1 => 4..40i64,
        1 => select(vec![1_000i64, 1_001, 2_500, 1 << 40, -(1 << 40), i64::MAX, i64::MIN]),
    ]
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let ask = (0..4usize, 0..3usize, hits(), 0..3u8);
    let step = (moves(), prop::collection::vec(ask, 1..6), any::<bool>()).prop_map(
        |(moved, asks, together)| Step {
            moved,
            asks,
            together,
        },
    );
    (
        prop::collection::vec(quotas(), 1..5),
        prop::collection::vec(step, 1..40),
    )
        .prop_map(|(keys, steps)| Scenario { keys, steps })
}

impl Scenario {
    fn counters(&self, step: &Step, case: &str) -> Vec<Counter> {
        step.asks
            .iter()
            .map(|&(key, quota, hits, role)| {
                let key = key % self.keys.len();
                let quotas = &self.keys[key];
                let quota = quotas[quota % quotas.len()];
                Counter {
                    key: CounterKey::new(case, quota.letter(), 1, [("key", &*key.to_string())]),
                    quota,
                    hits,
                    role: [Role::Enforced, Role::Quota, Role::Shadow][usize::from(role)],
                    on_failure: OnFailure::Error,
                }
            })
            .collect()
    }
}

fn atomicity(step: &Step) -> Atomicity {
    if step.together {
        Atomicity::AllOrNothing
    } else {
        Atomicity::PerCounter
    }
}

fn model() -> (Clock, Memory) {
    let clock = Clock::manual(Timestamp::from_micros(START));
    let config = memory::Config {
        max_keys: 1_000_000,
        shards: 4,
        sweep: 0,
    };
    (clock.clone(), Memory::new(clock, config))
}

fn decided(outcomes: Vec<Result<Outcome, StoreError>>) -> Vec<Outcome> {
    outcomes
        .into_iter()
        .map(|outcome| outcome.expect("decided"))
        .collect()
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        max_shrink_iters: 4_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// How many scenarios to run: `PALANG_SCENARIOS` or so many.
fn scenarios(usual: u32) -> u32 {
    std::env::var("PALANG_SCENARIOS")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(usual)
}

/// What Redis holds for a counter, in bytes; a log as its entries.
fn stored(connection: &mut redis::Connection, counter: &Counter) -> Vec<u8> {
    let mut command = Cmd::new();
    if counter.quota.letter() == b'l' {
        command
            .arg("LRANGE")
            .arg(counter.key.as_bytes())
            .arg(0)
            .arg(-1);
        let entries: Vec<u64> = command.query(connection).expect("a list of numbers");
        return entries.into_iter().flat_map(u64::to_le_bytes).collect();
    }
    command.arg("GET").arg(counter.key.as_bytes());
    command.query(connection).expect("GET")
}

/// The same of a state of the model.
fn bytes(state: &Option<State>) -> Vec<u8> {
    let tagged = |letter: u8, numbers: &[u64]| {
        let numbers = numbers
            .iter()
            .flat_map(|number| (*number as f64).to_le_bytes());
        std::iter::once(letter).chain(numbers).collect()
    };
    match state {
        None => Vec::new(),
        Some(State::FixedWindow(state)) => tagged(b'f', &[state.start, state.count]),
        Some(State::SlidingWindow(state)) => {
            tagged(b's', &[state.start, state.count, state.previous])
        }
        Some(State::TokenBucket(debt)) => tagged(b't', &[debt.amount, debt.at, debt.period]),
        Some(State::LeakyBucket(debt)) => tagged(b'q', &[debt.amount, debt.at, debt.period]),
        Some(State::SlidingLog(log)) => log.iter().flat_map(|at| at.to_le_bytes()).collect(),
    }
}

/// When a state that was changed at `now` is as good as none, in microseconds from then: for a window a second after it
/// can no longer weigh.
fn expiry(state: &Option<State>, counter: &Counter, now: u64) -> u64 {
    let grace = 1_000_000;
    match (state, counter.quota) {
        (Some(State::FixedWindow(state)), Quota::FixedWindow { window, .. }) => {
            state.start + window + grace - now
        }
        (Some(State::SlidingWindow(state)), Quota::SlidingWindow { window, .. }) => {
            state.start + 2 * window + grace - now
        }
        _ => {
            let at = Timestamp::from_micros(now);
            let look = take(&mut state.clone(), &counter.quota, 0, at, Refused::Free);
            look.expect("its own state").outcome.reset_after
        }
    }
}

#[test]
fn the_script_equals_the_model() {
    let server = RedisServer::start();
    let (clock, memory) = model();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let redis = Redis::connect(Config {
        clock: clock.clone(),
        ..config(&server)
    })
    .expect("a fine configuration");
    let lane = {
        let _inside = runtime.enter();
        redis.lane()
    };

    let case = std::cell::Cell::new(0);
    let compared = std::cell::Cell::new(0);
    let connection = std::cell::RefCell::new(server.connection());
    let result = TestRunner::new(cases(scenarios(1_500))).run(&scenario(), |scenario| {
        case.set(case.get() + 1);
        let name = format!("case{}", case.get());
        let mut connection = connection.borrow_mut();
        let mut now = START as i64;
        clock.set(Timestamp::from_micros(START));
        // Requests of one instant are sent at once, so that they go in one call.
        for steps in scenario.steps.chunk_by(|_, next| next.moved == 0) {
            now += steps[0].moved;
            clock.set(Timestamp::from_micros(now as u64));
            let requests: Vec<_> = steps
                .iter()
                .map(|step| scenario.counters(step, &name))
                .collect();
            let counters = requests.concat();
            let before: Vec<_> = counters
                .iter()
                .map(|counter| stored(&mut connection, counter))
                .collect();
            let asked = Instant::now();
            let (expected, got) = runtime.block_on(async {
                let mut expected = Vec::new();
                for (counters, step) in requests.iter().zip(steps) {
                    expected.push(memory.take(counters, atomicity(step)).await);
                }
                let calls = requests.iter().zip(steps);
                let got =
                    join_all(calls.map(|(counters, step)| lane.take(counters, atomicity(step))));
                (expected, got.await)
            });
            prop_assert_eq!(expected, got, "{:?} of {:?}", steps, counters);
            // The answers are worked out from what the script found. What it leaves behind is its own work.
            for (place, counter) in counters.iter().enumerate() {
                let state = memory.peek(&counter.key);
                let stored = stored(&mut connection, counter);
                prop_assert_eq!(&stored, &bytes(&state), "{:?} of {:?}", steps, counters);
                let sole =
                    |other: &Counter| other.key != counter.key || other.quota == counter.quota;
                if stored != before[place] && !stored.is_empty() && counters.iter().all(sole) {
                    let expected = (expiry(&state, counter, now as u64) + DAY).div_ceil(1_000);
                    let left: u64 = redis::cmd("PTTL")
                        .arg(counter.key.as_bytes())
                        .query(&mut connection)
                        .expect("PTTL");
                    let elapsed = asked.elapsed().as_millis() as u64 + 1;
                    prop_assert!(
                        left <= expected && left + elapsed >= expected,
                        "expires in {} ms, not {}: {:?} of {:?}",
                        left,
                        expected,
                        steps,
                        counters
                    );
                    compared.set(compared.get() + 1);
                }
            }
        }
        Ok(())
    });
    result.expect("the script equals the model");
    assert!(
        compared.get() > 1_000,
        "{} expiries compared",
        compared.get()
    );
    server.no_key_without_expiry();
}

#[test]
fn division_in_the_script_is_exact() {
    let server = RedisServer::start();
    let script = redis::Script::new(concat!(
        include_str!("../../lua/common.lua"),
        "local quotients = {}
         for i = 1, #ARGV, 2 do
           local a, b = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
           for _, q in ipairs({div(a, b), div_ceil(a, b), a % b}) do
             quotients[#quotients + 1] = string.format('%.0f', q)
           end
         end
         return quotients",
    ));
    let numbers = || prop_oneof![0..1_000u64, MAX - 1_000..=MAX, 0..=MAX, Just(MAX / 3 * 2)];
    let pairs = prop::collection::vec((numbers(), numbers()), 500);
    let result = TestRunner::new(cases(60)).run(&pairs, |pairs| {
        let mut call = script.prepare_invoke();
        let mut expected = Vec::new();
        for (a, b) in pairs {
            let b = b.max(1);
            call.arg(a).arg(b);
            expected.extend([a / b, a.div_ceil(b), a % b].map(|number| number.to_string()));
            // Just below a multiple, where a quotient could be rounded up to a whole number.
            let near = (MAX / b * b).saturating_sub(1);
            call.arg(near).arg(b);
            expected
                .extend([near / b, near.div_ceil(b), near % b].map(|number| number.to_string()));
        }
        let got: Vec<String> = call.invoke(&mut server.connection()).expect("runs");
        prop_assert_eq!(got, expected);
        Ok(())
    });
    result.expect("exact");
}

/// Takes one counter in memory.
async fn one(memory: &Memory, counter: &Counter, atomicity: Atomicity) -> Outcome {
    decided(memory.take(std::slice::from_ref(counter), atomicity).await)[0]
}

proptest! {
    #![proptest_config(cases(600))]

    /// What is refused is admitted at `now + retry_after`, and not one microsecond before.
    #[test]
    fn retry_after_is_exact(scenario in scenario()) {
        let runtime = runtime();
        let (clock, memory) = model();
        let mut now = START as i64;
        for step in &scenario.steps {
            now += step.moved;
            clock.set(Timestamp::from_micros(now as u64));
            let counters = scenario.counters(step, "retry");
            let outcomes = decided(runtime.block_on(memory.take(&counters, atomicity(step))));
            let Some(last) = counters.last() else { continue };
            let outcome = outcomes[outcomes.len() - 1];
            let Some(retry) = outcome.retry_after.filter(|_| !outcome.allowed) else { continue };
            // Another counter of the request may have changed the same key since.
            if step.asks.len() > 1 {
                continue;
            }
            prop_assert!(retry > 0);
            let probe = |at: u64| {
                clock.set(Timestamp::from_micros(now as u64 + at));
                let ask = Counter { role: Role::Enforced, ..last.clone() };
                let blocker = Counter {
                    key: CounterKey::new("blocker", b'f', 1, []),
                    quota: Quota::fixed_window(0, 1).expect("legal"),
                    hits: 1,
                    role: Role::Enforced,
                    on_failure: OnFailure::Error,
                };
                // In a request that is held back, so that asking charges nothing. Judged as the request itself was,
                // counted refusals aside, which no later window remembers.
                let both = [ask, blocker];
                let outcomes = decided(runtime.block_on(memory.take(&both, Atomicity::AllOrNothing)));
                outcomes[0].allowed
            };
            // A look at exactly the limit differs between the two ways to count refused hits.
            let look = last.hits == 0 && last.quota.letter() == b'f';
            if !look {
                prop_assert!(!probe(retry - 1), "{last:?} {outcome:?} too late");
            }
            prop_assert!(probe(retry) || look && last.quota.capacity() == 0, "{last:?} {outcome:?} too soon");
            clock.set(Timestamp::from_micros(now as u64));
        }
    }

    /// A refusal or a look changes no state, and neither does a request that was held back.
    #[test]
    fn what_was_not_allowed_leaves_no_trace(scenario in scenario()) {
        let runtime = runtime();
        let (clock, memory) = model();
        let mut now = START as i64;
        for step in &scenario.steps {
            // A clock that jumps back an hour has its states mended, which is a change of its own.
            now += step.moved.max(0);
            clock.set(Timestamp::from_micros(now as u64));
            let counters = scenario.counters(step, "trace");
            let before: Vec<_> = counters.iter().map(|counter| memory.peek(&counter.key)).collect();
            let outcomes = decided(runtime.block_on(memory.take(&counters, atomicity(step))));
            let held = step.together && is_held(&counters, &outcomes);
            for (place, counter) in counters.iter().enumerate() {
                let touched = counters.iter().zip(&outcomes).any(|(other, outcome)| {
                    let counted = !step.together && other.quota.letter() == b'f';
                    let spared = held && other.role != Role::Shadow;
                    other.key == counter.key
                        && other.hits != 0
                        && (outcome.allowed || counted)
                        && !spared
                });
                if !touched {
                    prop_assert_eq!(memory.peek(&counter.key), before[place].clone(), "{:?}", counter);
                }
            }
        }
    }

    /// From its expiry on a state is as good as none, to the microsecond.
    #[test]
    fn what_has_expired_makes_no_difference(
        quotas in quotas(),
        steps in prop::collection::vec((moves(), hits(), any::<bool>()), 1..60),
    ) {
        let quota = quotas[0];
        let (mut kept, mut forgotten) = (None, None);
        let mut expires = 0;
        let mut now = START;
        for (moved, hits, counted) in steps {
            // Sometimes to the very end of what is kept.
            now = if moved < 0 { now.max(expires) } else { now + moved as u64 };
            let at = Timestamp::from_micros(now);
            if now >= expires {
                forgotten = None;
            }
            let refused = if counted { Refused::Counted } else { Refused::Free };
            let one = take(&mut kept, &quota, hits, at, refused).expect("its own state");
            let other = take(&mut forgotten, &quota, hits, at, refused).expect("its own state");
            prop_assert_eq!(one.outcome, other.outcome, "{:?}", quota);
            if let Some(after) = other.changed {
                expires = now + after;
            }
        }
    }

    /// The figures of an outcome hang together.
    #[test]
    fn figures_hang_together(scenario in scenario()) {
        let runtime = runtime();
        let (clock, memory) = model();
        let mut now = START as i64;
        for step in &scenario.steps {
            now += step.moved;
            clock.set(Timestamp::from_micros(now as u64));
            let counters = scenario.counters(step, "figures");
            for (counter, outcome) in counters.iter().zip(decided(
                runtime.block_on(memory.take(&counters, atomicity(step))),
            )) {
                let capacity = counter.quota.capacity();
                prop_assert!(outcome.remaining <= capacity);
                prop_assert!(outcome.used <= MAX);
                prop_assert_eq!(outcome.retry_after == Some(0), outcome.allowed);
                prop_assert_eq!(outcome.next_after.is_some(), outcome.remaining < capacity);
                prop_assert!(outcome.next_after.is_none_or(|next| next > 0 && next <= outcome.reset_after));
                if counter.quota.letter() != b'f' {
                    prop_assert_eq!(outcome.reset_after == 0, outcome.used == 0);
                }
                if counter.hits > 0 && counter.hits as u64 > capacity {
                    prop_assert!(!outcome.allowed && outcome.retry_after.is_none());
                }
            }
        }
    }

    /// No algorithm admits more than it states, in any window, whatever is asked when.
    #[test]
    fn no_window_sees_more_than_the_stated_bound(
        limit in 1..30u64,
        room in 1..30u64,
        asks in prop::collection::vec((0..400_000u64, 1..6i64), 1..200),
    ) {
        let window = 1_000_000;
        let runtime = runtime();
        for quota in [
            Quota::fixed_window(limit, window),
            Quota::sliding_window(limit, window),
            Quota::sliding_log(limit, window),
            Quota::token_bucket(limit, window, room),
            Quota::leaky_bucket(limit, window, room * 100_000),
        ] {
            let quota = quota.expect("legal");
            let (clock, memory) = model();
            let mut now = START;
            let mut admitted: Vec<(u64, u64)> = Vec::new();
            for &(moved, hits) in &asks {
                now += moved;
                clock.set(Timestamp::from_micros(now));
                let counter = Counter {
                    key: CounterKey::new("bound", quota.letter(), window, []),
                    quota,
                    hits,
                    role: Role::Enforced,
                    on_failure: OnFailure::Error,
                };
                let outcome = runtime.block_on(one(&memory, &counter, Atomicity::AllOrNothing));
                if outcome.allowed {
                    admitted.push((now + outcome.delay, hits as u64));
                }
            }
            for (first, &(from, _)) in admitted.iter().enumerate() {
                let mut sum = 0;
                for &(at, hits) in &admitted[first..] {
                    let since = at - from;
                    // What was admitted in [from, at], and before this hit's own cost for the queue.
                    let queued = sum;
                    sum += hits;
                    match quota {
                        Quota::SlidingLog { .. } if since < window => prop_assert!(sum <= limit),
                        Quota::FixedWindow { .. } | Quota::SlidingWindow { .. } if since < window => {
                            prop_assert!(sum <= 2 * limit);
                            if matches!(quota, Quota::FixedWindow { .. }) && at / window == from / window {
                                prop_assert!(sum <= limit);
                            }
                        }
                        Quota::TokenBucket { .. } => {
                            prop_assert!(sum.saturating_sub(room) * window <= since * limit);
                        }
                        Quota::LeakyBucket { .. } => {
                            // Starts are spaced by the slots of what started before, rounded up to a microsecond.
                            prop_assert!(queued * window <= (since + 1) * limit);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

fn is_held(counters: &[Counter], outcomes: &[Outcome]) -> bool {
    let of = |role| {
        counters
            .iter()
            .zip(outcomes)
            .filter(move |(counter, _)| counter.role == role)
            .map(|(_, outcome)| outcome.allowed)
    };
    let quotas: Vec<bool> = of(Role::Quota).collect();
    of(Role::Enforced).any(|allowed| !allowed)
        || !quotas.is_empty() && quotas.iter().all(|allowed| !allowed)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
}
