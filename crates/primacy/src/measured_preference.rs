//! A candidate that stands by what it measures: how far away those are that keep elections, and where requests arrive.

use std::time::Duration;

use primacy_core::select::{Classes, ClassesError, Metric, Names, Rank, SCORES_MAX, Score, Selector};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::Label;
use crate::command::Command;
use crate::store::{LatencyProbe, LatencyReport};

/// What a candidate measures, and how it stands by that.
///
/// While it knows nothing it stands behind those that know, and takes part as any other does: what is not measured never keeps
/// anybody from leading. When it knows less than before, it stands as it stood last.
///
/// Sources: Becker et al. 2011 §2.2 and §3.3; §5 for several in order of priority, and for classes.
#[derive(Clone, Debug)]
pub struct MeasuredPreference {
    metrics: Vec<Metric>,
    selector: Selector,
    every: Duration,
}

/// Why a candidate cannot stand by these metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeasuredPreferenceError {
    /// There is none.
    #[error("name one at least: consensus, latency, worst-case or request")]
    None,
    /// There are too many.
    #[error("{metrics} are too many; name at most {SCORES_MAX}, those that matter most")]
    TooMany {
        /// How many.
        metrics: usize,
    },
    /// How long a history is cannot be measured from here.
    #[error("how long a history is, is known to the program alone: let it state that as a score")]
    History,
    /// Whose turn it is cannot be measured.
    #[error("one after another is no score: choose 'ring' as the turn among equals")]
    Rotating,
    /// By how much rates must differ is not said.
    #[error("'request' needs a class: how many more requests must arrive at one place than at another to count")]
    NoClass,
    /// There are more classes than metrics.
    #[error("there are classes for {classes} scores, and {metrics} to measure")]
    MoreClasses {
        /// How many.
        classes: usize,
        /// For how many.
        metrics: usize,
    },
}

impl MeasuredPreference {
    /// How often everything is measured where nothing is chosen: the paper's heartbeat.
    pub const EVERY: Duration = Duration::from_secs(1);

    /// By these metrics, the first of which counts most, in these classes, and by names before both. Latencies are scores in
    /// microseconds. Those without a class have [one of 2 ms](Self::usual_classes).
    ///
    /// # Errors
    /// If one of them cannot be measured, or there is none.
    pub fn new(metrics: Vec<Metric>, names: Names, mut classes: Vec<Classes>) -> Result<Self, MeasuredPreferenceError> {
        if metrics.is_empty() {
            return Err(MeasuredPreferenceError::None);
        }
        let more = MeasuredPreferenceError::MoreClasses { classes: classes.len(), metrics: metrics.len() };
        if classes.len() > metrics.len() {
            return Err(more);
        }
        for metric in &metrics[classes.len()..] {
            classes.push(Self::usual_classes(*metric).ok_or(MeasuredPreferenceError::NoClass)?);
        }
        if metrics.contains(&Metric::History) {
            return Err(MeasuredPreferenceError::History);
        }
        if metrics.contains(&Metric::Rotating) {
            return Err(MeasuredPreferenceError::Rotating);
        }
        let selector =
            Selector::new(names, classes).map_err(|_| MeasuredPreferenceError::TooMany { metrics: metrics.len() })?;
        Ok(Self { metrics, selector, every: Self::EVERY })
    }

    /// How often everything is measured.
    #[must_use]
    pub const fn measured_every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// The classes of a metric for which none were chosen: latencies count when they differ by 2 ms, and a border must be
    /// passed by as much, so that one that wavers by less than 4 ms moves nobody. Rates have none.
    pub fn usual_classes(metric: Metric) -> Option<Classes> {
        let width = Score::from(2_000);
        (metric != Metric::RequestRate).then(|| Classes::new(width, width).unwrap_or_default())
    }

    /// How the candidate with this label stands before anything is known. `None`: it never leads.
    pub(crate) fn first(&self, label: &Label) -> Option<Rank> {
        self.selector.rank_unknown(label, self.metrics.len())
    }

