//! What a seed stands for: who takes part, with which timing and clocks, and which faults strike how often.

mod company;

use std::time::Duration;

use primacy_core::{Label, Timing, TimingSettings};

use crate::oracle::Oracle;
use crate::planted::{DriverFlaw, Planted};
use crate::profile::{Part, Profile, Steady, draw_ppm};
use crate::protocol::Protocol;
use crate::rng::Rng;
use crate::voters::chooser::Chooser;
use crate::voters::setting::Setting;
pub(crate) use company::GroupSetup;

/// What to simulate beside the seed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Which promises are put to the test.
    pub profile: Profile,
    /// Which protocol is followed; drawn if absent, but that of leases alone where the timing is given.
    pub protocol: Option<Protocol>,
    /// One timing for all candidates; drawn if absent.
    pub timing: Option<Timing>,
    /// How many candidates; drawn if absent.
    pub candidates: Option<u32>,
    /// The longest that a call to the store takes while nothing fails; chosen from the timing if absent.
    pub latency: Option<Duration>,
    /// Instead of faults and drills: one leader among three voters, packets that are lost, and nothing else.
    pub steady: Option<Steady>,
    /// In which order candidates ask; drawn for each if absent.
    pub chooser: Option<Chooser>,
    /// Voters are exchanged in every world among peers, and not in a third of them.
    pub reconfigurations: bool,
    /// Frames keep no order in any world among peers, are lost each for itself and come twice, often late.
    pub strays: bool,
    /// Drills of the calm are done whether or not the leader can do without the voter that is struck, and what it costs is counted:
    /// a leadership that is lost by them breaks no promise.
    pub unspared: bool,
    /// A bug for the checkers to find.
    pub planted: Option<Planted>,
    /// Promises that are not checked, to see what the others find alone.
    pub muted: Vec<Oracle>,
}

impl Setup {
    /// Everything drawn from the seed.
    pub fn new(profile: Profile) -> Self {
        Self {
            profile,
            protocol: None,
            timing: None,
            candidates: None,
            latency: None,
            steady: None,
            chooser: None,
            reconfigurations: false,
            strays: false,
            unspared: false,
            planted: None,
            muted: Vec::new(),
        }
    }
}

/// A world before its first moment.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Which promises hold. Never [`Profile::All`].
    pub(crate) profile: Profile,
    /// The planted bug.
    pub(crate) planted: Option<Planted>,
    /// Promises that are not checked.
    pub(crate) muted: Vec<Oracle>,
    /// How the candidates of the `registers` protocol take part, if there are any.
    pub(crate) company: Option<GroupSetup>,
    /// In which order candidates ask, if they all go by one.
    pub(crate) chooser: Option<Chooser>,
    /// Whether drills ask nobody if a leader can do without a voter.
    pub(crate) unspared: bool,
    /// Hints come in bursts this far from each other, on average, although nothing has changed; and what else is drawn for them.
    pub(crate) bursts: Option<(u64, Rng)>,
    /// Whether the candidates' renewals and looks are [aligned](primacy_core::lease::Config::aligned), as in a fleet.
    pub(crate) aligned: bool,
    /// How long the leader must stay, whatever packets are lost.
    pub(crate) steady: Option<Steady>,
    /// Who grants the lease, if that is no store.
    pub(crate) peers: Option<Setting>,
    /// The candidates. The last joins only in the healed phase if [`late_arrival`](Self::late_arrival) is set.
    pub(crate) parts: Vec<Part>,
    /// Whether the last candidate arrives late.
    pub(crate) late_arrival: bool,
    /// For how long faults strike, in nanoseconds.
    pub(crate) fault_span: u64,
    /// The longest lease of all, at first.
    pub(crate) longest: Duration,
    /// The longest that a call takes once the world is healed.
    pub(crate) healed_latency: u64,
    /// The longest that it takes to open a connection to the store while nothing fails, in nanoseconds; nothing if absent.
    pub(crate) opening: Option<u64>,
    /// Which faults strike.
    pub(crate) mix: Mix,
    /// For the run itself.
    pub(crate) rng: Rng,
}

