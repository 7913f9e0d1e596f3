//! What befalls nodes. Of faults that take a node away there is one at a time, since a majority has to be left.

use std::time::Duration;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use super::{Run, rot};
use crate::clock::Moment;
use crate::fault::{Kind, Need, Strike};
use crate::judge::{Promise, Verdict};
use crate::rng::Rng;

/// How long a node may take until it knows again who leads all groups.
const RECOVERY: Duration = Duration::from_secs(30);

/// The code of a node that refuses what is on its disk.
const REFUSED: i32 = 74;

/// A slow node runs for this long at once, and stands still for four times as long.
const RUNS: Duration = Duration::from_millis(10);

impl Run<'_> {
    /// Whether a fault can be injected.
    pub(super) fn has(&self, kind: Kind) -> bool {
        match kind.need() {
            // Without one of them a majority has to be left.
            Need::Nodes if matches!(kind, Kind::LoseFolder | Kind::RotLog) => self.nodes.count() >= 3,
            Need::Nodes => true,
            Need::Wire => self.nodes.have_wires(),
            _ => false,
        }
    }

    /// Carries a fault out, to its end.
    pub(super) fn strike(&mut self, strike: &Strike) -> Result<()> {
        let Strike { kind, at_leader, span, .. } = *strike;
        let mut rng = strike.rng.clone();
        *self.injected.entry(kind.name()).or_default() += 1;
        let leaders = self.leaders()?;
        let node = match kind {
            Kind::KillLeader => most(&leaders),
            Kind::KillNode => rng.index(self.nodes.count()),
            _ if at_leader => most(&leaders),
            _ => rng.index(self.nodes.count()),
        };
        let leads: Vec<u16> =
            (0..).zip(&leaders).filter(|(_, leader)| **leader == node).map(|(group, _)| group).collect();
        let has_aim = !matches!(kind, Kind::KillNodes | Kind::RestartNodes | Kind::PromoteNode);
        let aim = format!(" {}, which leads {} groups", self.nodes.name(node), leads.len());
        self.timeline.tell(format!("{}{}", kind.name(), if has_aim { &aim } else { "" }));
        let is_watched = has_aim && !leads.is_empty();
        if is_watched {
            self.shared.availability.watch(node, leads.into_iter());
        }
        match kind {
            Kind::KillLeader => self.kill(&[node], rng.span(Duration::ZERO, self.setup.lease / 2))?,
            Kind::KillNode => self.kill(&[node], span / 2)?,
            Kind::LoseNode => {
                self.shared.availability.strike(node);
                self.nodes.lose(node)?;
                self.pass(span / 2);
                self.come_back(&[node])?;
            }
            Kind::KillNodes => {
                let all: Vec<usize> = (0..self.nodes.count()).collect();
                self.kill(&all, rng.span(Duration::ZERO, self.setup.lease / 2))?;
            }
            Kind::TermNode => self.restart(node, span / 2)?,
            Kind::RestartNodes => (0..self.nodes.count()).try_for_each(|node| self.restart(node, Duration::ZERO))?,
            Kind::StopNode => {
                self.shared.availability.strike(node);
                self.nodes.send(node, Signal::SIGSTOP);
                self.pass(span);
                self.nodes.send(node, Signal::SIGCONT);
                self.recovered(node)?;
            }
            Kind::SlowNode => self.slow(node, span)?,
            Kind::LoseFolder => {
                self.end(&[node])?;
                self.pass(span / 2);
                self.make_anew(node)?;
            }
            Kind::RotLog => self.rot(node, &mut rng)?,
            Kind::NetCut | Kind::NetCutIn | Kind::NetCutOut => self.cut(kind, node, span)?,
            Kind::PromoteNode => self.promote(&leaders, &mut rng)?,
            _ => bail!("{} does not befall nodes", kind.name()),
        }
        let longest = self.shared.availability.longest().filter(|_| is_watched);
        if let Some(longest) = longest {
            self.timeline.tell(format!("  no write was answered for {:.3} s", longest.as_secs_f64()));
            self.gaps.entry(kind.name()).or_default().push(longest);
        }
        Ok(())
    }

    /// Who leads each group, as soon as some node knows.
    fn leaders(&self) -> Result<Vec<usize>> {
        let until = Moment::now() + RECOVERY;
        while Moment::now() < until {
            if let Some(leaders) = (0..self.nodes.count()).find_map(|node| self.nodes.leaders(node)) {
                return Ok(leaders);
            }
            self.pass(super::TICK);
        }
        bail!("for {RECOVERY:?} no node has known who leads")
    }

    /// Kills these at once, and starts them again after a while.
    fn kill(&mut self, nodes: &[usize], span: Duration) -> Result<()> {
        self.end(nodes)?;
        self.pass(span);
        self.come_back(nodes)
    }

    /// Kills these at once.
    fn end(&mut self, nodes: &[usize]) -> Result<()> {
        nodes.iter().for_each(|node| self.shared.availability.strike(*node));
        nodes.iter().for_each(|node| self.nodes.send(*node, Signal::SIGKILL));
        nodes.iter().try_for_each(|node| self.nodes.end(*node, Signal::SIGKILL).map(drop))
    }

    /// Starts one that is down with an empty folder, and has all groups count it, as the manual says.
    fn make_anew(&mut self, node: usize) -> Result<()> {
        self.nodes.lose_folder(node)?;
        self.nodes.begin(node)?;
        self.nodes.await_waiting(node)?;
        let by = (node + 1) % self.nodes.count();
        let until = Moment::now() + RECOVERY;
        while let Some(problem) = self.nodes.replace(node, by)? {
            if Moment::now() > until {
                let what = format!("node {} is not made anew after {RECOVERY:?}: {problem}", self.nodes.name(node));
                self.break_promise(Verdict::new(Promise::Termination, what));
                return Ok(());
            }
            self.timeline.tell(format!("  once more: {problem}"));
        }
        self.nodes.await_ready(node)?;
        self.recovered(node)
    }

    /// Flips a bit of the log of a node that is down. Either nothing needs that bit, or the node refuses its folder; and
    /// `primacy kv check` knows which.
    fn rot(&mut self, node: usize, rng: &mut Rng) -> Result<()> {
        self.end(&[node])?;
        let flip = rot::flip(&self.nodes.log_folder(node), rng)?;
        let is_sound = self.nodes.is_sound(node)?;
        self.nodes.begin(node)?;
        let ended = self.nodes.await_start(node)?;
        let found = if is_sound { "sound" } else { "damaged" };
        let place = flip.map_or_else(|| "its log has too little yet".to_owned(), |flip| flip.to_string());
        self.timeline.tell(format!("  {place}: the log is found {found}"));
        match ended {
            None if is_sound => self.recovered(node),
            Some(status) if !is_sound && status.code() == Some(REFUSED) => self.make_anew(node),
            _ => {
                let name = self.nodes.name(node);
                let does =
                    ended.map_or_else(|| "serves clients".to_owned(), |status| format!("has ended with {status}"));
                let what = format!("the log of node {name} was found {found}, and the node {does}");
                self.break_promise(Verdict::new(Promise::Endurance, what));
                Ok(())
            }
        }
    }

    /// Lets a node run now and then.
    fn slow(&mut self, node: usize, span: Duration) -> Result<()> {
        self.shared.availability.strike(node);
        let until = Moment::now() + span;
        while Moment::now() < until {
            self.nodes.send(node, Signal::SIGSTOP);
            self.pass(RUNS * 4);
            self.nodes.send(node, Signal::SIGCONT);
            self.pass(RUNS);
        }
        self.recovered(node)
    }

    fn come_back(&mut self, nodes: &[usize]) -> Result<()> {
        nodes.iter().try_for_each(|node| self.nodes.begin(*node))?;
        nodes.iter().try_for_each(|node| self.nodes.await_ready(*node))?;
        nodes.iter().try_for_each(|node| self.recovered(*node))
    }

    /// Has one end, which hands its leaderships over, and starts it again after a while.
    fn restart(&mut self, node: usize, span: Duration) -> Result<()> {
        self.shared.availability.strike(node);
        let status = self.nodes.end(node, Signal::SIGTERM)?;
        if let Some(status) = status.filter(|status| !status.success()) {
            let what = format!("node {} was asked to end, and ended with {status}", self.nodes.name(node));
            self.break_promise(Verdict::new(Promise::Endurance, what));
        }
        self.pass(span);
        self.come_back(&[node])
    }

    fn cut(&mut self, kind: Kind, node: usize, span: Duration) -> Result<()> {
        self.shared.availability.strike(node);
        if let Some(wire) = self.nodes.wire(node) {
            if kind != Kind::NetCutOut {
                wire.cut_in()?;
            }
            if kind != Kind::NetCutIn {
                wire.cut_out()?;
            }
        }
        self.pass(span);
        if let Some(wire) = self.nodes.wire(node) {
            wire.heal();
        }
        self.recovered(node)
    }

    /// Has an operator move a group to another node.
    fn promote(&mut self, leaders: &[usize], rng: &mut Rng) -> Result<()> {
        let group = rng.index(leaders.len());
        let others: Vec<usize> = (0..self.nodes.count()).filter(|node| *node != leaders[group]).collect();
        let Some(next) = others.get(rng.index(others.len())) else { return Ok(()) };
        let name = self.nodes.name(*next);
        let mut command = self.nodes.operator(u16::try_from(group)?);
        let status = command.args(["promote", name, "--quiet", "--wait", "2s"]).status()?;
        self.timeline.tell(format!("  group {group} to {name}: {status}"));
        Ok(())
    }

    /// Waits until a node that is back knows who leads, and is excused no longer.
    fn recovered(&mut self, node: usize) -> Result<()> {
        let until = Moment::now() + RECOVERY;
        while self.nodes.leaders(node).is_none() {
            if Moment::now() > until {
                let what = format!("node {} has not known who leads for {RECOVERY:?}", self.nodes.name(node));
                self.break_promise(Verdict::new(Promise::Termination, what));
                return Ok(());
            }
            self.pass(super::TICK);
        }
        self.shared.availability.heal(node);
        Ok(())
    }
}

/// The node that leads most groups.
fn most(leaders: &[usize]) -> usize {
    let count = |node: usize| leaders.iter().filter(|leader| **leader == node).count();
    leaders.iter().copied().max_by_key(|leader| count(*leader)).unwrap_or_default()
}
