//! Which key a call is about.

use super::Distribution;

/// Keys `0..count`, and how often each is drawn.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    count: usize,
    /// Of a Zipf distribution: the share of draws that fall on this key or one before it.
    shares: Box<[f64]>,
}

impl Keys {
    /// `count` keys, at least one.
    pub(super) fn new(count: usize, distribution: Distribution, exponent: f64) -> Self {
        let count = match distribution {
            Distribution::One => 1,
            _ => count.max(1),
        };
        let shares = match distribution {
            Distribution::Zipf => shares(count, exponent),
            _ => Box::default(),
        };
        Self { count, shares }
    }

    /// How many there are.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// One of them.
    pub(super) fn draw(&self, random: &mut fastrand::Rng) -> usize {
        if self.shares.is_empty() {
            return random.usize(..self.count);
        }
        let at = random.f64();
        let found = self.shares.partition_point(|share| *share <= at);
        // The last share is 1 but for rounding.
        found.min(self.count - 1)
    }
}

fn shares(count: usize, exponent: f64) -> Box<[f64]> {
    let weights = (1..=count).map(|rank| (rank as f64).powf(-exponent));
    let mut total = 0.0;
    let mut shares: Box<[f64]> = weights
        .map(|weight| {
            total += weight;
            total
        })
        .collect();
    for share in &mut shares {
        *share /= total;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(keys: &Keys) -> Vec<u32> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut drawn = vec![0; keys.count()];
        for _ in 0..100_000 {
            drawn[keys.draw(&mut random)] += 1;
        }
        drawn
    }

    #[test]
    fn uniform_keys_are_drawn_alike() {
        let drawn = drawn(&Keys::new(10, Distribution::Uniform, 1.0));
        assert!(drawn.iter().all(|times| (9_000..11_000).contains(times)));
    }

    #[test]
    fn the_second_of_zipf_is_drawn_half_as_often_as_the_first() {
        let drawn = drawn(&Keys::new(1_000, Distribution::Zipf, 1.0));
        let ratio = f64::from(drawn[0]) / f64::from(drawn[1]);
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
        assert!(drawn[0] > 10 * drawn[99]);
    }

    #[test]
    fn one_is_one() {
        assert_eq!(drawn(&Keys::new(10, Distribution::One, 1.0)), [100_000]);
    }
}