/// How often each fault strikes. Rates are in parts per million.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mix {
    /// What becomes of calls, by [`Fate`].
    pub(crate) fates: [u32; Fate::COUNT],
    /// Fates strike the calls of the leader only.
    pub(crate) aim_calls: bool,
    /// The longest that a request or an answer takes when it is slow.
    pub(crate) slow_max: u64,
    /// Calls that are slow.
    pub(crate) slow: u32,
    /// The longest that one way takes when it is not slow.
    pub(crate) way_max: u64,
    /// Answers of abandoned calls that are handed to the candidate all the same.
    pub(crate) stale_answer: u32,
    /// Processes killed after an effect.
    pub(crate) crash_at_effect: u32,
    /// Processes killed between Lead and the next renewal.
    pub(crate) crash_after_lead: u32,
    /// Rows deleted right after somebody has begun to lead.
    pub(crate) delete_after_lead: u32,
    /// Processes stopped after an effect.
    pub(crate) stall_at_effect: u32,
    /// Leaders stopped right after they have sent a renewal or a request for the lease.
    pub(crate) stall_after_send: u32,
    /// Processes woken late.
    pub(crate) late_wake: u32,
    /// The latest that they are woken.
    pub(crate) late_max: u64,
    /// Answers, wakes and hints that are handled in another order than they came.
    pub(crate) reorder: u32,
    /// Hints lost.
    pub(crate) hint_lost: u32,
    /// Hints doubled.
    pub(crate) hint_doubled: u32,
    /// Mean time between two blows.
    pub(crate) blow_every: u64,
    /// How likely each blow is, by [`Blow`].
    pub(crate) blows: [u32; Blow::COUNT],
    /// Blows that strike the leader.
    pub(crate) aim: u32,
    /// Mean time between two orders of operators, or 0 for none.
    pub(crate) order_every: u64,
    /// Mean time between two writes of a leader's work.
    pub(crate) write_every: u64,
    /// Writes that are delayed between check and resource.
    pub(crate) late_write: u32,
    /// Work that ignores the order to stop.
    pub(crate) deaf_work: u32,
    /// Work that takes long to die.
    pub(crate) stuck_work: u32,
    /// Dead leaders whose warden lives and releases for them.
    pub(crate) warden: u32,
    /// A restored store comes back with a higher epoch.
    pub(crate) new_epoch: bool,
}

/// What becomes of a call, other than that it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Fails, certainly not carried out.
    Refused,
    /// Fails before the commit, outcome unknown.
    FailedBefore,
    /// Fails after the commit, outcome unknown.
    FailedAfter,
    /// Never arrives.
    RequestLost,
    /// Is carried out, and the answer never arrives.
    AnswerLost,
    /// Is carried out long after it was abandoned.
    Lingers,
}

impl Fate {
    /// How many there are.
    pub(crate) const COUNT: usize = 6;
    /// All of them.
    pub(crate) const ALL: [Self; Self::COUNT] =
        [Self::Refused, Self::FailedBefore, Self::FailedAfter, Self::RequestLost, Self::AnswerLost, Self::Lingers];
}

/// What the adversary does at a moment of its choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// Stops a process, not its work.
    StallRunner,
    /// Stops a process and its work.
    StallNode,
    /// Suspends a machine.
    Suspend,
    /// Kills a process.
    Crash,
    /// Cuts a node off from the store.
    Partition,
    /// Takes the store away.
    Outage,
    /// Steps the store's clock.
    StoreClock,
    /// Changes the rate of a clock.
    Slew,
    /// Deletes the row.
    DeleteRow,
    /// Kills all processes; the store, on the same host, can tell.
    Reboot,
    /// Stops a process gracefully, resigns, or ends the work.
    Churn,
    /// Makes up a hint.
    Hint,
    /// Restores the store to an older state.
    GoBack,
}

