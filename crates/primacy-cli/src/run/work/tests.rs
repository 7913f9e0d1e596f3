//! All orders in which hooks end, fail, hang and cannot be started, leaderships end and wardens die, up to a bound.

use std::collections::{HashSet, VecDeque};

use super::*;

/// When a program would be killed, how long a grace is, and how long it goes on, in ticks.
const KILL_AT: u64 = 4;
const GRACE: u64 = 2;
/// Two tries of the warden that begin when the lease is over, two of the runner after the warden's death, and a moment.
const HORIZON: u64 = KILL_AT + 4 * GRACE + 1;

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    work: Work,
    tick: u64,
    /// The hooks that run: not more than one of them, if all is well.
    elected: Option<Run>,
    lost: Option<Run>,
    /// The warm program may be at work.
    acts: bool,
    /// The leadership has ended.
    ended: bool,
    /// How often the warden may yet die, and how often a hook may yet not be started.
    deaths: u32,
    refusals: u32,
    was_working: bool,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    /// It was killed, and is not gone yet.
    dies: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Ends(Hook, bool),
    Dies(Hook),
    LeadershipEnds,
    KilledEarlier,
    WardenDies,
    Tick,
}

impl World {
    fn start(planted: Planted, at_start: bool) -> Vec<Self> {
        let mut world = Self {
            work: Work::at(Stage::Stopped, GRACE),
            tick: 0,
            elected: None,
            lost: None,
            acts: at_start,
            ended: at_start,
            deaths: 1,
            refusals: 2,
            was_working: false,
            failures: 0,
        };
        let (work, act) = match at_start {
            // Before there is a lease.
            true => Work::doubted(GRACE, Moment { now: 0, kill_at: 0 }, planted),
            false => Work::elected(GRACE),
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
                    run.dies = true;
                }
                vec![self]
            }
            Act::Run(hook) => {
                let mut next = Vec::new();
                if self.refusals > 0 {
                    let mut refused = Self { refusals: self.refusals - 1, ..self.clone() };
                    next.extend(refused.gone(hook, false));
                }
                let run = Some(Run { dies: false });
                match hook {
                    Hook::Elected => (self.elected, self.acts) = (run, true),
                    Hook::Lost => self.lost = run,
                }
                next.push(self);
                next
            }
        }
    }

    fn gone(&mut self, hook: Hook, success: bool) -> Vec<Self> {
        match hook {
            Hook::Elected => {
                self.elected = None;
                // However it has ended: the work may have begun.
                self.acts = true;
            }
            Hook::Lost => {
                self.lost = None;
                if success {
                    // A hook that still runs begins it again.
                    self.acts = self.elected.is_some();
                } else {
                    self.failures += 1;
                }
            }
        }
        let act = self.work.hook_gone(success, self.moment());
        self.was_working |= self.work.stage == Stage::Working;
        self.clone().carry_out(act)
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (hook, run) in [(Hook::Elected, self.elected), (Hook::Lost, self.lost)] {
            match run {
                Some(Run { dies: true }) => steps.extend([Step::Dies(hook), Step::Ends(hook, true)]),
                Some(Run { dies: false }) => steps.extend([Step::Ends(hook, true), Step::Ends(hook, false)]),
                None => {}
            }
        }
        if !self.ended {
            steps.push(Step::LeadershipEnds);
        } else if self.work.limit().is_some() {
            steps.push(Step::KilledEarlier);
        }
        if self.deaths > 0 {
            steps.push(Step::WardenDies);
        }
        // What was killed does not live on for a tick.
        let dies = [self.elected, self.lost].into_iter().flatten().any(|run| run.dies);
        if self.tick < HORIZON && !dies {
            steps.push(Step::Tick);
        }
        steps
    }

    fn after(mut self, step: Step) -> Vec<Self> {
        match step {
            Step::Ends(hook, success) => self.gone(hook, success),
            Step::Dies(hook) => self.gone(hook, false),
            Step::LeadershipEnds => {
                self.ended = true;
                let act = self.work.stop(self.moment());
                self.carry_out(act)
            }
            Step::KilledEarlier => {
                let act = self.work.stop(Moment { now: self.tick, kill_at: self.tick });
                self.carry_out(act)
            }
            Step::WardenDies => {
                self.deaths -= 1;
                // The kernel and the runner kill what is left, and the runner gives the leadership up.
                (self.elected, self.lost, self.ended) = (None, None, true);
                if self.work.is_over() {
                    return vec![self];
                }
                let (work, act) = Work::doubted(GRACE, self.moment(), self.work.planted);
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
                    act = self.work.wake(self.tick);
                }
                self.carry_out(act)
            }
        }
    }

    /// What is wrong with it.
    fn fault(&self) -> Option<&'static str> {
        let runs = self.elected.or(self.lost).is_some();
        let late = |run: Run| !run.dies && self.tick > KILL_AT.max(self.work.limit().unwrap_or_default());
        if self.elected.is_some() && self.lost.is_some() {
            Some("two hooks run")
        } else if self.work.is_stopped() && (self.acts || runs) {
            Some("the lease is given back while the work may go on")
        } else if self.ended && !self.work.is_over() && !runs {
            Some("nothing stops the work")
        } else if self.lost.is_some_and(late) || (self.tick == HORIZON && self.lost.is_some()) {
            Some("a hook is not killed in time")
        } else {
            None
        }
    }
}

