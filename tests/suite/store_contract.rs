//! What both stores promise, by worked examples.

use palang::{
    algorithm::{Outcome, Quota},
    counter::{Atomicity, Counter},
    store::Store as _,
};

use crate::support::{
    quotas::{bucket, five, fixed, log, queue, sliding},
    stores::{Bench, both, counter},
};

const MS: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// Instant; token bucket, log, fixed window, sliding window as `remaining/reset/retry` in ms; queue as delay or retry.
/// `+` is allowed, `-` refused.
const TWENTY: &str = "
0.0 | + 4/500/0  | + 4/1000/0  | + 4/1000/0  | + 4/2000/0       | + 0
0.1 | + 3/900/0  | + 3/1000/0  | + 3/900/0   | + 3/1900/0       | + 400
0.2 | + 2/1300/0 | + 2/1000/0  | + 2/800/0   | + 2/1800/0       | + 800
0.3 | + 1/1700/0 | + 1/1000/0  | + 1/700/0   | + 1/1700/0       | - 200
0.4 | + 0/2100/0 | + 0/1000/0  | + 0/600/0   | + 0/1600/0       | - 100
0.5 | + 0/2500/0 | - 0/900/500 | - 0/500/500 | - 0/1500/700     | + 1000
0.6 | - 0/2400/400 | - 0/800/400 | - 0/400/400 | - 0/1400/600   | - 400
0.8 | - 0/2200/200 | - 0/600/200 | - 0/200/200 | - 0/1200/400   | - 200
1.0 | + 0/2500/0 | + 0/1000/0  | + 4/1000/0  | - 0/1000/200     | + 1000
1.2 | - 0/2300/300 | + 1/1000/0 | + 3/800/0  | + 0/1800/0       | - 300
2.0 | + 1/2000/0 | + 3/1000/0  | + 4/1000/0  | + 3/2000/0       | + 500
2.1 | + 0/2400/0 | + 2/1000/0  | + 3/900/0   | + 2/1900/0       | + 900
2.5 | + 0/2500/0 | + 2/1000/0  | + 2/500/0   | + 1/1500/0       | + 1000
3.0 | + 0/2500/0 | + 2/1000/0  | + 4/1000/0  | + 1/2000/0       | + 1000
3.1 | - 0/2400/400 | + 2/1000/0 | + 3/900/0  | + 0/1900/0       | - 400
3.2 | - 0/2300/300 | + 1/1000/0 | + 2/800/0  | - 0/1800/133.334 | - 300
3.3 | - 0/2200/200 | + 0/1000/0 | + 1/700/0  | - 0/1700/33.334  | - 200
3.4 | - 0/2100/100 | - 0/900/100 | + 0/600/0 | + 0/1600/0       | - 100
3.5 | + 0/2500/0 | + 0/1000/0  | - 0/500/500 | - 0/1500/166.667 | + 1000
3.6 | - 0/2400/400 | - 0/900/400 | - 0/400/400 | - 0/1400/66.667 | - 400
";

/// Milliseconds with up to three places, in microseconds.
fn micros(text: &str) -> u64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let whole: u64 = whole.parse().expect("a number");
    let part: u64 = format!("{part:0<3}").parse().expect("a number");
    whole * MS + part
}

/// Judges one cell of [`TWENTY`].
fn judge(cell: &str, quota: &Quota, outcome: &Outcome, row: &str) {
    let (sign, figures) = cell.trim().split_once(' ').expect("sign and figures");
    assert_eq!(outcome.allowed, sign == "+", "{row}: {quota:?} {outcome:?}");
    if let Quota::LeakyBucket { .. } = quota {
        let told = if outcome.allowed {
            Some(outcome.delay)
        } else {
            outcome.retry_after
        };
        assert_eq!(told, Some(micros(figures)), "{row}: {quota:?} {outcome:?}");
        return;
    }
    let figures: Vec<u64> = figures.split('/').map(micros).collect();
    let got = [
        outcome.remaining * MS,
        outcome.reset_after,
        outcome.retry_after.expect("never more than the limit"),
    ];
    assert_eq!(figures, got, "{row}: {quota:?} {outcome:?}");
}

