//! The lottery of the published roulette, reckoned: when peers launch, and how often two do. Nothing is drawn here.

use std::time::Duration;

/// What is neglected: the chance of a peer that draws for longer than is looked at.
const NEGLECTED: f64 = 1e-12;

/// Parts of a pace in which sums go on.
const PARTS: usize = 16;

/// Peers that draw a number each `pace`, from a random point within the first one on, until this many in a row are above
/// the threshold.
#[derive(Clone, Debug)]
pub struct Odds {
    pace_ms: f64,
    /// By how many numbers a peer has drawn: the chance that it has not launched.
    left: Vec<f64>,
}

impl Odds {
    /// As the paper has it, with its `draws` and its threshold.
    pub fn new(draws: u32, threshold_ppm: u32, pace: Duration) -> Self {
        let above = 1.0 - f64::from(threshold_ppm) / 1e6;
        // By how many in a row there are now.
        let mut runs = vec![0.0; draws.max(1) as usize];
        runs[0] = 1.0;
        let mut left = vec![1.0];
        let mut all = 1.0;
        while all > NEGLECTED {
            runs.rotate_right(1);
            runs.iter_mut().for_each(|chance| *chance *= above);
            runs[0] = all * (1.0 - above);
            all = runs.iter().sum();
            left.push(all);
        }
        Self { pace_ms: pace.as_secs_f64() * 1e3, left }
    }

    /// The chance that a peer still draws then.
    fn draws_at(&self, ms: f64) -> f64 {
        let paces = ms / self.pace_ms;
        let whole = paces as usize;
        let at = |index: usize| self.left.get(index).copied().unwrap_or_default();
        at(whole) + (at(whole + 1) - at(whole)) * paces.fract()
    }

    /// The sum of this over all time in which somebody may draw, in milliseconds.
    fn sum(&self, of: impl Fn(f64) -> f64) -> f64 {
        let part = self.pace_ms / PARTS as f64;
        (0..self.left.len() * PARTS).map(|index| of((index as f64 + 0.5) * part) * part).sum()
    }

    /// The chance that the first of this many has launched by then.
    pub fn first_within(&self, peers: u16, span: Duration) -> f64 {
        1.0 - self.draws_at(span.as_secs_f64() * 1e3).powi(i32::from(peers))
    }

    /// When the first of this many launches, in the mean, in milliseconds.
    pub fn first_mean_ms(&self, peers: u16) -> f64 {
        self.sum(|ms| self.draws_at(ms).powi(i32::from(peers)))
    }

    /// By when this share of the first launches of this many has happened, in milliseconds.
    pub fn first_quantile_ms(&self, peers: u16, share: f64) -> f64 {
        let (mut least, mut most) = (0.0, self.pace_ms * self.left.len() as f64);
        while most - least > 1e-3 {
            let middle = (least + most) / 2.0;
            let is_over = 1.0 - self.draws_at(middle).powi(i32::from(peers)) >= share;
            if is_over { most = middle } else { least = middle }
        }
        most
    }

    /// The chance that another of this many launches before it hears of the first, which takes this long.
    pub fn several(&self, peers: u16, news: Duration) -> f64 {
        let news = news.as_secs_f64() * 1e3;
        let rate = |ms: f64| {
            let whole = (ms / self.pace_ms) as usize;
            let fall = |from: &[f64]| from[0] - from[1];
            self.left.get(whole..whole + 2).map_or(0.0, fall) / self.pace_ms
        };
        let others = i32::from(peers) - 1;
        1.0 - self.sum(|ms| f64::from(peers) * rate(ms) * self.draws_at(ms + news).powi(others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Duration = Duration::from_micros(1_108);

    fn is_near(one: f64, other: f64, by: f64) {
        assert!((one - other).abs() < by, "{one} is not {other}");
    }

    #[test]
    fn it_is_what_can_be_reckoned_by_hand() {
        // (1 - p^r) / (p^r (1 - p)) numbers in the mean, the first of them half a pace after the vacancy.
        for (draws, above) in [(1, 0.15_f64), (2, 0.15), (3, 0.15), (3, 0.1), (4, 0.15)] {
            let run = above.powi(draws);
            let numbers = (1.0 - run) / (run * (1.0 - above));
            let odds = Odds::new(draws as u32, ((1.0 - above) * 1e6) as u32, PACE);
            is_near(odds.first_mean_ms(1) / ((numbers - 0.5) * 1.108), 1.0, 1e-4);
        }
        // Three numbers: all above. Four: as well, or the first one is not.
        let odds = Odds::new(3, 850_000, Duration::from_millis(1));
        is_near(odds.left[3], 1.0 - 0.003_375, 1e-12);
        is_near(odds.left[4], 1.0 - 0.003_375 * 1.85, 1e-12);
        is_near(odds.first_within(1, Duration::from_micros(2_500)), 0.003_375 / 2.0, 1e-12);
    }

    #[test]
    fn nobody_comes_second_without_time_for_it_and_somebody_does_with_all_the_time() {
        let odds = Odds::new(3, 850_000, PACE);
        is_near(odds.several(5, Duration::ZERO), 0.0, 1e-4);
        is_near(odds.several(5, Duration::from_secs(60)), 1.0, 1e-9);
        is_near(odds.several(1, Duration::from_secs(60)), 0.0, 1e-4);
        // Almost an exponential timer: 1 - e^(-4 * 10 / 385).
        is_near(odds.several(5, Duration::from_millis(10)), 1.0 - (-40.0_f64 / 384.0).exp(), 0.004);
        is_near(odds.first_quantile_ms(5, 0.9), odds.first_mean_ms(5) * 10.0_f64.ln(), 3.0);
    }
}
