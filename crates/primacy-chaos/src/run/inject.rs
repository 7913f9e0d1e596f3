//! Carries faults out, and ends them.

use std::process::Stdio;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use super::Run;
use crate::canary::Canary;
use crate::candidate::CandidateSlot;
use crate::clock::Moment;
use crate::fault::{Kind, Strike};
use crate::judge::{Promise, Stopped, Verdict};
use crate::process::Process;
use crate::rng::Rng;
use crate::site::{Peers, Server, flood_hint_file};

/// How many faults there are at once, at most.
const AT_ONCE: usize = 3;

/// A fault that lasts.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) kind: Kind,
    /// Whom it strikes, if it strikes one.
    pub(super) place: Option<usize>,
    until: Moment,
    undo: Undo,
}

/// How a fault ends.
#[derive(Debug)]
enum Undo {
    /// These go on, in this order, with a pause between the first and the others.
    Continue {
        stopped: Vec<Process>,
        pause: Duration,
        all: Option<Stopped>,
    },
    /// The order to pause, so that the one to resume comes after it.
    Resume(JoinHandle<Result<()>>),
    EmptyDisk,
    /// The copy of this voter has ended, which it must do by itself; candidates are led to the voter again.
    EndCopy {
        voter: usize,
        end: JoinHandle<Result<()>>,
    },
    /// Nobody was left to kill these.
    KillOrphans(Vec<Process>),
    /// Everything arrives again; what was held does, or is lost with its connection.
    Heal {
        lost: bool,
        longer: Duration,
    },
    /// Then nothing gets through for this long.
    Fade(Duration),
    /// It ends by itself.
    Await(JoinHandle<Result<()>>),
    /// The store works again, and is not whole yet; that ends by itself.
    Recover(JoinHandle<Result<()>>),
}

impl InForce {
    /// Whether nobody can be elected now.
    pub(super) fn blocks(&self) -> bool {
        self.kind.blocks() && !matches!(self.undo, Undo::Recover(_))
    }

    fn is_over(&self, now: Moment) -> bool {
        match &self.undo {
            Undo::Await(end) | Undo::Recover(end) | Undo::EndCopy { end, .. } => end.is_finished(),
            _ => self.until <= now,
        }
    }
}

impl Run {
    /// Carries a fault out; `false` if that has to wait.
    pub(super) fn inject(&mut self, strike: &Strike) -> bool {
        let Strike { kind, at_leader, span, .. } = *strike;
        let mut rng = strike.rng.clone();
        if kind.lasts() && self.in_force.len() >= AT_ONCE {
            return false;
        }
        let place = if kind.has_target() {
            let Some(place) = self.choose(kind, at_leader, &mut rng) else { return false };
            Some(place)
        } else {
            None
        };
        if self.in_force.iter().any(|other| other.kind.strikes_store() && kind.strikes_store()) {
            return false;
        }
        let aim = self.aim(place);
        let lasting = if kind.lasts() { format!(" for {:.2} s", span.as_secs_f64()) } else { String::new() };
        self.timeline.tell(format!("{}{aim}{lasting}", kind.name()));
        let undo = match place {
            Some(place) if kind.strikes_link() || kind == Kind::Cut => self.strike_link(kind, place, span, &mut rng),
            Some(place) => self.strike_place(kind, place, &mut rng),
            None => self.strike_all(kind, span, &mut rng),
        };
        let now = Moment::now();
        self.termination.change(now);
        *self.injected.entry(kind.name()).or_default() += 1;
        if let Some(undo) = undo {
            // Long enough for a renewal or two.
            let span = if kind == Kind::Fade { self.setup.lease * 3 / 5 } else { span };
            self.in_force.push(InForce { kind, place, until: now + span, undo });
        }
        true
    }

