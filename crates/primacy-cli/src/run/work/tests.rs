//! All orders in which hooks end, fail, hang and cannot be started, leaderships end and wardens die, up to a bound.

use std::collections::{HashSet, VecDeque};

use super::*;

/// When a program would be killed, and how long things take, in ticks.
const KILL_AT: u64 = 4;
const SPANS: Spans = Spans { grace: 3, pause: 1, longest_pause: 2, dying: 1 };
/// The warden tries until the lease is over, and two graces more if that is over before its time; the runner two after its death.
const HORIZON: u64 = KILL_AT + 4 * SPANS.grace + 1;

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    work: Work,
    tick: u64,
    /// The hooks that run, or have left something: not more than one of them, if all is well.
    elected: Option<Run>,
    lost: Option<Run>,
    /// Something is left of hooks before these.
    remnant: bool,
    /// That has gone while `--on-lost` ran.
    undone: bool,
    /// What was killed may live on.
    sticky: bool,
    /// The warm program may be at work.
    acts: bool,
    /// The leadership has ended.
    ended: bool,
    /// `--on-lost` was tried since.
    tried: bool,
    /// How often the warden may yet die, and how often a hook may yet not be started.
    deaths: u32,
    refusals: u32,
    was_working: bool,
    was_haunted: bool,
    failures: u32,
    fault: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Run {
    Lives,
    /// It was killed, and is not gone yet.
    Dies,
    /// Its own process has ended, and not all that it has started.
    Leaves {
        success: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ends(Hook, bool),
    Leaves(Hook, bool),
    Dies(Hook),
    RemnantDies,
    LeadershipEnds,
    LeaseEndsEarlier,
    WardenDies { leaves: bool },
    Tick,
}

impl World {
    fn start(planted: Planted, at_start: bool, sticky: bool) -> Vec<Self> {
        let mut world = Self {
            work: Work::at(Stage::Stopped, SPANS),
            tick: 0,
            elected: None,
            lost: None,
            remnant: false,
            undone: false,
            sticky,
            acts: at_start,
            ended: at_start,
            tried: false,
            deaths: 1,
            refusals: 2,
            was_working: false,
            was_haunted: false,
            failures: 0,
            fault: None,
        };
        let (work, act) = match at_start {
            // Before there is a lease.
            true => Work::doubted(SPANS, false, Moment { now: 0, kill_at: 0 }, planted),
            false => Work::elected(SPANS),
        };
        world.work = Work { planted, ..work };
        world.carry_out(act)
    }

    fn moment(&self) -> Moment {
        Moment { now: self.tick, kill_at: KILL_AT }
    }

    /// What may follow from it: a hook is started, or cannot be.
    fn carry_out(mut self, act: Act) -> Vec<Self> {
        match act {
            Act::Nothing => vec![self],
            Act::Kill => {
                for run in [&mut self.elected, &mut self.lost].into_iter().flatten() {
                    if *run == Run::Lives {
                        *run = Run::Dies;
                    }
                }
                vec![self]
            }
            Act::Run(hook) => {
                let mut next = Vec::new();
                self.tried |= hook == Hook::Lost;
                if self.refusals > 0 {
                    let mut refused = Self { refusals: self.refusals - 1, ..self.clone() };
                    let act = refused.work.hook_not_started(refused.moment());
                    next.extend(refused.carry_out(act));
                }
                let lives = Some(Run::Lives);
                for left in [&mut self.elected, &mut self.lost] {
                    if left.is_some() && (*left != lives) {
                        (*left, self.remnant) = (None, true);
                    }
                }
                match hook {
                    Hook::Elected => (self.elected, self.acts) = (lives, true),
                    Hook::Lost => (self.lost, self.undone) = (lives, false),
                }
                next.push(self);
                next
            }
        }
    }

    /// A hook's own process ends.
    fn ends(&mut self, hook: Hook, success: bool) {
        match hook {
            // However it has ended: the work may have begun.
            Hook::Elected => self.acts = true,
            // A hook that still runs begins it again, and so does what is left of one.
            Hook::Lost if success => self.acts = self.elected.is_some() || self.remnant || self.undone,
            Hook::Lost => self.failures = (self.failures + 1).min(3),
        }
    }

    fn slot(&mut self, hook: Hook) -> &mut Option<Run> {
        match hook {
            Hook::Elected => &mut self.elected,
            Hook::Lost => &mut self.lost,
        }
    }

    fn gone(mut self, hook: Hook, success: bool) -> Vec<Self> {
        *self.slot(hook) = None;
        self.was_haunted |= self.work.haunted;
        let act = self.work.hook_gone(success, self.moment());
        self.was_working |= self.work.stage == Stage::Working;
        self.carry_out(act)
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut is_short = false;
        for (hook, run) in [(Hook::Elected, self.elected), (Hook::Lost, self.lost)] {
            // What is left of others must be gone, too.
            let may_go = !self.remnant;
            match run {
                Some(Run::Lives) if may_go => steps.extend([Step::Ends(hook, true), Step::Ends(hook, false)]),
                Some(Run::Dies) if may_go => steps.extend([Step::Dies(hook), Step::Ends(hook, true)]),
                Some(Run::Leaves { success: true }) if may_go => steps.push(Step::Ends(hook, true)),
                Some(Run::Leaves { success: false }) if may_go => steps.push(Step::Dies(hook)),
                _ => {}
            }
            if self.sticky && run == Some(Run::Lives) {
                steps.extend([Step::Leaves(hook, true), Step::Leaves(hook, false)]);
            }
            is_short |= matches!(run, Some(Run::Dies | Run::Leaves { .. }));
        }
        if self.remnant {
            steps.push(Step::RemnantDies);
        }
        if !self.ended {
            steps.push(Step::LeadershipEnds);
        }
        if self.tick < KILL_AT {
            steps.push(Step::LeaseEndsEarlier);
        }
        if self.deaths > 0 {
            steps.push(Step::WardenDies { leaves: false });
            if self.sticky && (self.elected.is_some() || self.lost.is_some() || self.remnant) {
                steps.push(Step::WardenDies { leaves: true });
            }
        }
        // What was killed does not live on for a tick, if all is well.
        if self.tick < HORIZON && (self.sticky || !is_short) {
            steps.push(Step::Tick);
        }
        steps
    }

    fn after(mut self, step: Step) -> Vec<Self> {
        match step {
            Step::Ends(hook, success) => {
                if !matches!(self.slot(hook), Some(Run::Leaves { .. })) {
                    self.ends(hook, success);
                }
                self.gone(hook, success)
            }
            Step::Leaves(hook, success) => {
                self.ends(hook, success);
                *self.slot(hook) = Some(Run::Leaves { success });
                self.work.hook_left(success, self.moment());
                vec![self]
            }
            Step::Dies(hook) => {
                if !matches!(self.slot(hook), Some(Run::Leaves { .. })) {
                    self.ends(hook, false);
                }
                self.gone(hook, false)
            }
            Step::RemnantDies => {
                // The last that it does is to have the work begin.
                (self.remnant, self.acts, self.undone) = (false, true, self.lost == Some(Run::Lives));
                // One that was not followed by another is looked at alone.
                if self.elected.is_none() && self.lost.is_none() {
                    self.was_haunted |= self.work.haunted;
                    let act = self.work.hook_gone(false, self.moment());
                    return self.carry_out(act);
                }
                vec![self]
            }
            Step::LeadershipEnds => {
                self.ended = true;
                let act = self.work.stop(self.moment());
                self.carry_out(act)
            }
            Step::LeaseEndsEarlier => {
                self.ended = true;
                let act = self.work.stop(Moment { now: self.tick, kill_at: self.tick });
                if act == Act::Kill && self.lost == Some(Run::Lives) {
                    self.fault = Some("--on-lost is killed by the end of the lease");
                }
                self.carry_out(act)
            }
            Step::WardenDies { leaves } => {
                self.deaths -= 1;
                // The kernel and the runner kill what is left, and the runner gives the leadership up.
                (self.elected, self.lost, self.remnant, self.ended) = (None, None, leaves, true);
                if self.work.is_over() {
                    return vec![self];
                }
                self.acts = true;
                let (work, act) = Work::doubted(SPANS, leaves, self.moment(), self.work.planted);
                self.work = work;
                self.carry_out(act)
            }
            Step::Tick => {
                self.tick += 1;
                let mut act = Act::Nothing;
                if self.tick >= KILL_AT && !std::mem::replace(&mut self.ended, true) {
                    act = self.work.stop(self.moment());
                }
                if act == Act::Nothing {
                    act = self.work.wake(self.moment());
                }
                self.carry_out(act)
            }
        }
    }

    /// What is wrong with it.
    fn fault(&self) -> Option<&'static str> {
        let runs = self.elected.or(self.lost).is_some() || self.remnant;
        let due = self.work.due();
        let late = |run| run == Run::Lives && self.tick > KILL_AT.max(due.unwrap_or_default());
        let (elected, lost) = (self.elected == Some(Run::Lives), self.lost == Some(Run::Lives));
        if self.fault.is_some() {
            self.fault
        } else if (elected && self.lost.is_some()) || (lost && self.elected.is_some()) {
            Some("two hooks run")
        } else if self.work.is_stopped() && (self.acts || runs) {
            Some("the lease is given back while the work may go on")
        } else if self.ended && !self.work.is_over() && !runs && due.is_none() {
            Some("nothing stops the work")
        } else if self.ended && !self.tried && self.tick > KILL_AT + SPANS.dying && !self.work.is_over() {
            Some("--on-lost is not run in time")
        } else if self.lost.is_some_and(late) || (self.tick == HORIZON && self.lost.is_some() && !self.sticky) {
            Some("a hook is not killed in time")
        } else {
            None
        }
    }
}

