//! `rate_limit`: the numbers of a rule.

use super::{
    algorithm::{Algorithm, Numbers},
    duration,
    fields::{Field, Fields},
    vocabulary::{Level, nearest, shortened},
};
use crate::{
    algorithm::{MAX_WINDOW, Quota, QuotaError},
    counter::OnFailure,
    rules::{
        file::{At, Pair},
        limit::Limit,
        report::Report,
    },
    unit::Unit,
};

/// Shortest `window`, in microseconds: below it the way to the store takes longer than the window.
const MIN_WINDOW: u64 = 1_000;

/// Our own fields, none of which goes with `unlimited`.
const OWN: [&str; 6] = [
    "algorithm",
    "burst",
    "max_delay",
    "window",
    "cost",
    "on_store_failure",
];

/// What a `rate_limit` says.
#[derive(Debug)]
pub(super) struct RateLimit<'n> {
    /// `None` when it is `unlimited`, or wrong and reported.
    pub(super) limit: Option<Limit>,
    pub(super) name: &'n str,
    /// Place of the name, or of the whole.
    pub(super) name_at: At,
    pub(super) replaces: Vec<(At, &'n str)>,
}

/// Reads the mapping of a `rate_limit`.
pub(super) fn read<'n>(
    (field, pairs): (Field<'n>, &'n [Pair]),
    rule: &str,
    report: &mut Report,
) -> RateLimit<'n> {
    let fields = Fields::read(pairs, Level::RateLimit, rule, report);
    let mut scope = Scope {
        at: field.at,
        fields,
        rule,
        report,
    };
    let name = scope.name();
    RateLimit {
        limit: scope.limit(),
        name,
        name_at: scope.place("name"),
        replaces: scope.replaces(name),
    }
}

struct Scope<'n, 'r> {
    /// Place of the `rate_limit` key.
    at: At,
    fields: Fields<'n>,
    rule: &'r str,
    report: &'r mut Report,
}