    /// The candidate to strike. Two faults that together leave nobody to guard a program are not injected at once: no
    /// promise covers that.
    fn choose(&self, kind: Kind, at_leader: bool, rng: &mut Rng) -> Option<usize> {
        let leader = self.witnessed.latest_leadership().map(|leadership| leadership.name.clone());
        let suits = |index: &usize| {
            let Some(place) = self.places.get(*index) else { return false };
            let Some(runner) = &place.runner else { return false };
            let struck = |fault: &InForce| {
                let processes = fault.kind.strikes_processes() && kind.strikes_processes();
                fault.place == Some(*index) && (processes || fault.kind == kind)
            };
            let suits = match kind {
                // That they go on then is what this bug is.
                Kind::KillGuards => !runner.leaves_orphans() || self.setup.canary == Some(Canary::NoIsolation),
                Kind::OrphanKin => runner.leaves_orphans() && self.led_by(place).is_some(),
                _ => true,
            };
            suits && !self.in_force.iter().any(struck)
        };
        let all: Vec<usize> = (0..self.places.len()).filter(suits).collect();
        let aimed = all.iter().copied().find(|index| at_leader && Some(&self.places[*index].name) == leader.as_ref());
        aimed.or_else(|| (!all.is_empty()).then(|| all[rng.index(all.len())]))
    }

    /// The token of the leader in this place, and its program.
    fn led_by(&self, place: &CandidateSlot) -> Option<(u64, Process)> {
        let program = place.runner.as_ref()?.program()?;
        let led = self.witnessed.latest_leadership()?;
        (led.name == place.name && led.pid == program.own_pid()).then_some((led.token, program))
    }

    /// Whom a fault strikes, for people.
    fn aim(&self, place: Option<usize>) -> String {
        let Some(place) = place else { return String::new() };
        let name = &self.places[place].name;
        let leads = self.witnessed.latest_leadership().is_some_and(|leadership| leadership.name == *name);
        format!(" {name}{}", if leads { " (leader)" } else { "" })
    }