    /// Measures, and tells the driver of the candidate with this label how it stands, for as long as there is one.
    pub(crate) async fn follow(
        self,
        label: Label,
        mut probe: Box<dyn LatencyProbe>,
        commands: mpsc::UnboundedSender<Command>,
    ) {
        let every = self.every;
        let mut standing = MeasuredRank::new(self, label);
        for _ in 1..FIRST {
            probe.round().await;
        }
        loop {
            let report = probe.round().await;
            let space = standing.space(&report).map(|slot| Command::SetSlot { slot });
            let prefer = standing.next(&report).map(|rank| Command::Prefer { rank: Some(rank) });
            if !space.into_iter().chain(prefer).all(|command| commands.send(command).is_ok()) {
                return;
            }
            tokio::time::sleep(every).await;
        }
    }
}

/// How often everything is measured before anything is made of it: the first score decides without margin.
const FIRST: u32 = 3;

/// How a candidate stands by what it has measured so far.
struct MeasuredRank {
    measured: MeasuredPreference,
    label: Label,
    /// What the driver knows.
    last: Option<Rank>,
    /// What it leaves to each before it in line, as the driver knows it.
    slot: Duration,
    silent: LogState,
}

/// Slots are a whole number of these.
const SLOT: Duration = Duration::from_millis(10);

/// What has been said in the log already.
#[derive(Default)]
struct LogState {
    unknown: bool,
    no_requests: bool,
    too_far: bool,
}

impl MeasuredRank {
    fn new(measured: MeasuredPreference, label: Label) -> Self {
        Self { last: measured.first(&label), measured, label, slot: Duration::ZERO, silent: LogState::default() }
    }

    /// How much time it leaves to each before it in line, if that is another than before: as long as the way to the furthest
    /// and back. The best candidate may be further than it from those that decide, and learn later that nobody leads.
    fn space(&mut self, report: &LatencyReport) -> Option<Duration> {
        let furthest = report.voters.iter().filter_map(|place| place.round_trip).max()?;
        let slot = SLOT * u32::try_from(furthest.as_millis() / SLOT.as_millis() + 1).unwrap_or(u32::MAX);
        (std::mem::replace(&mut self.slot, slot) != slot).then_some(slot)
    }