impl<'n> Scope<'n, '_> {
    fn limit(&mut self) -> Option<Limit> {
        let requests = self
            .fields
            .count("requests_per_unit", self.rule, self.report);
        let unit = self.fields.text("unit", self.rule, self.report);
        if self.fields.flag("unlimited", self.rule, self.report) {
            self.unlimited(unit);
            return None;
        }
        let (unit, window) = self.span(unit)?;
        let requests = match (requests, self.fields.get("requests_per_unit")) {
            (Some(requests), _) => requests,
            (None, Some(_)) => return None,
            (None, None) => {
                self.warn(
                    "rate_limit",
                    "requests_per_unit is missing, which means 0: every request is refused",
                );
                0
            }
        };
        let quota = self.quota(requests, window)?;
        Some(Limit {
            requests_per_unit: requests,
            unit,
            window,
            quota,
            cost: self.cost(quota.capacity())?,
            on_store_failure: self.on_store_failure()?,
        })
    }

    /// What is answered when the store cannot decide, if the rule says so; `None` when it is wrong.
    fn on_store_failure(&mut self) -> Option<Option<OnFailure>> {
        const FIELD: &str = "on_store_failure";
        if self.fields.get(FIELD).is_none() {
            return Some(None);
        }
        let written = self.fields.text(FIELD, self.rule, self.report);
        if let Some(policy) = OnFailure::from_name(written) {
            return Some(Some(policy));
        }
        let names = OnFailure::ALL.map(OnFailure::name);
        let hint = match nearest(written, names) {
            Some(known) => format!("did you mean '{known}'?"),
            None => format!("the policies are {}", names.join(", ")),
        };
        self.refuse(
            FIELD,
            &format!("unknown on_store_failure '{}': {hint}", shortened(written)),
        );
        None
    }

    fn unlimited(&mut self, unit: &str) {
        if Unit::from_name(unit).is_some() {
            self.refuse(
                "unit",
                "should not specify rate limit unit when unlimited: remove one of the two",
            );
        } else if !unit.is_empty() {
            let unit = shortened(unit);
            self.warn(
                "unit",
                &format!("unit '{unit}' is ignored, because the rule is unlimited"),
            );
        }
        if self.fields.get("requests_per_unit").is_some() {
            self.warn(
                "requests_per_unit",
                "requests_per_unit is ignored, because the rule is unlimited",
            );
        }
        for own in OWN {
            if self.fields.get(own).is_some() {
                self.refuse(
                    own,
                    &format!("'{own}' has no meaning when unlimited: remove one of the two"),
                );
            }
        }
    }

    /// The unit, if the rule has one, and the length of a window.
    fn span(&mut self, unit: &str) -> Option<(Option<Unit>, u64)> {
        if self.fields.get("window").is_some() {
            let written = self.fields.text("window", self.rule, self.report);
            if !unit.is_empty() {
                self.refuse("window", "a rate_limit has a unit or a window, not both");
                return None;
            }
            return match self.duration("window", written)? {
                window if (MIN_WINDOW..=MAX_WINDOW).contains(&window) => Some((None, window)),
                _ => {
                    self.refuse("window", "a window is 1ms to 8760h (a year) long");
                    None
                }
            };
        }
        if let Some(unit) = Unit::from_name(unit) {
            return Some((Some(unit), unit.micros()));
        }
        let hint = match nearest(unit, Unit::ALL.map(Unit::name)) {
            Some(known) if !unit.is_empty() => format!("did you mean '{known}'?"),
            _ => format!(
                "the units are {}; or write `window: 30s`, or `unlimited: true`",
                Unit::ALL.map(Unit::name).join(", ")
            ),
        };
        self.refuse(
            "unit",
            &format!("invalid rate limit unit '{}': {hint}", shortened(unit)),
        );
        None
    }

    fn duration(&mut self, field: &str, written: &str) -> Option<u64> {
        match duration::micros(written) {
            Ok(micros) => Some(micros),
            Err(reason) => {
                self.refuse(
                    field,
                    &format!("{field} '{}': {reason}", shortened(written)),
                );
                None
            }
        }
    }

    fn algorithm(&mut self) -> Option<Algorithm> {
        if self.fields.get("algorithm").is_none() {
            return Some(Algorithm::FixedWindow);
        }
        let written = self.fields.text("algorithm", self.rule, self.report);
        if let Some((_, algorithm)) = Algorithm::ALL.iter().find(|(name, _)| *name == written) {
            return Some(*algorithm);
        }
        let names = Algorithm::ALL.map(|(name, _)| name);
        let hint = match nearest(written, names) {
            Some(known) => format!("did you mean '{known}'?"),
            None => format!("the algorithms are {}", names.join(", ")),
        };
        self.refuse(
            "algorithm",
            &format!("unknown algorithm '{}': {hint}", shortened(written)),
        );
        None
    }

    fn quota(&mut self, requests: u32, window: u64) -> Option<Quota> {
        let algorithm = self.algorithm()?;
        if algorithm != Algorithm::TokenBucket && self.fields.get("burst").is_some() {
            self.refuse("burst", "burst belongs to `algorithm: token_bucket`");
            return None;
        }
        if algorithm != Algorithm::LeakyBucket && self.fields.get("max_delay").is_some() {
            self.refuse(
                "max_delay",
                "max_delay belongs to `algorithm: leaky_bucket`",
            );
            return None;
        }
        if requests == 0 && matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket) {
            self.refuse(
                "requests_per_unit",
                "a bucket that never refills admits nothing: to refuse every request, use fixed_window",
            );
            return None;
        }
        let numbers = Numbers {
            algorithm,
            requests: requests.into(),
            window,
            burst: self.burst()?,
            max_delay: self.max_delay()?,
        };
        match numbers.quota() {
            Ok(quota) => {
                if let Some(rate) = numbers.rounded(&quota) {
                    self.warn(
                        "requests_per_unit",
                        &format!(
                            "{requests} each {window} microseconds cannot be counted exactly with a bucket of that \
                             size; rounded down to {} each {} microseconds",
                            rate.tokens(),
                            rate.period()
                        ),
                    );
                }
                Some(quota)
            }
            Err(error) => {
                let field = match error {
                    QuotaError::Delay => "max_delay",
                    QuotaError::Window => "window",
                    _ => "requests_per_unit",
                };
                self.refuse(field, &error.to_string());
                None
            }
        }
    }

    /// The size of a token bucket, if the rule has one; `None` when it is wrong.
    fn burst(&mut self) -> Option<Option<u64>> {
        if self.fields.get("burst").is_none() {
            return Some(None);
        }
        let burst = self.fields.count("burst", self.rule, self.report)?;
        if burst == 0 {
            self.refuse("burst", "burst is at least 1: a bucket of 0 admits nothing");
            return None;
        }
        Some(Some(burst.into()))
    }

    /// The longest wait in a leaky bucket, if the rule has one; `None` when it is wrong.
    fn max_delay(&mut self) -> Option<Option<u64>> {
        if self.fields.get("max_delay").is_none() {
            return Some(None);
        }
        let written = self.fields.text("max_delay", self.rule, self.report);
        let micros = self.duration("max_delay", written)?;
        if micros > MAX_WINDOW {
            self.refuse("max_delay", "max_delay is at most 8760h (a year)");
            return None;
        }
        Some(Some(micros))
    }

    fn cost(&mut self, capacity: u64) -> Option<u64> {
        if self.fields.get("cost").is_none() {
            return Some(1);
        }
        let cost = u64::from(self.fields.count("cost", self.rule, self.report)?);
        if cost == 0 {
            self.refuse("cost", "cost is at least 1");
            return None;
        }
        if cost > capacity {
            self.refuse(
                "cost",
                &format!("cost {cost} is above the {capacity} that can be admitted at once: no request could pass"),
            );
            return None;
        }
        Some(cost)
    }

    fn name(&mut self) -> &'n str {
        let name = self.fields.text("name", self.rule, self.report);
        // The proxy pastes the name between quotes into a response header.
        let strange = |c: char| !(c.is_ascii_alphanumeric() || "._/- ".contains(c));
        if let Some(c) = name.chars().find(|c| strange(*c)) {
            self.warn(
                "name",
                &format!(
                    "a name ends up in a response header: '{}' in it may break that; use letters, digits, '.', '_', \
                     '/', '-' and space",
                    c.escape_debug()
                ),
            );
        }
        name
    }

    fn replaces(&mut self, own: &str) -> Vec<(At, &'n str)> {
        let items = self
            .fields
            .list("replaces", "[]config.yamlReplaces", self.rule, self.report);
        let mut names = Vec::new();
        for item in items {
            // What is no mapping was reported by the sweep.
            let Some(pairs) = item.as_map() else { continue };
            let fields = Fields::read(pairs, Level::Replaces, self.rule, self.report);
            let at = fields.get("name").map_or(item.at, |name| name.value.at);
            let name = fields.text("name", self.rule, self.report);
            if name.is_empty() {
                self.report.mistake(
                    at,
                    self.rule,
                    "should not have an empty replaces entry: write `- name: ...`",
                );
            } else if name == own {
                self.report.mistake(
                    at,
                    self.rule,
                    format!(
                        "replaces should not contain name of same descriptor: '{}'",
                        shortened(name)
                    ),
                );
            } else {
                names.push((at, name));
            }
        }
        names
    }

    /// Place of a field's value, or of the whole when it is not written.
    fn place(&self, field: &str) -> At {
        self.fields
            .get(field)
            .map_or(self.at, |field| field.value.at)
    }

    fn refuse(&mut self, field: &str, message: &str) {
        self.report.mistake(self.place(field), self.rule, message);
    }

    fn warn(&mut self, field: &str, message: &str) {
        self.report.warning(self.place(field), self.rule, message);
    }
}
