//! Counters of one request that live apart, in several slots or several stores, charged all or nothing: charge, then
//! undo.
//!
//! Every part is charged on its own, at once. If one of them refuses, what the others took is given back. What that
//! guarantees, and what it does not:
//! - No limit ever admits more than it states: the charge comes first.
//! - After the answer a refused request is counted nowhere. In between, for one round trip, its hits stand against the
//!   limits that had room for them, and another request may be refused for them.
//! - A charge stays, until it expires by itself, where it cannot be undone safely: when this process dies in between,
//!   when a part did not answer (whether it charged is not known), or when the window it was made in may have ended.
//!   That errs on the side of the limit.
//! - A sliding log gives back its newest hits, which may be another request's of the same instant.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use futures_util::future::join_all;

use super::StoreError;
use crate::{
    algorithm::{Outcome, Quota},
    counter::{Atomicity, Counter, Role},
};

/// Groups the places of counters by `part`, in order of first appearance.
pub(super) fn parts<P: PartialEq>(
    counters: &[Counter],
    part: impl Fn(&Counter) -> P,
) -> Vec<(P, Vec<usize>)> {
    let mut parts: Vec<(P, Vec<usize>)> = Vec::new();
    for (place, counter) in counters.iter().enumerate() {
        let part = part(counter);
        match parts.iter_mut().find(|(known, _)| *known == part) {
            Some((_, places)) => places.push(place),
            None => parts.push((part, vec![place])),
        }
    }
    parts
}

/// Has every part decide its own counters, all at once. `ask` is given a part.
pub(super) async fn each<P, F>(
    counters: &[Counter],
    parts: &[(P, Vec<usize>)],
    atomicity: Atomicity,
    ask: impl Fn(&P, Vec<Counter>, Atomicity) -> F,
) -> Vec<Result<Outcome, StoreError>>
where
    F: Future<Output = Vec<Result<Outcome, StoreError>>>,
{
    let answers = join_all(parts.iter().map(|(part, places)| {
        let own = places
            .iter()
            .map(|place| counters[*place].clone())
            .collect();
        ask(part, own, atomicity)
    }))
    .await;
    let mut row: Vec<Option<Result<Outcome, StoreError>>> = vec![None; counters.len()];
    for ((_, places), answers) in parts.iter().zip(answers) {
        for (place, answer) in places.iter().zip(answers) {
            row[*place] = Some(answer);
        }
    }
    row.into_iter()
        .map(|answer| answer.unwrap_or_else(|| Err(StoreError::Unavailable("no answer".into()))))
        .collect()
}

/// Decides `counters` all or nothing. `within` is the longest that a part may take to be asked.
///
/// Must run to its end once it has begun: a caller that may go away has it run in a task.
pub(super) async fn all_or_nothing<P, F>(
    counters: &[Counter],
    parts: &[(P, Vec<usize>)],
    within: Duration,
    ask: impl Fn(&P, Vec<Counter>, Atomicity) -> F,
) -> Vec<Result<Outcome, StoreError>>
where
    F: Future<Output = Vec<Result<Outcome, StoreError>>>,
{
    let begun = Instant::now();
    let charges: Vec<Counter> = counters.iter().map(charge).collect();
    let first = each(&charges, parts, Atomicity::AllOrNothing, &ask).await;
    let failure = first.iter().find_map(|answer| answer.clone().err());
    let held = failure.is_some() || is_held(counters, &first);

    // What part of a request that was held back was not charged anyway: a refused part held itself back.
    let part_held = |place: usize| {
        parts
            .iter()
            .find(|(_, places)| places.contains(&place))
            .is_some_and(|(_, places)| {
                places.iter().any(|place| {
                    first[*place].is_err()
                        || charges[*place].role == Role::Enforced && is_refused(&first[*place])
                })
            })
    };
    let elapsed = begun.elapsed() + within;
    let mut again: Vec<(usize, Counter)> = Vec::new();
    for (place, counter) in counters.iter().enumerate() {
        let Ok(outcome) = &first[place] else { continue };
        let hits = if counter.hits < 0 {
            // Was only looked at so far.
            (!held && counter.role != Role::Shadow).then_some(counter.hits)
        } else {
            let charged = counter.hits > 0
                && outcome.allowed
                && counter.role != Role::Shadow
                && (charges[place].role == Role::Shadow || !part_held(place));
            (held && charged && may_undo(&counter.quota, outcome, elapsed)).then_some(-counter.hits)
        };
        if let Some(hits) = hits {
            let counter = Counter {
                hits,
                ..counter.clone()
            };
            again.push((place, counter));
        }
    }
    let mut answers = first;
    if !again.is_empty() {
        let (places, second): (Vec<usize>, Vec<Counter>) = again.into_iter().unzip();
        let parts: Vec<(&P, Vec<usize>)> = parts
            .iter()
            .map(|(part, own)| {
                let own = places
                    .iter()
                    .enumerate()
                    .filter(|(_, place)| own.contains(place))
                    .map(|(index, _)| index)
                    .collect();
                (part, own)
            })
            .filter(|(_, own): &(&P, Vec<usize>)| !own.is_empty())
            .collect();
        let done = each(&second, &parts, Atomicity::PerCounter, |part, own, how| {
            ask(part, own, how)
        })
        .await;
        for (place, answer) in places.into_iter().zip(done) {
            // One that could not be undone is over-counted; its answer stands.
            if answer.is_ok() {
                answers[place] = answer;
            }
        }
    }
    match failure {
        Some(error) => vec![Err(error); counters.len()],
        None => {
            for (counter, answer) in counters.iter().zip(&mut answers) {
                if let Ok(outcome) = answer
                    && counter.hits < 0
                {
                    outcome.allowed = true;
                    outcome.retry_after = Some(0);
                }
            }
            answers
        }
    }
}

/// What is asked of a part first. Whether all quota buckets refuse only the whole request can tell, and a give-back
/// cannot be undone: neither may hold its part back.
fn charge(counter: &Counter) -> Counter {
    let mut charge = counter.clone();
    if charge.role == Role::Quota {
        charge.role = Role::Shadow;
    } else if charge.hits < 0 && charge.role == Role::Enforced {
        charge.role = Role::Shadow;
        charge.hits = 0;
    }
    if counter.role == Role::Quota && counter.hits < 0 {
        charge.hits = 0;
    }
    charge
}

fn is_refused(answer: &Result<Outcome, StoreError>) -> bool {
    answer.as_ref().is_ok_and(|outcome| !outcome.allowed)
}

fn is_held(counters: &[Counter], answers: &[Result<Outcome, StoreError>]) -> bool {
    let mut quotas = 0;
    let mut quotas_refused = 0;
    for (counter, answer) in counters.iter().zip(answers) {
        let refused = counter.hits >= 0 && is_refused(answer);
        match counter.role {
            Role::Enforced if refused => return true,
            Role::Quota => {
                quotas += 1;
                quotas_refused += usize::from(refused);
            }
            Role::Enforced | Role::Shadow => {}
        }
    }
    quotas > 0 && quotas == quotas_refused
}

/// Is the window that was charged sure to last until the hits are given back? In the next one they would be somebody
/// else's.
fn may_undo(quota: &Quota, outcome: &Outcome, elapsed: Duration) -> bool {
    let left = match *quota {
        Quota::FixedWindow { .. } => outcome.reset_after,
        Quota::SlidingWindow { window, .. } => outcome.reset_after.saturating_sub(window),
        Quota::SlidingLog { .. } | Quota::TokenBucket { .. } | Quota::LeakyBucket { .. } => {
            return true;
        }
    };
    u128::from(left) > elapsed.as_micros()
}