impl Blow {
    /// How many there are.
    pub(crate) const COUNT: usize = 13;
    /// All of them.
    pub(crate) const ALL: [Self; Self::COUNT] = [
        Self::StallRunner,
        Self::StallNode,
        Self::Suspend,
        Self::Crash,
        Self::Partition,
        Self::Outage,
        Self::StoreClock,
        Self::Slew,
        Self::DeleteRow,
        Self::Reboot,
        Self::Churn,
        Self::Hint,
        Self::GoBack,
    ];
}

impl Scenario {
    /// The world of this seed.
    pub(crate) fn draw(seed: u64, setup: &Setup) -> Self {
        let mut rng = Rng::new(seed);
        let profile = draw_profile(setup.profile, &mut rng);
        let count = setup.candidates.unwrap_or_else(|| *rng.pick(&[1, 2, 2, 3, 3, 3, 3, 5, 5, 8])).clamp(1, 1_000);
        // A stream of its own: whatever is drawn for one protocol, the worlds of the other stay what they are.
        let mut other = Rng::new(seed ^ 0x7265_6769_7374_6572);
        let profile = if setup.protocol == Some(Protocol::Peers) { profile.among_peers() } else { profile };
        let usual = if setup.timing.is_some() { Protocol::Lease } else { Protocol::draw(&mut other) };
        let protocol = setup.protocol.unwrap_or(usual);
        let crowd = protocol == Protocol::Registers && setup.candidates.is_none() && other.chance(60_000);
        let count = if crowd { count + 9 } else { count };
        let (mut parts, uniform) = draw_parts(count, setup, profile, &mut rng);
        let company = GroupSetup::draw(protocol, &mut parts, &mut other);
        let longest = parts.iter().map(|part| part.timing.lease()).max().unwrap_or(Timing::DEFAULT_LEASE);
        let shortest_call = parts.iter().map(|part| part.timing.call_timeout()).min().unwrap_or(longest);
        let longest_call = parts.iter().map(|part| part.timing.call_timeout()).max().unwrap_or(longest);
        let shortest = parts.iter().map(|part| part.timing.opening_timeout()).min().unwrap_or(longest);
        let leases = if profile == Profile::Calm { 2 } else { rng.between(8, 36) };
        let healed_latency = crate::nanos(setup.latency.unwrap_or((shortest_call / 10).min(Duration::from_millis(10))));
        // A deleted row takes the length of its lease with it.
        let same = uniform && company.as_ref().is_none_or(|company| protocol != Protocol::Mixed && !company.varies());
        let mut mix = Mix::draw(profile, longest, shortest_call, same, &mut rng);
        let among_peers = protocol == Protocol::Peers;
        let mut peers = among_peers.then(|| match setup.steady {
            Some(steady) => Setting::steady(&parts, steady, profile, &mut other),
            None => {
                let mut rng = Rng::new(seed ^ 0x766f_7465_7273_2e2e);
                let mut setting = Setting::draw(&parts, profile, longest, shortest_call, &mut other);
                if setup.strays {
                    setting.stray();
                }
                setting.with_reconfigurations(&parts, profile, crate::nanos(longest), setup.reconfigurations, &mut rng)
            }
        });
        let mut fault_span = crate::nanos(longest) * leases;
        if among_peers {
            mix.without_a_store();
            if setup.planted == Some(Planted::Driver(DriverFlaw::DoubleDrift)) {
                peers.iter_mut().flat_map(|peers| &mut peers.ppm).for_each(|ppm| *ppm *= 2);
            }
            // Connections that break take their time whatever the lease.
            fault_span = fault_span.max(PEERS_SPAN);
        }
        if setup.latency.is_some() {
            mix.way_max = mix.way_max.max(healed_latency / 2);
        }
        Self {
            profile,
            planted: setup.planted,
            muted: setup.muted.clone(),
            company,
            unspared: setup.unspared,
            bursts: draw_bursts(seed, profile, crate::nanos(longest)),
            // From a stream of its own, as [`draw_opening`].
            aligned: protocol != Protocol::Registers && Rng::new(seed ^ 0x616c_6967_6e65_6421).chance(250_000),
            steady: setup.steady,
            chooser: setup.chooser,
            peers,
            late_arrival: count > 1 && rng.chance(300_000),
            parts,
            fault_span,
            longest,
            healed_latency,
            opening: (protocol == Protocol::Lease && setup.timing.is_none())
                .then(|| draw_opening(seed, setup, longest_call, shortest))
                .flatten(),
            mix,
            rng,
        }
    }