    /// How it stands from now on, if that is another rank than before.
    fn next(&mut self, report: &LatencyReport) -> Option<Rank> {
        let MeasuredPreference { metrics, selector, .. } = &mut self.measured;
        let Some(scores) = report.scores(metrics) else {
            // As long as nobody at all is reached there is other trouble, of which is told.
            if !report.voters.is_empty() && !std::mem::replace(&mut self.silent.unknown, true) {
                warn!("its score cannot be measured: this candidate stands where it stood before");
            }
            return None;
        };
        if std::mem::replace(&mut self.silent.unknown, false) {
            warn!(%scores, "its score can be measured again");
        }
        if metrics.contains(&Metric::MeanLatency)
            && !report.tells_requests()
            && !std::mem::replace(&mut self.silent.no_requests, true)
        {
            warn!("no voter tells how many requests arrive there: 'latency' counts as 'consensus' does");
        }
        let rank = match selector.rank(&self.label, &scores) {
            Ok(rank) => rank,
            Err(error @ ClassesError::TooFar { .. }) if !std::mem::replace(&mut self.silent.too_far, true) => {
                warn!(%error, "its score cannot be used: this candidate stands where it stood before");
                return None;
            }
            Err(_) => return None,
        };
        if rank == self.last {
            return None;
        }
        debug!(%scores, ?rank, "measured");
        self.last = rank;
        rank
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::VoterLatency;

    fn report(trips: &[Option<u64>]) -> LatencyReport {
        let place = |(at, trip): (usize, &Option<u64>)| VoterLatency {
            name: format!("p{at}"),
            address: format!("p{at}:1"),
            round_trip: trip.map(Duration::from_micros),
            requests: None,
        };
        LatencyReport { voters: trips.iter().enumerate().map(place).collect() }
    }

    fn standing(metrics: &[Metric], never: &str) -> MeasuredRank {
        let names = Names::new("a".parse().expect("a name"), never.parse().expect("a name")).expect("names");
        let measured = MeasuredPreference::new(metrics.to_vec(), names, Vec::new()).expect("they can be measured");
        MeasuredRank::new(measured, Label::new("z").expect("valid"))
    }

    #[test]
    fn it_stands_behind_all_until_it_knows_and_stays_when_it_knows_no_more() {
        let mut standing = standing(&[Metric::ConsensusLatency], "never");
        let unknown = standing.last.expect("it may lead");
        assert_eq!(standing.next(&LatencyReport::default()), None);
        assert_eq!(standing.next(&report(&[Some(9), None, None])), None, "no majority answers");
        let first = standing.next(&report(&[Some(9), Some(40_000), None])).expect("a majority answers");
        assert!(first < unknown);
        assert_eq!(standing.next(&report(&[Some(9), None, None])), None, "it stands as before");
        assert_eq!(standing.last, Some(first));
        let near = standing.next(&report(&[Some(9), Some(400), Some(900_000)])).expect("much nearer");
        assert!(near < first);
    }

    #[test]
    fn who_never_leads_does_not_whatever_is_measured() {
        let mut standing = standing(&[Metric::ConsensusLatency], "z");
        assert_eq!(standing.last, None);
        assert_eq!(standing.next(&report(&[Some(9)])), None);
    }

    #[test]
    fn round_trips_that_waver_by_less_than_four_milliseconds_move_nobody() {
        let mut standing = standing(&[Metric::WorstLatency], "never");
        // Twice as much: to a majority, and to the furthest.
        standing.next(&report(&[Some(20_000)])).expect("the first");
        for micros in [20_900, 19_100, 20_900, 20_000] {
            assert_eq!(standing.next(&report(&[Some(micros)])), None, "{micros}");
        }
        standing.next(&report(&[Some(25_000)])).expect("10 ms more");
    }

    #[test]
    fn those_before_it_in_line_have_as_long_as_the_longest_way_takes() {
        let mut standing = standing(&[Metric::ConsensusLatency], "never");
        let mut space = |trips: &[Option<u64>]| standing.space(&report(trips)).map(|slot| slot.as_millis());
        assert_eq!(space(&[None, None]), None, "nobody answers");
        assert_eq!(space(&[Some(60), Some(300), None]), Some(10));
        assert_eq!(space(&[Some(60), Some(9_999), None]), None);
        assert_eq!(space(&[Some(60), Some(160_300), Some(2_000)]), Some(170));
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_what_there_is_for_it() {
        let refused = |metrics: &[Metric], classes: &[&str]| {
            let classes = classes.iter().map(|text| text.parse().expect("classes")).collect();
            MeasuredPreference::new(metrics.to_vec(), Names::default(), classes).err()
        };
        let latency = Metric::MeanLatency;
        assert_eq!(refused(&[], &[]), Some(MeasuredPreferenceError::None));
        assert_eq!(refused(&[latency, Metric::History], &[]), Some(MeasuredPreferenceError::History));
        assert_eq!(refused(&[Metric::Rotating], &[]), Some(MeasuredPreferenceError::Rotating));
        assert_eq!(refused(&[Metric::RequestRate], &[]), Some(MeasuredPreferenceError::NoClass));
        assert_eq!(refused(&[latency, Metric::RequestRate], &["5"]), Some(MeasuredPreferenceError::NoClass));
        assert_eq!(refused(&[latency, Metric::RequestRate], &["5", "10"]), None);
        assert_eq!(
            refused(&[latency], &["5", "10"]),
            Some(MeasuredPreferenceError::MoreClasses { classes: 2, metrics: 1 })
        );
        assert_eq!(refused(&[latency; 7], &[]), Some(MeasuredPreferenceError::TooMany { metrics: 7 }));
    }
}
