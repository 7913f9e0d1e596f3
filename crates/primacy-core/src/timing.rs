//! Durations that only make sense together: one validated type for all of an election's timing (rule R10).

use core::time::Duration;

use crate::standing::Standing;
use crate::time::{HumanDuration, Instant, share_ppm, stretched};

/// What may be chosen about an election's timing; everything else follows. Checked by [`Timing::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimingSettings {
    /// How long a grant lasts unless it is renewed: the wait when a whole host is lost. 100 ms to 1 day.
    pub lease: Duration,
    /// How long the work may take to stop once it is told to, inside the lease.
    pub grace: Duration,
    /// Time from one successful renewal to the next. By default the smaller of a third of the lease and half of the
    /// [room](Timing::room).
    pub renew_every: Option<Duration>,
    /// How long one call to the store may take before its outcome is treated as unknown. By default what the room
    /// leaves beside `renew_every`, at most a quarter of the lease.
    pub call_timeout: Option<Duration>,
    /// By how much the *rate* of any participant's clock may be wrong, in parts per million. 1,000 to 100,000; the
    /// default of 20,000 (2 %) covers what time daemons do when they slew.
    pub drift_ppm: u32,
}

impl TimingSettings {
    /// The default settings for a lease of this length: a quarter of it is left for the work to stop.
    pub const fn new(lease: Duration) -> Self {
        let quarter = Duration::from_nanos((lease.as_nanos() / 4) as u64);
        Self { lease, grace: quarter, renew_every: None, call_timeout: None, drift_ppm: 20_000 }
    }

    /// The default settings where the work is a program of its own, as of `primacy run`: it has half of the lease to stop, and
    /// 5 s at most.
    pub const fn for_program(lease: Duration) -> Self {
        const MOST: Duration = Duration::from_secs(5);
        let half = Duration::from_nanos((lease.as_nanos() / 2) as u64);
        let grace = if half.as_nanos() < MOST.as_nanos() { half } else { MOST };
        Self { grace, ..Self::new(lease) }
    }
}

/// Timing that has been checked as a whole: a leader that can no longer renew stops its work, kills what does not stop,
/// and is done before anyone else may lead.
///
/// ```text
/// sent                                                    until                 lease × (1 + drift)
///  ├── renew_every ──┬── call_timeout ──┬── grace ──┬─ kill ┤──────── margin ───────┤
///  renewal k         renewal k+1        told to     killed  belief                  earliest
///  is sent           is sent            stop                ends                    takeover
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    lease: Duration,
    grace: Duration,
    renew_every: Duration,
    call_timeout: Duration,
    drift_ppm: u32,
}

/// Why settings were refused, and what would be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimingError {
    /// The lease is shorter than 100 ms or longer than a day.
    #[error("a lease of {} is not supported; choose 100ms to 24h", HumanDuration(*.lease))]
    Lease {
        /// What was asked for.
        lease: Duration,
    },
    /// The work's time to stop leaves too little of the lease for renewing it.
    #[error("a grace of {} does not fit in a lease of {}; choose at most {}, or a longer lease", HumanDuration(*.grace), HumanDuration(*.lease), HumanDuration(*.most))]
    Grace {
        /// The lease.
        lease: Duration,
        /// The grace that was asked for.
        grace: Duration,
        /// The longest grace that fits.
        most: Duration,
    },
    /// The lease would have ended before it is renewed, or the work would have been told to stop.
    #[error(
        "renewing every {} is too seldom for a lease of {}: with a grace of {} it must have been renewed \
         after {}, calls included; choose at most {} (the default is {}), or a longer lease", HumanDuration(*.renew_every), HumanDuration(*.lease), HumanDuration(*.grace), HumanDuration(*.room), HumanDuration(*.most), HumanDuration(*.usual))]
    Interval {
        /// The renewal interval that was asked for.
        renew_every: Duration,
        /// The lease.
        lease: Duration,
        /// The grace.
        grace: Duration,
        /// What a renewal and its call may take together.
        room: Duration,
        /// The longest interval that fits.
        most: Duration,
        /// The interval where none is chosen.
        usual: Duration,
    },
    /// A renewal and its time-out do not fit into the lease before the work must be told to stop.
    #[error(
        "renewing every {} with a call time-out of {} does not fit; together at most {}, each at least 1ms", HumanDuration(*.renew_every), HumanDuration(*.call_timeout), HumanDuration(*.room))]
    Renewal {
        /// The renewal interval.
        renew_every: Duration,
        /// The time-out of one call.
        call_timeout: Duration,
        /// What they may take together.
        room: Duration,
    },
    /// The drift bound is outside of 0.1 % to 10 %.
    #[error("a clock rate bound of {drift_ppm} ppm is not supported; choose 1000 to 100000")]
    Drift {
        /// What was asked for.
        drift_ppm: u32,
    },
}