/// All that can be reached, or the first fault.
fn search(flaw: Option<Flaw>) -> Result<HashSet<World>, Box<(&'static str, World)>> {
    let planted = Planted { flaw };
    let starts = [(false, false), (true, false), (false, true), (true, true)];
    let mut queue: VecDeque<World> =
        starts.into_iter().flat_map(|(at_start, sticky)| World::start(planted, at_start, sticky)).collect();
    let mut found = HashSet::new();
    while let Some(world) = queue.pop_front() {
        if let Some(fault) = world.fault() {
            return Err(Box::new((fault, world)));
        }
        if found.insert(world.clone()) {
            queue.extend(world.steps().into_iter().flat_map(|step| world.clone().after(step)));
        }
    }
    Ok(found)
}

#[test]
fn a_lease_is_given_back_only_when_on_lost_has_succeeded_and_nothing_lives() {
    let found = search(None).unwrap_or_else(|fault| panic!("{fault:#?}"));
    let any = |wanted: &dyn Fn(&World) -> bool| found.iter().any(wanted);
    assert!(found.len() > 1_000, "{} states", found.len());
    assert!(any(&|world| world.was_working && world.work.is_stopped()), "it works, and stops");
    assert!(any(&|world| !world.was_working && world.work.is_stopped()), "it stops without having worked");
    assert!(any(&|world| world.failures == 1 && world.work.is_stopped()), "a second try helps");
    assert!(any(&|world| world.failures > 1 && world.work.stage == Stage::Doubtful), "none helps");
    assert!(any(&|world| world.deaths == 0 && world.work.is_stopped()), "it stops after its warden has died");
    assert!(any(&|world| world.was_haunted && world.work.is_stopped()), "it stops after something did not die");
    assert!(any(&|world| world.remnant && world.work.waits_for_the_dying()), "it waits for what does not die");
    let healthy = |world: &&World| world.tick == HORIZON && !world.sticky;
    assert!(found.iter().filter(healthy).all(|world| world.work.is_over()), "it is over in the end");
    assert!(found.iter().any(|world| healthy(&world)));
}