    /// Whether all candidates have one timing.
    pub(crate) fn uniform(&self) -> bool {
        self.parts.windows(2).all(|pair| pair[0].timing == pair[1].timing)
    }

    /// Whether the bound on clock rates and the store's linearizability hold, and with them Integrity and Order.
    pub(crate) fn sound(&self) -> bool {
        matches!(self.profile, Profile::Faults | Profile::Calm)
    }
}

/// For how long at least faults strike among peers.
const PEERS_SPAN: u64 = 2_000_000_000;

/// In some worlds opening a connection takes longer than any call may, and no longer than half of what opening may: a way to the
/// store that carries the timing. From a stream of its own, so that all other worlds stay what they are.
fn draw_opening(seed: u64, setup: &Setup, longest_call: Duration, shortest: Duration) -> Option<u64> {
    let mut rng = Rng::new(seed ^ 0x6f70_656e_696e_6773);
    let always = setup.planted == Some(Planted::Driver(DriverFlaw::OpensAnew));
    let (least, most) = (crate::nanos(longest_call) * 2, crate::nanos(shortest) / 2);
    (least < most && (always || rng.chance(150_000))).then(|| rng.between(least, most))
}

/// In some worlds somebody makes hints up, many at a time and in the calm too. From a stream of its own, as [`draw_opening`].
fn draw_bursts(seed: u64, profile: Profile, lease: u64) -> Option<(u64, Rng)> {
    let mut rng = Rng::new(seed ^ 0x6275_7273_7473_2e2e);
    (profile != Profile::Calm && rng.chance(100_000)).then(|| (rng.spread(lease / 16, lease * 4), rng))
}

fn draw_profile(profile: Profile, rng: &mut Rng) -> Profile {
    let drawn = rng.below(100);
    match (profile, drawn) {
        (Profile::All, 0..86) => Profile::Faults,
        (Profile::All, 86..94) => Profile::Regress,
        (Profile::All, 94..98) => Profile::Wild,
        (Profile::All, _) => Profile::Calm,
        (profile, _) => profile,
    }
}

fn draw_parts(count: u32, setup: &Setup, profile: Profile, rng: &mut Rng) -> (Vec<Part>, bool) {
    let timing = setup.timing;
    let double_drift = setup.planted == Some(Planted::Driver(DriverFlaw::DoubleDrift));
    let lease = rng.span(Duration::from_millis(100), Duration::from_secs(60));
    let uniform = timing.is_some() || rng.chance(750_000);
    let drift_ppm = *rng.pick(&[20_000, 20_000, 20_000, 20_000, 1_000, 100_000]);
    let common = timing.unwrap_or_else(|| draw_timing(lease, drift_ppm, rng));
    let shared_label = rng.chance(250_000);
    let part = |index: u32| {
        let timing = if uniform {
            common
        } else {
            let lease = rng.spread(lease / 4, lease * 4).max(100_000_000);
            draw_timing(lease, *rng.pick(&[20_000, 20_000, 1_000, 100_000]), rng)
        };
        // Two candidates may share a label: nothing may be decided by it but whom an order means.
        let named = if shared_label && index == 1 { 0 } else { index };
        let label = Label::new(format!("n{named}")).expect("short and printable");
        let ppm = draw_ppm(timing.drift_ppm(), profile, rng);
        let ppm = if double_drift { ppm * 2 } else { ppm };
        Part { label, timing, ppm, process_host: None, rank: None }
    };
    ((0..count).map(part).collect(), uniform)
}