/// Plays the first `rows` of [`TWENTY`].
async fn play(bench: &Bench, rows: usize) {
    for row in TWENTY.trim().lines().take(rows) {
        let mut cells = row.split('|');
        let at = cells.next().expect("an instant").trim();
        bench.at(micros(at) * MS);
        for (quota, cell) in five().into_iter().zip(cells) {
            // Refused hits count in a fixed window, except where all counters are charged or none.
            let alone = [counter("twenty", quota, 1)];
            let outcome = bench.all(&alone, Atomicity::AllOrNothing).await;
            judge(cell, &quota, &outcome[0], row);
        }
    }
}

#[tokio::test]
async fn twenty_requests_come_out_as_the_table_says() {
    both(async |bench| play(bench, 20).await).await;
}

#[tokio::test]
async fn a_cost_is_told_when_to_come_back() {
    both(async |bench| {
        play(bench, 6).await;
        bench.at(600 * MS);
        // Bucket, log, fixed, sliding.
        for (n, expected) in [
            (1, [400, 400, 400, 600]),
            (2, [900, 500, 400, 800]),
            (3, [1_400, 600, 400, 1_000]),
            (5, [2_400, 800, 400, 1_400]),
        ] {
            for (quota, expected) in five().into_iter().zip(expected) {
                let ask = [counter("twenty", quota, n)];
                let outcome = bench.all(&ask, Atomicity::AllOrNothing).await[0];
                assert!(!outcome.allowed);
                assert_eq!(outcome.retry_after, Some(expected * MS), "{n} {quota:?}");
            }
        }
        for quota in five() {
            let ask = [counter("twenty", quota, 6)];
            let outcome = bench.all(&ask, Atomicity::AllOrNothing).await[0];
            assert!(!outcome.allowed);
            assert_eq!(outcome.retry_after, None, "{quota:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_given_back_is_there_again() {
    both(async |bench| {
        play(bench, 6).await;
        bench.at(600 * MS);
        let [bucket, log, fixed, sliding, _] = five();
        let given = bench.one(counter("twenty", bucket, -2)).await;
        assert!(given.allowed);
        assert_eq!((given.remaining, given.reset_after), (2, 1_400 * MS));
        assert_eq!(given.next_after, Some(400 * MS));
        let look = bench.one(counter("twenty", bucket, 0)).await;
        assert_eq!(look, Outcome { ..given });

        let given = bench.one(counter("twenty", log, -2)).await;
        assert_eq!((given.remaining, given.reset_after), (2, 600 * MS));
        let given = bench.one(counter("twenty", fixed, -2)).await;
        assert_eq!((given.remaining, given.used), (2, 3));
        let given = bench.one(counter("twenty", sliding, -2)).await;
        assert_eq!((given.remaining, given.used), (2, 3));

        // Never above full, and a key is not made by it.
        for quota in five() {
            let full = bench.one(counter("twenty", quota, -100)).await;
            assert_eq!((full.used, full.next_after), (0, None), "{quota:?}");
            let none = bench.one(counter("absent", quota, -1)).await;
            assert!(none.allowed);
            assert_eq!(none.remaining, quota.capacity());
        }
        if let Some(server) = &bench.server {
            let keys: Vec<String> =
                redis::Commands::keys(&mut server.connection(), "*absent*").expect("KEYS");
            assert_eq!(keys.len(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn a_give_back_for_a_past_window_credits_nothing() {
    both(async |bench| {
        for quota in [fixed(5), sliding(5)] {
            bench.one(counter("past", quota, 5)).await;
        }
        bench.at(SECOND);
        let given = bench.one(counter("past", fixed(5), -3)).await;
        assert_eq!((given.remaining, given.used), (5, 0));
        let given = bench.one(counter("past", sliding(5), -3)).await;
        assert_eq!((given.remaining, given.used), (0, 5));
    })
    .await;
}

#[tokio::test]
async fn refused_hits_count_in_a_fixed_window_on_its_own_and_nowhere_else() {
    both(async |bench| {
        let mut fixed_outcome = bench.one(counter("counted", fixed(5), 4)).await;
        assert!(fixed_outcome.allowed);
        // At exactly the limit a look says yes, as the reference does.
        bench.one(counter("counted", fixed(5), 1)).await;
        let look = bench.one(counter("counted", fixed(5), 0)).await;
        assert_eq!((look.allowed, look.remaining), (true, 0));
        for used in 6..9 {
            fixed_outcome = bench.one(counter("counted", fixed(5), 1)).await;
            assert_eq!((fixed_outcome.allowed, fixed_outcome.used), (false, used));
        }
        let look = bench.one(counter("counted", fixed(5), 0)).await;
        assert_eq!((look.allowed, look.used), (false, 8));
        let more = bench.one(counter("counted", fixed(5), 1_000)).await;
        assert_eq!((more.used, more.retry_after), (1_008, None));
        let most = bench.one(counter("counted", fixed(5), i64::MAX)).await;
        assert_eq!(most.used, palang::algorithm::MAX);
        for quota in [
            bucket(2, SECOND, 5),
            log(5),
            sliding(5),
            queue(2, SECOND, SECOND),
        ] {
            bench.one(counter("counted", quota, 100)).await;
            let look = bench.one(counter("counted", quota, 0)).await;
            assert_eq!((look.used, look.reset_after), (0, 0), "{quota:?}");
        }
        let nothing = bench.one(counter("zero", fixed(0), 0)).await;
        assert!(nothing.allowed);
        for quota in [fixed(0), sliding(0), log(0)] {
            let nothing = bench.one(counter("zero", quota, 1)).await;
            assert_eq!((nothing.allowed, nothing.retry_after), (false, None));
        }
    })
    .await;
}

/// 4.9: what was consumed is kept, in tokens.
#[tokio::test]
async fn a_changed_rate_keeps_what_was_consumed() {
    both(async |bench| {
        let old = bucket(2, SECOND, 5);
        for name in ["same", "raised"] {
            bench.one(counter(name, old, 5)).await;
        }
        let raised = bucket(10, SECOND, 5);
        let outcome = bench.one(counter("same", raised, 1)).await;
        assert_eq!(outcome.retry_after, Some(100 * MS));
        assert_eq!(outcome.reset_after, 500 * MS);
        let raised = bucket(10, SECOND, 50);
        let outcome = bench.one(counter("raised", raised, 0)).await;
        assert_eq!((outcome.remaining, outcome.used), (45, 5));

        bench.one(counter("cut", bucket(10, SECOND, 50), 50)).await;
        let outcome = bench.one(counter("cut", bucket(2, SECOND, 5), 1)).await;
        assert_eq!(outcome.retry_after, Some(500 * MS));
        assert_eq!((outcome.remaining, outcome.used), (0, 5));
        bench.at(500 * MS);
        let outcome = bench.one(counter("cut", bucket(2, SECOND, 5), 1)).await;
        assert!(outcome.allowed);
    })
    .await;
}

/// 4.10: refill pauses while the clock is behind; nothing is refilled twice.
#[tokio::test]
async fn a_clock_that_steps_back_pauses_refill() {
    both(async |bench| {
        let quota = bucket(2, SECOND, 5);
        bench.at(10 * SECOND);
        bench.one(counter("back", quota, 5)).await;
        bench.at(9_400 * MS);
        let outcome = bench.one(counter("back", quota, 1)).await;
        assert_eq!(
            (outcome.allowed, outcome.retry_after),
            (false, Some(1_100 * MS))
        );
        assert_eq!(outcome.reset_after, 3_100 * MS);
        bench.at(10_500 * MS);
        assert!(bench.one(counter("back", quota, 1)).await.allowed);

        for quota in [fixed(5), sliding(5), log(5)] {
            bench.at(20 * SECOND);
            bench.one(counter("back", quota, 5)).await;
            bench.at(20 * SECOND - 1);
            let outcome = bench.one(counter("back", quota, 1)).await;
            assert!(!outcome.allowed, "{quota:?} {outcome:?}");
        }
    })
    .await;
}

/// 4.10: an hour forward and back blocks a key for one refill at most, not for the hour.
#[tokio::test]
async fn a_clock_that_jumped_forward_and_back_blocks_nobody_for_long() {
    both(async |bench| {
        bench.at(3_600 * SECOND);
        for quota in five() {
            bench
                .one(counter("jump", quota, quota.capacity() as i64))
                .await;
        }
        bench.at(0);
        for quota in five() {
            let outcome = bench.one(counter("jump", quota, 1)).await;
            let retry = outcome.retry_after.expect("comes back");
            assert!(retry <= 2_500 * MS, "{quota:?} {outcome:?}");
            bench.at(retry);
            let outcome = bench.one(counter("jump", quota, 1)).await;
            assert!(outcome.allowed, "{quota:?} {outcome:?}");
            bench.at(0);
        }
    })
    .await;
}

#[tokio::test]
async fn a_log_of_many_entries_is_written_and_searched_in_parts() {
    both(async |bench| {
        let quota = Quota::sliding_log(10_000, SECOND).expect("legal");
        for part in 0..4 {
            bench.at(part * 100 * MS);
            let outcome = bench.one(counter("big", quota, 2_500)).await;
            assert_eq!(outcome.used, (part + 1) * 2_500);
        }
        let outcome = bench.one(counter("big", quota, 2_501)).await;
        assert_eq!(outcome.retry_after, Some(800 * MS));
        bench.at(1_150 * MS);
        let outcome = bench.one(counter("big", quota, 5_000)).await;
        assert_eq!((outcome.allowed, outcome.used), (true, 10_000));
        let outcome = bench.one(counter("big", quota, -9_999)).await;
        assert_eq!((outcome.used, outcome.reset_after), (1, 50 * MS));
    })
    .await;
}

#[tokio::test]
async fn a_look_or_a_refusal_leaves_redis_untouched() {
    let bench = Bench::redis();
    let server = bench.server.as_ref().expect("a Redis bench");
    let mut connection = server.connection();
    for quota in five() {
        let ask = |hits| [counter("still", quota, hits)];
        // The queue takes more than its slots: the last may begin after what came before.
        for hits in [quota.capacity() as i64, 1] {
            bench.all(&ask(hits), Atomicity::AllOrNothing).await;
        }
        let mut trace = || -> (Vec<u8>, i64) {
            let key = ask(0)[0].key.clone();
            let dump = redis::cmd("DUMP")
                .arg(key.as_bytes())
                .query(&mut connection);
            let expiry = redis::cmd("PEXPIRETIME")
                .arg(key.as_bytes())
                .query(&mut connection);
            (dump.expect("DUMP"), expiry.expect("PEXPIRETIME"))
        };
        let before = trace();
        assert!(before.1 > 0);
        for hits in [0, 1, 100] {
            let outcome = bench.all(&ask(hits), Atomicity::AllOrNothing).await[0];
            assert!(!outcome.allowed, "{quota:?} {hits} {outcome:?}");
        }
        for atomicity in [Atomicity::PerCounter, Atomicity::AllOrNothing] {
            bench.all(&ask(0), atomicity).await;
        }
        assert_eq!(trace(), before, "{quota:?}");
    }
}

#[tokio::test]
async fn the_same_key_many_times_in_a_call_is_one_write() {
    let bench = Bench::redis();
    let server = bench.server.as_ref().expect("a Redis bench");
    let quota = bucket(1, SECOND, 1_000);
    let ask = vec![counter("hot", quota, 1); 100];
    let outcomes = bench.all(&ask, Atomicity::PerCounter).await;
    assert_eq!(outcomes[99].remaining, 900);
    assert_eq!(server.calls_of("set"), 1);
    assert_eq!(server.calls_of("get"), 1);
}

#[tokio::test]
async fn expiries_are_as_short_as_they_may_be() {
    let server = crate::support::redis::RedisServer::start();
    let config = crate::support::stores::config(&server);
    let lane = palang::store::Redis::connect(config).expect("fine").lane();
    let ask: Vec<Counter> = five()
        .into_iter()
        .map(|quota| counter("live", quota, 1))
        .collect();
    for outcome in lane.take(&ask, Atomicity::PerCounter).await {
        assert!(outcome.expect("decided").allowed);
    }
    let mut connection = server.connection();
    for (counter, most) in ask.iter().zip([500, 1_000, 2_000, 3_000, 500]) {
        let ttl: i64 =
            redis::Commands::pttl(&mut connection, counter.key.as_bytes()).expect("PTTL");
        assert!((0..=most).contains(&ttl) || ttl == -2, "{counter:?} {ttl}");
    }
}