#[test]
fn each_planted_bug_is_found() {
    let given_back = "the lease is given back while the work may go on";
    for (flaw, fault) in [
        (Flaw::RunsBoth, "two hooks run"),
        (Flaw::StoppedWhileLostRuns, given_back),
        (Flaw::StoppedByFailure, given_back),
        (Flaw::WorksOn, "nothing stops the work"),
        (Flaw::WaitsForEver, "a hook is not killed in time"),
        (Flaw::WaitsForTheDying, "--on-lost is not run in time"),
        (Flaw::CountsBeside, given_back),
        (Flaw::KillsWithTheLease, "--on-lost is killed by the end of the lease"),
        (Flaw::TrustsTheDead, given_back),
    ] {
        assert_eq!(search(Some(flaw)).map_err(|fault| fault.0).err(), Some(fault), "{flaw:?}");
    }
}

#[test]
fn on_lost_is_tried_until_a_program_would_be_killed_and_for_a_grace_after_that() {
    let spans = Spans { grace: 40, pause: 2, longest_pause: 5, dying: 4 };
    let at = |now| Moment { now, kill_at: 50 };
    let (mut work, _) = Work::elected(spans);
    assert!(work.lasts());
    assert_eq!(work.hook_gone(true, Moment { now: 1, kill_at: 100 }), Act::Nothing);
    assert_eq!(work.stop(Moment { now: 2, kill_at: 60 }), Act::Run(Hook::Lost));
    assert_eq!(work.due(), Some(60));
    // The lease ends earlier, never later.
    assert_eq!(work.stop(Moment { now: 3, kill_at: 50 }), Act::Nothing);
    assert_eq!(work.stop(Moment { now: 4, kill_at: 55 }), Act::Nothing);
    assert_eq!((work.due(), work.heard_by()), (Some(50), Some(54)));
    // It fails at once, and again: pauses grow up to the longest.
    let mut now = 5;
    for pause in [2, 4, 5, 5] {
        assert_eq!(work.hook_gone(false, at(now)), Act::Nothing);
        assert_eq!(work.due(), Some(now + pause));
        assert_eq!(work.wake(at(now + pause - 1)), Act::Nothing);
        assert_eq!(work.wake(at(now + pause)), Act::Run(Hook::Lost));
        now += pause;
    }
    assert_eq!((work.wake(at(49)), work.wake(at(50))), (Act::Nothing, Act::Kill));
    assert_eq!(work.hook_gone(false, at(51)), Act::Run(Hook::Lost));
    assert_eq!(work.due(), Some(91));
    // The lease is over: it says nothing any more.
    assert_eq!(work.stop(at(52)), Act::Nothing);
    assert_eq!(work.hook_not_started(at(53)), Act::Nothing);
    assert_eq!(work.due(), Some(55));
    assert_eq!(work.wake(at(55)), Act::Run(Hook::Lost));
    assert_eq!(work.wake(at(91)), Act::Kill);
    assert_eq!(work.hook_gone(false, at(92)), Act::Nothing);
    assert!(work.is_over() && !work.is_stopped());
}

