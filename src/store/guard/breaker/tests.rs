use super::*;
use crate::time::Timestamp;

fn breaker() -> (Clock, Breaker) {
    let clock = Clock::manual(Timestamp::from_micros(1_000_000_000));
    (clock.clone(), Breaker::new(Config::default(), clock))
}

fn advance(clock: &Clock, time: Duration) {
    clock.set(Timestamp::from_micros(
        clock.now().as_micros() + micros(time),
    ));
}

fn call(breaker: &Breaker, went: Went) -> bool {
    match breaker.admit() {
        Some(pass) => {
            pass.tell(went);
            true
        }
        None => false,
    }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn failures_in_a_row_open_it_but_one_hiccup_does_not() {
    let (clock, breaker) = breaker();
    // All at the same moment, as when a batch times out.
    for _ in 0..10 {
        call(&breaker, Went::Badly);
    }
    assert_eq!(breaker.state(), State::Closed);
    call(&breaker, Went::Well);
    for _ in 0..5 {
        assert_eq!(breaker.state(), State::Closed);
        call(&breaker, Went::Badly);
        advance(&clock, 4 * MS);
    }
    assert_eq!(breaker.state(), State::Open);
    assert!(!call(&breaker, Went::Well));
    assert_eq!(breaker.times_opened(), 1);
}

#[test]
fn a_share_of_failures_opens_it() {
    let (clock, breaker) = breaker();
    for round in 0..40 {
        let went = [Went::Badly, Went::Well][round % 2];
        call(&breaker, went);
        advance(&clock, 10 * MS);
    }
    assert_eq!(breaker.state(), State::Open);
}

#[test]
fn few_failures_among_many_calls_do_not() {
    let (clock, breaker) = breaker();
    for round in 0..10_000 {
        let went = if round % 3 == 0 {
            Went::Badly
        } else {
            Went::Well
        };
        call(&breaker, went);
        advance(&clock, MS);
    }
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn it_is_tried_with_few_calls_and_backs_off() {
    let (clock, breaker) = breaker();
    while breaker.state() == State::Closed {
        call(&breaker, Went::Badly);
        advance(&clock, 5 * MS);
    }
    // Each failed try doubles the wait, up to the bound.
    for wait in [100, 200, 400, 800, 1_000, 1_000] {
        assert!(!call(&breaker, Went::Well));
        advance(&clock, MS * wait * 3 / 4 - 6 * MS);
        assert!(!call(&breaker, Went::Well), "{wait} ms, less a quarter");
        advance(&clock, MS * wait / 2 + 7 * MS);
        let tries: Vec<_> = (0..10).filter_map(|_| breaker.admit()).collect();
        assert_eq!(tries.len(), PROBES as usize);
        for pass in tries {
            pass.tell(Went::Badly);
        }
        assert_eq!(breaker.state(), State::Open);
    }
}

#[test]
fn it_closes_when_the_store_is_back() {
    let (clock, breaker) = breaker();
    let changes = breaker.changes();
    while breaker.state() == State::Closed {
        call(&breaker, Went::Badly);
        advance(&clock, 5 * MS);
    }
    advance(&clock, 200 * MS);
    // A call whose caller went away gives its place back.
    for _ in 0..10 {
        drop(breaker.admit().expect("a try"));
    }
    for _ in 0..SUCCESSES {
        assert_eq!(*changes.borrow(), State::HalfOpen);
        assert!(call(&breaker, Went::Well));
    }
    assert_eq!(*changes.borrow(), State::Closed);
    let all: Vec<_> = (0..100).filter_map(|_| breaker.admit()).collect();
    assert_eq!(all.len(), 100);
}