fn draw_timing(lease: u64, drift_ppm: u32, rng: &mut Rng) -> Timing {
    let lease = Duration::from_nanos(lease);
    let settings = TimingSettings { drift_ppm, ..TimingSettings::new(lease) };
    let drawn = match rng.below(4) {
        0 => TimingSettings { grace: Duration::ZERO, ..settings },
        1 => TimingSettings { grace: lease / 2, ..settings },
        2 => TimingSettings { renew_every: Some(lease / 5), ..settings },
        _ => settings,
    };
    // A bound of 10 % leaves too little of the lease for some of these; then there is no grace.
    Timing::new(drawn)
        .or_else(|_| Timing::new(TimingSettings { grace: Duration::ZERO, ..settings }))
        .expect("a lease from 100ms, an allowed drift and no grace are valid")
}

impl Mix {
    /// A healthy world, in which a call takes at most `latency`.
    pub(crate) fn healed(latency: u64, write_every: u64) -> Self {
        Self { way_max: latency / 2, write_every, ..Self::default() }
    }

    fn draw(profile: Profile, lease: Duration, call: Duration, uniform: bool, rng: &mut Rng) -> Self {
        let (lease, call) = (crate::nanos(lease), crate::nanos(call));
        let write_every = rng.spread(lease / 32, lease);
        if profile == Profile::Calm {
            return Self { write_every, ..Self::healed(crate::nanos(Duration::from_millis(2)).min(call / 10), 0) };
        }
        let mut some = |most: u64| if rng.chance(500_000) { rng.spread(1_000, most) as u32 } else { 0 };
        let mut fates = [0; Fate::COUNT];
        fates.iter_mut().for_each(|rate| *rate = some(150_000));
        let mut mix = Self {
            fates,
            slow: some(300_000),
            stale_answer: some(500_000),
            crash_at_effect: some(20_000),
            crash_after_lead: some(200_000),
            stall_at_effect: some(50_000),
            stall_after_send: some(100_000),
            late_wake: some(300_000),
            reorder: some(500_000),
            hint_lost: some(900_000),
            hint_doubled: some(300_000),
            late_write: some(300_000),
            deaf_work: some(900_000),
            stuck_work: some(500_000),
            write_every,
            ..Self::default()
        };
        mix.aim_calls = rng.chance(400_000);
        mix.slow_max = rng.spread(call / 8, call * 3 / 2);
        mix.way_max = rng.spread(100_000, (call / 8).max(100_000));
        mix.late_max = rng.spread(1_000_000, lease / 2);
        mix.blow_every = rng.spread(lease / 16, lease * 4);
        mix.blows.iter_mut().for_each(|weight| *weight = rng.below(2) as u32 * rng.between(1, 8) as u32);
        mix.aim = *rng.pick(&[0, 500_000, 700_000, 900_000]);
        mix.order_every = if rng.chance(600_000) { rng.spread(lease / 4, lease * 8) } else { 0 };
        mix.warden = *rng.pick(&[0, 500_000, 1_000_000]);
        mix.new_epoch = rng.chance(500_000);
        mix.within_promise(profile, uniform, rng);
        mix
    }

    /// Takes out what happens to stores only.
    fn without_a_store(&mut self) {
        let blows = [Blow::Partition, Blow::Outage, Blow::StoreClock, Blow::DeleteRow, Blow::Reboot, Blow::GoBack];
        blows.into_iter().for_each(|blow| self.blows[blow as usize] = 0);
        self.delete_after_lead = 0;
    }

    /// Takes out what this profile is not about.
    fn within_promise(&mut self, profile: Profile, uniform: bool, rng: &mut Rng) {
        let go_back = &mut self.blows[Blow::GoBack as usize];
        *go_back = if profile == Profile::Regress { (*go_back).max(1) } else { 0 };
        // Little is left to be seen of a world that is started anew all the time.
        if rng.chance(700_000) {
            self.blows[Blow::Reboot as usize] = 0;
        }
        let delete = &mut self.blows[Blow::DeleteRow as usize];
        // A new candidate cannot know how long the lease was that a deleted row held (docs/design/simulation.md).
        *delete = if uniform && rng.chance(300_000) { 4 } else { 0 };
        self.delete_after_lead = if *delete > 0 { rng.spread(1_000, 200_000) as u32 } else { 0 };
    }
}