impl Timing {
    /// The lease that is used where none is chosen.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(10);

    /// Checks that the settings fit together.
    ///
    /// # Errors
    /// When they do not; the error says what would.
    pub fn new(settings: TimingSettings) -> Result<Self, TimingError> {
        let TimingSettings { lease, grace, renew_every, call_timeout, drift_ppm } = settings;
        if !(Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(&lease) {
            return Err(TimingError::Lease { lease });
        }
        if !(1_000..=100_000).contains(&drift_ppm) {
            return Err(TimingError::Drift { drift_ppm });
        }
        let mut timing =
            Self { lease, grace: Duration::ZERO, renew_every: Duration::ZERO, call_timeout: Duration::ZERO, drift_ppm };
        let most = timing.room().saturating_sub(lease / 5);
        if grace > most {
            return Err(TimingError::Grace { lease, grace, most });
        }
        timing.grace = grace;
        let room = timing.room();
        let least = Duration::from_millis(1);
        let (most, usual) = (room.saturating_sub(least), (lease / 3).min(room / 2));
        let renew_every = renew_every.unwrap_or(usual);
        if call_timeout.is_none() && renew_every > most {
            return Err(TimingError::Interval { renew_every, lease, grace, room, most, usual });
        }
        let call_timeout = call_timeout.unwrap_or(room.saturating_sub(renew_every).min(lease / 4));
        if renew_every < least || call_timeout < least || renew_every.saturating_add(call_timeout) > room {
            return Err(TimingError::Renewal { renew_every, call_timeout, room });
        }
        Ok(Self { renew_every, call_timeout, ..timing })
    }

    /// The default timing for a lease of this length.
    ///
    /// # Errors
    /// When the lease is shorter than 100 ms or longer than a day.
    pub fn with_lease(lease: Duration) -> Result<Self, TimingError> {
        Self::new(TimingSettings::new(lease))
    }

    /// The same timing for a lease of another length: the work has the same time to stop, and the rest follows.
    ///
    /// # Errors
    /// When the grace does not fit into that lease, or the lease is shorter than 100 ms or longer than a day.
    pub fn with_other_lease(&self, lease: Duration) -> Result<Self, TimingError> {
        let Self { grace, drift_ppm, .. } = *self;
        Self::new(TimingSettings { lease, grace, renew_every: None, call_timeout: None, drift_ppm })
    }

    /// How long a grant lasts, as it is written into the record.
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// How long the work may take to stop.
    pub const fn grace(&self) -> Duration {
        self.grace
    }

    /// Time from the sending of one renewal to the next.
    pub const fn renew_every(&self) -> Duration {
        self.renew_every
    }

    /// How long one call to the store may take.
    pub const fn call_timeout(&self) -> Duration {
        self.call_timeout
    }

    /// How long opening a connection to the store may take before that is given up and begun anew. It goes on when the call
    /// that needed it has failed.
    pub fn opening_timeout(&self) -> Duration {
        Self::opening_timeout_of(self.lease)
    }

    /// The same for a lease of this length: as long as the lease, but 5 s at least, since a busy server takes its time for a
    /// login, and 30 s at most, since a connection that was begun while the network was away may never come about.
    pub fn opening_timeout_of(lease: Duration) -> Duration {
        lease.clamp(Duration::from_secs(5), Duration::from_secs(30))
    }

    /// Whether a way to the store carries this timing, on which opening a connection takes `opening` and a renewal `latency`:
    /// opening may take twice as long before it is given up, and the longest call is four round trips.
    pub fn carries(&self, opening: Duration, latency: Duration) -> bool {
        opening.saturating_mul(2) <= self.opening_timeout() && latency.saturating_mul(4) <= self.call_timeout
    }

    /// Whether a leader that loses its connection keeps the lease: opening another one and a renewal fit into the time for
    /// which the store may be [away](Self::ride_through).
    pub fn outlasts_reconnection(&self, opening: Duration, latency: Duration) -> bool {
        opening.saturating_add(latency) <= self.ride_through()
    }

    /// The published bound: how long after its start a candidate leads where nobody holds the lease, if opening a connection
    /// takes at most `opening` and a renewal at most `latency`, the way [carries](Self::carries) this timing, and nothing
    /// fails. Where connections are lost too, a fail-over takes this in addition to [`failover_bound`](Self::failover_bound).
    pub fn opening_bound(&self, opening: Duration, latency: Duration) -> Duration {
        // A call that was given up while the connection was opened is made anew after a renewal interval at most. Then
        // it looks and asks, with four round trips each at most.
        let on_own_clock = self.renew_every.saturating_add(self.slot() * 4);
        opening.saturating_add(on_slowest_clock(on_own_clock, self.drift_ppm)).saturating_add(latency * 8)
    }

    /// By how much any clock's rate may be wrong, in parts per million.
    pub const fn drift_ppm(&self) -> u32 {
        self.drift_ppm
    }

    /// What the holder gives up of its lease so that clocks of different rate never see two leaders: 5 % at the default
    /// drift bound, where 3.92 % is needed even without the challenger's stretch.
    pub fn margin(&self) -> Duration {
        self.lease - self.believed()
    }

    /// For how long the holder believes in its lease, counted from before it sent the request (rules R1, R4).
    pub fn believed(&self) -> Duration {
        self.believed_of(self.lease)
    }

    /// For how long the holder believes in a lease of this length, which may be another than its own setting: what the
    /// record says is what counts (HAZARDS 9).
    pub fn believed_of(&self, lease: Duration) -> Duration {
        lease.saturating_sub(share_ppm(lease, self.drift_ppm / 2 * 5))
    }

    /// The end of the lease that is kept for killing work that did not stop, and for seeing it dead.
    pub fn kill(&self) -> Duration {
        Self::kill_of(self.lease)
    }

    /// The same for a lease of this length, which may be another than its own setting.
    pub fn kill_of(lease: Duration) -> Duration {
        (lease / 40).max(Duration::from_millis(10))
    }

    /// When the work of a leader that believes until then must be gone: what is left is for [killing](Self::kill) it.
    pub fn kill_at(&self, until: Instant) -> Instant {
        until - self.kill()
    }

    /// When it is told to stop, unless its lease is renewed by then.
    pub fn stop_at(&self, until: Instant) -> Instant {
        self.kill_at(until) - self.grace
    }

    /// How long after the sending of the last successful renewal the work is told to stop: what is left for renewing.
    pub fn room(&self) -> Duration {
        self.believed().saturating_sub(self.kill()).saturating_sub(self.grace)
    }

    /// For how long the store may be away and refuse calls, at the worst moment, without costing the leadership: what is
    /// left of the room when the first renewal fails, less the longest wait between two attempts.
    pub fn ride_through(&self) -> Duration {
        self.room().saturating_sub(self.renew_every).saturating_sub(self.retry_most())
    }

    /// The longest that a leader waits before it tries a failed renewal again.
    pub fn retry_most(&self) -> Duration {
        self.renew_every / 10
    }

    /// How long a challenger waits, from when it saw a record change, before it may take over a lease of `lease`
    /// (rule R2): the lease stretched by the drift bound.
    pub fn stretched(&self, lease: Duration) -> Duration {
        stretched(lease, self.drift_ppm)
    }

    /// How long after an expected renewal a waiting candidate looks for it, at least; and at most twice that.
    pub fn look_lag(&self) -> Duration {
        share_ppm(self.lease, 7_500)
    }

    /// Time from one renewal that a candidate of this standing looks for to the next: every one for the next in line, and for
    /// those [near the front](Standing::is_near) as many as make a third of the lease. The crowd behind them looks at any time
    /// between half of what this gives for them and all of it, which is as many renewals as make half of the lease.
    pub fn watch_every(&self, standing: Standing) -> Duration {
        if standing.is_next() {
            return self.renew_every;
        }
        let gap = self.lease / if standing.is_near() { 3 } else { 2 };
        let share = gap.as_nanos().div_ceil(self.renew_every.as_nanos());
        self.renew_every.saturating_mul(u32::try_from(share).unwrap_or(u32::MAX))
    }

    /// For how long only the successor that an operator named may take a vacant leadership, and for how long a leader
    /// that resigned leaves it to others.
    pub fn window(&self) -> Duration {
        (self.lease / 5).clamp(Duration::from_millis(100), Duration::from_secs(5))
    }

    /// How much later than the candidate before it in the waiting order one looks after a hint, and asks for a vacant
    /// leadership, at least: a candidate whose looks take longer leaves it that time.
    pub const fn slot(&self) -> Duration {
        Duration::from_millis(5)
    }

    /// The time between two calls that hints cause, after the first few ([`HintPace`](crate::lease::HintPace)): an eighth of the
    /// renewal interval, 10 ms to 500 ms.
    pub fn hint_interval(&self) -> Duration {
        (self.renew_every / 8).clamp(Duration::from_millis(10), Duration::from_millis(500))
    }

    /// The published bound: how long after the silent loss of a leader another one leads, if `ahead` candidates before
    /// the first healthy one in the waiting order are dead too, each call to the store takes at most `latency`, and
    /// nothing else fails. Each of those ahead costs a slot, which is as long as a look takes.
    ///
    /// A candidate that has only just come to be next in line, since others went, has the bound of its old place until it hears of
    /// the new one ([`bound_from_afar`](Self::bound_from_afar)). A renewal that a [hint](Self::hint_interval) caused comes when
    /// nobody expects it, and so does the first one of a leader whose renewals are
    /// [aligned](crate::lease::Config::aligned): if the leader is lost right after that, it takes up to one renewal interval more.
    pub fn failover_bound(&self, ahead: u32, latency: Duration) -> Duration {
        let standing = Standing { ahead, ..Standing::default() };
        let watch_every = self.watch_every(standing);
        // Those who look after a renewal see the last one at once, or as many later as they leave out.
        let missed = if standing.is_near() { watch_every.saturating_sub(self.renew_every) } else { watch_every };
        let on_own_clock = self
            .stretched(self.lease)
            .saturating_add(missed)
            .saturating_add(self.look_lag() * 2)
            .saturating_add(self.slot().max(latency).saturating_mul(ahead).min(self.window()))
            .saturating_add(Duration::from_millis(1));
        // The challenger's clock may be slow. It then looks for each renewal later than it means to: by what it and a
        // holder with a fast clock drift apart from one look to the next.
        let drifted =
            on_slowest_clock(watch_every, self.drift_ppm).saturating_sub(on_fastest_clock(watch_every, self.drift_ppm));
        on_slowest_clock(on_own_clock, self.drift_ppm).saturating_add(drifted).saturating_add(latency * 4)
    }

    /// The [bound](Self::failover_bound) while the next in line has only just come there, from behind the first
    /// [`NEAR`](Standing::NEAR), and has not heard of it: it looks as seldom as it did there. It hears of its place at its
    /// next look, or, where the store tells the waiting order with announcements alone (MySQL, MariaDB),
    /// [a lease later](Self::place_told_within).
    pub fn bound_from_afar(&self, latency: Duration) -> Duration {
        self.failover_bound(Standing::NEAR, latency)
    }

    /// How long after others went a candidate hears at the latest that it has moved up from this standing, where the store
    /// tells the waiting order with announcements alone: at the first look that is made a lease after the last announcement.
    pub fn place_told_within(&self, from: Standing) -> Duration {
        self.lease.saturating_add(self.watch_every(from)).saturating_add(self.look_lag() * 2)
    }
}

/// How long `span` on a clock that is as slow as the bound allows takes in real time, rounded up.
fn on_slowest_clock(span: Duration, drift_ppm: u32) -> Duration {
    scaled(span, 1_000_000 - u128::from(drift_ppm))
}

/// How long `span` on a clock that is as fast as the bound allows takes in real time, rounded up.
fn on_fastest_clock(span: Duration, drift_ppm: u32) -> Duration {
    scaled(span, 1_000_000 + u128::from(drift_ppm))
}

/// `span` × 1,000,000 / `rate_ppm`.
fn scaled(span: Duration, rate_ppm: u128) -> Duration {
    let nanos = span.as_nanos().saturating_mul(1_000_000).div_ceil(rate_ppm);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn ten() -> Timing {
        let settings = TimingSettings { grace: Duration::from_secs(5), ..TimingSettings::new(Timing::DEFAULT_LEASE) };
        Timing::new(settings).expect("the command line's default")
    }

    #[test]
    fn everything_fits_inside_the_lease() {
        let timing = ten();
        assert_eq!(timing.margin(), Duration::from_millis(500));
        assert_eq!(timing.believed(), Duration::from_millis(9_500));
        assert_eq!(timing.room(), Duration::from_millis(4_250));
        assert!(timing.renew_every() + timing.call_timeout() + timing.grace() + timing.kill() <= timing.believed());
        assert!(timing.ride_through() >= Duration::from_millis(1_900));
    }

    #[test]
    fn a_slow_way_carries_a_long_lease() {
        let of = |lease| Timing::new(TimingSettings::for_program(lease)).expect("valid");
        let (second, ten) = (of(Duration::from_secs(1)), of(Duration::from_secs(10)));
        // Eight round trips to open a connection, one for a renewal.
        let carries = |timing: &Timing, millis| {
            let trip = Duration::from_millis(millis);
            timing.carries(trip * 8, trip)
        };
        assert!(carries(&second, 30) && !carries(&second, 60));
        assert!(carries(&ten, 400) && !carries(&ten, 800));
        assert!(second.opening_timeout() > second.call_timeout() * 10);
        assert_eq!(of(Duration::from_secs(3600)).opening_timeout(), Duration::from_secs(30));
        let (opening, call) = (Duration::from_millis(80), Duration::from_millis(10));
        assert!(second.outlasts_reconnection(opening, call) && !second.outlasts_reconnection(opening * 2, call * 4));
        let bound = ten.opening_bound(Duration::from_secs(3), Duration::from_millis(400));
        assert!(bound > Duration::from_secs(6) && bound < Duration::from_secs(9), "{bound:?}");
    }

    #[test]
    fn the_margin_covers_opposite_drifts() {
        for drift_ppm in [1_000, 20_000, 100_000] {
            let timing =
                Timing::new(TimingSettings { drift_ppm, ..TimingSettings::new(Timing::DEFAULT_LEASE) }).expect("valid");
            let rate = f64::from(drift_ppm) / 1e6;
            let belief_on_slow_clock = timing.believed().as_secs_f64() / (1.0 - rate);
            let wait_on_fast_clock = timing.stretched(timing.lease()).as_secs_f64() / (1.0 + rate);
            assert!(
                belief_on_slow_clock < wait_on_fast_clock,
                "{drift_ppm}: {belief_on_slow_clock} {wait_on_fast_clock}"
            );
        }
    }

    #[test]
    fn absurd_settings_are_refused_with_what_would_do() {
        let with = |change: fn(&mut TimingSettings)| {
            let mut settings = TimingSettings::new(Timing::DEFAULT_LEASE);
            change(&mut settings);
            Timing::new(settings)
        };
        assert!(matches!(with(|s| s.lease = Duration::ZERO), Err(TimingError::Lease { .. })));
        assert!(matches!(with(|s| s.lease = Duration::MAX), Err(TimingError::Lease { .. })));
        assert!(matches!(with(|s| s.grace = Duration::MAX), Err(TimingError::Grace { .. })));
        assert!(matches!(with(|s| s.drift_ppm = 0), Err(TimingError::Drift { .. })));
        let Err(TimingError::Interval { most, usual, .. }) = with(|s| s.renew_every = Some(s.lease)) else {
            panic!("hazard 10")
        };
        for (renew_every, fits) in [(most, true), (most + Duration::from_nanos(1), false), (usual, true)] {
            let settings =
                TimingSettings { renew_every: Some(renew_every), ..TimingSettings::new(Timing::DEFAULT_LEASE) };
            assert_eq!(Timing::new(settings).is_ok(), fits, "{renew_every:?}");
        }
        assert!(matches!(with(|s| s.call_timeout = Some(Duration::ZERO)), Err(TimingError::Renewal { .. })));
        let Err(TimingError::Grace { most, .. }) = with(|s| s.grace = s.lease) else { panic!("hazard 2") };
        let settings = TimingSettings { grace: most, ..TimingSettings::new(Timing::DEFAULT_LEASE) };
        assert!(Timing::new(settings).is_ok(), "what the error offers is accepted");
    }

    #[test]
    fn the_bound_is_what_the_readme_says() {
        let bound = ten().failover_bound(0, Duration::from_millis(10));
        assert!(bound <= Duration::from_millis(10_700), "{bound:?}");
    }

    // `CHANGELOG.md`, `docs/design/mysql.md` and `docs/manual/stores.md` have these figures.
    #[test]
    fn who_moves_up_is_told_within_the_time_that_the_pages_say() {
        let plain = Timing::with_lease(Timing::DEFAULT_LEASE).expect("the default");
        let told = |ahead| plain.place_told_within(Standing { ahead, ..Standing::default() }).as_secs_f64();
        assert_eq!(format!("{:.1} {:.1} {:.1}", told(1), told(7), told(8)), "13.5 13.5 16.8");
        let (near, far) = (plain.failover_bound(7, Duration::ZERO), plain.bound_from_afar(Duration::ZERO));
        assert_eq!(format!("{:.1} {:.1}", near.as_secs_f64(), far.as_secs_f64()), "10.7 17.7");
    }

    #[test]
    fn who_is_not_next_in_line_looks_three_times_a_lease_at_most_and_the_crowd_twice() {
        let at = |ahead| Standing { ahead, ..Standing::default() };
        let timing = ten();
        assert_eq!(timing.renew_every(), Duration::from_millis(2_125));
        assert_eq!(timing.watch_every(at(1)), timing.renew_every());
        assert_eq!(timing.watch_every(at(2)), timing.renew_every() * 2);
        let plain = Timing::with_lease(Timing::DEFAULT_LEASE).expect("the default");
        assert_eq!(plain.watch_every(at(2)), plain.renew_every(), "three times a lease already");
        assert_eq!(plain.watch_every(at(7)), plain.renew_every(), "the loss of many at once is found as soon");
        assert_eq!(plain.watch_every(at(8)), plain.renew_every() * 2, "twice a lease is more often than this");
        let (next, later) = (timing.failover_bound(1, Duration::ZERO), timing.failover_bound(2, Duration::ZERO));
        assert!(later >= next + timing.renew_every(), "a renewal may be missed: {next:?} {later:?}");
    }

    #[test]
    fn the_bound_covers_a_slow_challenger_of_a_fast_holder() {
        let timing = Timing::with_lease(Timing::DEFAULT_LEASE).expect("the default");
        let (slow, fast) = (0.98, 1.02);
        let period = timing.renew_every().as_secs_f64();
        let lag = timing.look_lag().as_secs_f64() * 2.0;
        // Having seen one renewal at once, it looks for the next a period and the lag later on its own clock; the holder
        // is lost right after that renewal.
        let seen_late = (period + lag) / slow - period / fast;
        let waits = timing.stretched(timing.lease()).as_secs_f64() / slow;
        let bound = timing.failover_bound(0, Duration::ZERO).as_secs_f64();
        assert!(seen_late + waits <= bound, "{seen_late} {waits} {bound}");
    }
}