/// All that can be reached, or the first fault.
fn search(flaw: Option<Flaw>) -> Result<HashSet<World>, (&'static str, World)> {
    let planted = Planted { flaw };
    let mut queue: VecDeque<World> = [false, true].into_iter().flat_map(|at| World::start(planted, at)).collect();
    let mut found = HashSet::new();
    while let Some(world) = queue.pop_front() {
        if let Some(fault) = world.fault() {
            return Err((fault, world));
        }
        if found.insert(world.clone()) {
            queue.extend(world.steps().into_iter().flat_map(|step| world.clone().after(step)));
        }
    }
    Ok(found)
}

#[test]
fn a_lease_is_given_back_only_when_on_lost_has_succeeded_and_nothing_lives() {
    let found = search(None).unwrap_or_else(|(fault, world)| panic!("{fault}: {world:#?}"));
    let any = |wanted: &dyn Fn(&World) -> bool| found.iter().any(wanted);
    assert!(found.len() > 1_000, "{} states", found.len());
    assert!(any(&|world| world.was_working && world.work.is_stopped()), "it works, and stops");
    assert!(any(&|world| !world.was_working && world.work.is_stopped()), "it stops without having worked");
    assert!(any(&|world| world.failures == 1 && world.work.is_stopped()), "a second try helps");
    assert!(any(&|world| world.failures == 2 && world.work.stage == Stage::Doubtful), "none helps");
    assert!(any(&|world| world.deaths == 0 && world.work.is_stopped()), "it stops after its warden has died");
    assert!(any(&|world| world.tick == HORIZON && world.work.is_over()), "it is over in the end");
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
        (Flaw::TrustsTheDead, given_back),
    ] {
        assert_eq!(search(Some(flaw)).map_err(|(found, _)| found).err(), Some(fault), "{flaw:?}");
    }
}

#[test]
fn on_lost_has_until_a_program_would_be_killed_and_a_grace_after_that() {
    let (mut work, _) = Work::elected(GRACE);
    assert!(work.lasts());
    assert_eq!(work.hook_gone(true, Moment { now: 1, kill_at: 100 }), Act::Nothing);
    assert_eq!(work.stop(Moment { now: 2, kill_at: 50 }), Act::Run(Hook::Lost));
    assert_eq!(work.limit(), Some(50));
    // The lease ends earlier, never later.
    assert_eq!(work.stop(Moment { now: 3, kill_at: 10 }), Act::Nothing);
    assert_eq!(work.stop(Moment { now: 4, kill_at: 20 }), Act::Nothing);
    assert_eq!((work.limit(), work.wake(9), work.wake(10)), (Some(10), Act::Nothing, Act::Kill));
    assert_eq!(work.hook_gone(false, Moment { now: 11, kill_at: 10 }), Act::Run(Hook::Lost));
    assert_eq!(work.limit(), Some(11 + GRACE));
    // The lease is over: it says nothing any more.
    assert_eq!(work.stop(Moment { now: 12, kill_at: 10 }), Act::Nothing);
    assert_eq!(work.hook_gone(true, Moment { now: 12, kill_at: 10 }), Act::Nothing);
    assert!(work.is_stopped());
}