#[test]
fn a_try_that_runs_when_the_lease_is_over_before_its_time_has_a_grace() {
    let (mut work, _) = Work::elected(SPANS);
    assert_eq!(work.hook_gone(true, Moment { now: 1, kill_at: 100 }), Act::Nothing);
    assert_eq!(work.stop(Moment { now: 2, kill_at: 50 }), Act::Run(Hook::Lost));
    assert_eq!(work.stop(Moment { now: 9, kill_at: 9 }), Act::Nothing);
    assert_eq!(work.due(), Some(9 + SPANS.grace));
    // Said again, it changes nothing.
    assert_eq!(work.stop(Moment { now: 10, kill_at: 9 }), Act::Nothing);
    assert_eq!(work.due(), Some(9 + SPANS.grace));
}

#[test]
fn a_lease_that_is_over_in_its_time_gives_no_other_grace() {
    for (late, killed) in [(50, false), (50, true), (51, true)] {
        let (mut work, _) = Work::elected(SPANS);
        assert_eq!(work.hook_gone(true, Moment { now: 1, kill_at: 100 }), Act::Nothing);
        assert_eq!(work.stop(Moment { now: 2, kill_at: 50 }), Act::Run(Hook::Lost));
        if killed {
            assert_eq!(work.wake(Moment { now: 50, kill_at: 50 }), Act::Kill);
        }
        assert_eq!(work.stop(Moment { now: late, kill_at: late }), Act::Nothing);
        if !killed {
            assert_eq!(work.wake(Moment { now: late, kill_at: late }), Act::Kill);
        }
        assert_eq!(work.hook_gone(false, Moment { now: late, kill_at: late }), Act::Run(Hook::Lost));
        assert_eq!(work.wake(Moment { now: late + SPANS.grace, kill_at: late }), Act::Kill);
        assert_eq!(work.hook_gone(false, Moment { now: late + SPANS.grace, kill_at: late }), Act::Nothing);
        assert!(work.is_over() && !work.is_stopped());
    }
}

/// What was left may have begun the work again.
#[test]
fn a_success_beside_what_does_not_die_counts_only_when_it_is_repeated() {
    let at = |now| Moment { now, kill_at: 100 };
    let (mut work, _) = Work::elected(SPANS);
    assert_eq!(work.stop(at(2)), Act::Kill);
    assert_eq!((work.due(), work.wake(at(3))), (Some(3), Act::Run(Hook::Lost)));
    work.hook_left(true, at(4));
    assert!(work.waits_for_the_dying() && work.due().is_none());
    assert_eq!(work.wake(at(1_000)), Act::Nothing);
    assert_eq!(work.hook_gone(true, at(1_000)), Act::Run(Hook::Lost));
    assert!(!work.is_stopped() && work.due() == Some(1_000 + SPANS.grace));
    assert_eq!(work.hook_gone(true, at(1_001)), Act::Nothing);
    assert!(work.is_stopped());
}