    fn strike_place(&mut self, kind: Kind, place: usize, rng: &mut Rng) -> Option<Undo> {
        let name = self.places[place].name.clone();
        let runner = self.places[place].runner.as_ref()?;
        let (process, warden, program) = (runner.process, runner.warden(), runner.program());
        let stop = |processes: Vec<Option<Process>>| {
            let stopped: Vec<Process> = processes.into_iter().flatten().collect();
            stopped.iter().for_each(|process| process.send(Signal::SIGSTOP));
            Some(Undo::Continue { stopped, pause: Duration::ZERO, all: None })
        };
        match kind {
            Kind::Term => process.send(Signal::SIGTERM),
            Kind::KillRunner => process.send(Signal::SIGKILL),
            Kind::KillWarden => warden?.send(Signal::SIGKILL),
            Kind::KillProgram => program?.send(Signal::SIGKILL),
            Kind::KillGuards => {
                // Stopped first, so that neither sees the other die.
                for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
                    [Some(process), warden].into_iter().flatten().for_each(|guard| guard.send(signal));
                }
            }
            Kind::OrphanKin => {
                let (token, program) = self.led_by(&self.places[place])?;
                // It starts nobody any more, and the kernel kills it all the same.
                [program, process].into_iter().chain(warden).for_each(|process| process.send(Signal::SIGSTOP));
                let orphans = program.descendants();
                self.witnessed.orphan(token);
                [process].into_iter().chain(warden).for_each(|process| process.send(Signal::SIGKILL));
                return Some(Undo::KillOrphans(orphans));
            }
            Kind::KillAll => stop_all(process).iter().for_each(|process| process.send(Signal::SIGKILL)),
            Kind::StopRunner => return stop(vec![Some(process)]),
            Kind::StopWarden => return stop(vec![warden]),
            Kind::StopProgram => return stop(vec![program]),
            Kind::StopRunnerAndProgram => return stop(vec![program, Some(process)]),
            Kind::StopAll => {
                let mut stopped = stop_all(process);
                let all =
                    Some(self.witnessed.stopped(&name, stopped.iter().map(|process| process.own_pid()).collect()));
                // Who wakes up first: mostly the program, which then has every chance to do harm.
                let pause =
                    if rng.percent(50) { rng.span(Duration::ZERO, Duration::from_millis(20)) } else { Duration::ZERO };
                if rng.percent(30) {
                    stopped.reverse();
                }
                return Some(Undo::Continue { stopped, pause, all });
            }
            Kind::StepClock => {
                let offset = rng.below(14_400).cast_signed() - 7_200;
                let stepped = self.places[place].step_clock(offset);
                self.timeline.tell(format!(
                    "  {} s",
                    if stepped { format!("{offset:+}") } else { "no clock of its own, +0".into() }
                ));
            }
            Kind::Promote => self.order(&["promote", &name, "--no-wait", "--force"]),
            _ => {}
        }
        None
    }

    fn strike_link(&mut self, kind: Kind, place: usize, span: Duration, rng: &mut Rng) -> Option<Undo> {
        let lease = self.setup.lease;
        let longer = if kind == Kind::Fade { lease / 5 } else { rng.span(lease / 50, lease / 3) };
        self.strike_ways(place, kind, longer);
        if kind == Kind::Fade {
            return Some(Undo::Fade(span));
        }
        kind.lasts().then(|| Undo::Heal { lost: rng.percent(50), longer })
    }

    fn strike_all(&mut self, kind: Kind, span: Duration, rng: &mut Rng) -> Option<Undo> {
        let server = self.site.server.clone();
        let draw = rng.index(usize::MAX);
        let later = |harm: fn(&Server, Duration, usize) -> Result<()>| {
            let server = Arc::clone(server.as_ref()?);
            Some(Undo::Await(thread::spawn(move || harm(&server, span, draw))))
        };
        let peers = self.site.peers.clone();
        let to_peers = |harm: fn(&Peers, Duration, usize) -> Result<()>| {
            let peers = Arc::clone(peers.as_ref()?);
            Some(Undo::Await(thread::spawn(move || harm(&peers, span, draw))))
        };
        match kind {
            Kind::FloodHints if self.site.server.is_some() => return later(|server, span, _| server.flood_hints(span)),
            Kind::FloodHints => {
                let url = self.site.url.clone();
                return Some(Undo::Await(thread::spawn(move || flood_hint_file(&url, span))));
            }
            Kind::FloodPeers => return to_peers(Peers::flood),
            Kind::ClonePeer => return self.copy_voter(draw),
            Kind::FreezePeer => return to_peers(|peers, span, draw| peers.freeze(span, draw, false)),
            Kind::FreezePeers => return to_peers(|peers, span, draw| peers.freeze(span, draw, true)),
            Kind::KillPeer => return to_peers(|peers, span, draw| peers.kill(span, draw, false)),
            Kind::KillPeers => return to_peers(|peers, span, draw| peers.kill(span, draw, true)),
            Kind::RestartPeers => return to_peers(|peers, _, draw| peers.restart(draw)),
            Kind::Depose => self.order(&["depose", "--no-wait", "--force"]),
            Kind::Pause => {
                let mut command = self.recipe.operator(&self.site.url);
                command.args(["pause", "--quiet", "--wait", "2s"]).stderr(Stdio::null());
                return Some(Undo::Resume(thread::spawn(move || Ok(command.status().map(drop)?))));
            }
            Kind::FillDisk if self.site.disk.is_none() => return later(Server::fill_disk),
            Kind::FillDisk => {
                return self.site.fill_disk().then_some(Undo::EmptyDisk);
            }
            Kind::Isolate | Kind::SlowAll => {
                let longer = rng.span(Duration::from_millis(30), Duration::from_millis(400));
                (0..self.places.len()).for_each(|place| self.strike_ways(place, kind, longer));
                return Some(Undo::Heal { lost: rng.percent(50), longer });
            }
            Kind::EndSessions => return later(|server, _, _| server.end_sessions(40)),
            Kind::EndAllSessions => return later(|server, _, _| server.end_sessions(100)),
            Kind::LockTable => return later(|server, span, _| server.lock_table(span)),
            Kind::RestartServer => return later(|server, _, draw| server.restart(draw)),
            Kind::FreezeServer => return later(Server::freeze),
            Kind::SplitCluster => return later(Server::split),
            Kind::KillServer => return later(Server::kill),
            Kind::FailOver => {
                if self.site.forgets() {
                    // So that what is lost may be a grant, behind a release that is not: the one case in which the store
                    // lets another lead at once.
                    self.order(&["depose", "--no-wait", "--force"]);
                }
                return later(Server::fail_over);
            }
            Kind::FailOverUnfenced => return later(Server::fail_over_unfenced),
            Kind::FreezeStandby => return later(Server::freeze_standby),
            Kind::KillStandby => return later(Server::kill_standby),
            _ => {}
        }
        None
    }

    /// Starts a copy of a voter, to which every other candidate is led until that has ended.
    fn copy_voter(&mut self, draw: usize) -> Option<Undo> {
        let peers = Arc::clone(self.site.peers.as_ref()?);
        let voter = draw % peers.ports().len();
        let port = match Peers::free_port() {
            Ok(port) => port,
            Err(error) => {
                self.timeline.tell(format!("  {error:#}"));
                return None;
            }
        };
        self.places.iter().step_by(2).for_each(|place| place.lead(voter, port));
        Some(Undo::EndCopy { voter, end: thread::spawn(move || peers.copy(voter, port)) })
    }

    /// Gives an operator's order, without waiting for it.
    fn order(&mut self, words: &[&str]) {
        let mut command = self.recipe.operator(&self.site.url);
        command.args(words).args(["--quiet", "--wait", "2s"]).stderr(Stdio::null());
        if self.setup.canary == Some(Canary::Now) && words.contains(&"--no-wait") {
            command.arg("--now");
        }
        match command.spawn() {
            Ok(order) => self.orders.push(order),
            Err(error) => self.timeline.tell(format!("  no operator: {error}")),
        }
    }

    /// Ends what has lasted long enough.
    pub(super) fn heal(&mut self, now: Moment) {
        let (due, rest) = std::mem::take(&mut self.in_force).into_iter().partition(|fault| fault.is_over(now));
        self.in_force = rest;
        let due: Vec<InForce> = due;
        for fault in due {
            let aim = self.aim(fault.place);
            let word = match fault.undo {
                Undo::Resume(_) => "resume after",
                Undo::KillOrphans(_) => "orphans are killed after",
                Undo::Fade(_) => "nothing more after",
                Undo::Await(_) if fault.kind.fails_over() => "promoted after",
                Undo::Recover(_) => "a pair again after",
                _ => "end of",
            };
            self.end(fault.kind, fault.undo, fault.place);
            self.timeline.tell(format!("{word} {}{aim}", fault.kind.name()));
            self.termination.change(Moment::now());
        }
    }

    /// Nothing lasts any longer than it must.
    pub(super) fn expire_all(&mut self) {
        let now = Moment::now();
        self.in_force.iter_mut().for_each(|fault| fault.until = now);
    }

    /// Ends everything, and waits for what ends by itself.
    pub(super) fn heal_all(&mut self) {
        while let Some(fault) = self.in_force.pop() {
            self.end(fault.kind, fault.undo, fault.place);
        }
        self.termination.change(Moment::now());
    }

    /// Heals a candidate's ways, but for what still strikes them.
    fn heal_ways(&mut self, place: usize, lost: bool) {
        self.places[place].heal(lost);
        let here = self.in_force.iter().filter(|fault| fault.place.is_none_or(|other| other == place));
        let rest = here.filter_map(|fault| match fault.undo {
            Undo::Heal { longer, .. } => Some((fault.kind, longer)),
            Undo::Fade(_) => Some((fault.kind, self.setup.lease / 5)),
            _ => None,
        });
        for (kind, longer) in rest.collect::<Vec<_>>() {
            self.strike_ways(place, kind, longer);
        }
    }

    /// Does to a candidate's ways what a fault does.
    fn strike_ways(&mut self, place: usize, kind: Kind, longer: Duration) {
        if let Err(error) = self.places[place].strike(kind, longer) {
            self.timeline.tell(format!("  {error:#}"));
        }
    }

    fn join(&mut self, end: JoinHandle<Result<()>>) {
        match end.join() {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.timeline.tell(format!("  {error:#}")),
            Err(_) => self.break_promise(Verdict::new(Promise::Load, "a fault has panicked")),
        }
    }

    fn end(&mut self, kind: Kind, undo: Undo, place: Option<usize>) {
        match undo {
            Undo::Heal { lost, .. } => {
                for index in (0..self.places.len()).filter(|index| place.is_none_or(|place| place == *index)) {
                    self.heal_ways(index, lost);
                }
            }
            Undo::Fade(span) => {
                let Some(place) = place else { return };
                self.strike_ways(place, Kind::MuteRequests, Duration::ZERO);
                let undo = Undo::Heal { lost: true, longer: Duration::ZERO };
                let (place, until) = (Some(place), Moment::now() + span);
                self.in_force.push(InForce { kind: Kind::MuteRequests, place, until, undo });
            }
            Undo::Await(end) => {
                self.join(end);
                if let Some(server) = self.site.server.clone().filter(|_| kind.fails_over()) {
                    let undo = Undo::Recover(thread::spawn(move || server.rejoin()));
                    self.in_force.push(InForce { kind, place, until: Moment::now(), undo });
                }
            }
            Undo::Recover(end) => self.join(end),
            Undo::EndCopy { voter, end } => {
                if let Ok(Err(error)) = end.join() {
                    self.break_promise(Verdict::new(Promise::Endurance, format!("{error:#}")));
                }
                let port = self.site.peers.as_ref().map(|peers| peers.ports()[voter]);
                if let Some(port) = port {
                    self.places.iter().step_by(2).for_each(|place| place.lead(voter, port));
                }
            }
            Undo::KillOrphans(orphans) => orphans.iter().for_each(|orphan| orphan.send(Signal::SIGKILL)),
            Undo::Continue { stopped, pause, all } => {
                for (index, process) in stopped.iter().enumerate() {
                    process.send(Signal::SIGCONT);
                    if index == 0 && !pause.is_zero() {
                        thread::park_timeout(pause);
                    }
                }
                if let Some(all) = all {
                    self.witnessed.awake(all, Moment::now());
                }
            }
            Undo::Resume(paused) => {
                let mut command = self.recipe.operator(&self.site.url);
                command.args(["resume", "--quiet", "--wait", "5s"]);
                let resumed = thread::spawn(move || {
                    let _ = paused.join();
                    // Whatever else is wrong, the election must go on afterwards.
                    for _ in 0..20 {
                        if command.status()?.success() {
                            return Ok(());
                        }
                    }
                    bail!("the election could not be resumed")
                });
                let until = Moment::now();
                self.in_force.push(InForce { kind: Kind::Pause, place, until, undo: Undo::Await(resumed) });
            }
            Undo::EmptyDisk => {
                if let Some(disk) = &self.site.disk {
                    disk.empty();
                }
            }
        }
    }
}

/// Stops a runner and everything below it, the program first; what it starts meanwhile, too.
fn stop_all(runner: Process) -> Vec<Process> {
    let mut stopped: Vec<Process> = Vec::new();
    let mut complete = 0;
    // One look can miss a process whose parent exits while the tree is read: it belongs to the warden then, whose children were
    // read before. With everything else stopped, the next look sees it.
    loop {
        let mut new: Vec<Process> = runner.descendants();
        new.reverse();
        new.push(runner);
        new.retain(|process| !stopped.contains(process));
        complete = if new.is_empty() { complete + 1 } else { 0 };
        if complete == 2 {
            return stopped;
        }
        new.iter().for_each(|process| process.send(Signal::SIGSTOP));
        stopped.extend(new);
    }
}
