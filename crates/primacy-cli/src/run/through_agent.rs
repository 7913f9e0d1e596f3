//! A candidate whose leaderships come from the agent of this host: its connection, and what it does with what it is told.

mod belief;
mod connection;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use primacy::metrics::CandidateMetrics;
use primacy::store::{EndReason, Why};
use primacy::{
    CandidateConfig, ElectionName, Instant, Label, Phase, Status, StopReason, Timing, TimingSettings, Token, clock,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

use crate::agent_wire::{
    Channel, ElectedFrame, EndFrame, Heard, RefusalCode, Said, TokenText, WaitState, WaitingFrame, elected_token,
};
use crate::sleep::sleep_until;
use crate::standing::CandidateState;
use belief::Belief;
use connection::{ask, close, leave, next, say};

/// How long to wait after one connection before the next. It doubles, unless the connection has lasted for the longest of these.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(1);

/// A candidate through the agent.
pub(super) struct AgentCandidate {
    status: watch::Receiver<Status>,
    trouble: watch::Receiver<Option<AgentTrouble>>,
    elected: mpsc::UnboundedReceiver<AgentLeadership>,
    orders: mpsc::UnboundedSender<Order>,
    task: JoinHandle<()>,
}

/// Why an agent has not been of use until now.
#[derive(Clone, Debug)]
pub(super) struct AgentTrouble {
    pub(super) why: String,
    /// It does not help to wait.
    pub(super) is_lasting: bool,
}

/// A leadership through the agent, until this is dropped: then nothing works by it.
#[derive(Debug)]
pub(super) struct AgentLeadership {
    token: Token,
    phases: watch::Receiver<Phase>,
    /// A file of the connection, for the warden.
    connection: OwnedFd,
    orders: mpsc::UnboundedSender<Order>,
}

/// What the runner asks of its connection.
#[derive(Debug)]
enum Order {
    /// Nothing works by this token.
    Stopped(Token),
    /// The work of the leadership is to stop.
    GiveUp(EndReason),
    /// To take part or not.
    TakePart(bool),
    /// To end.
    Leave,
}

impl AgentCandidate {
    /// Begins to ask the agent at this place.
    pub(super) fn start(socket: PathBuf, election: &ElectionName, config: &CandidateConfig) -> Self {
        let (driver, elected) = Driver::new(socket, election, config.label.clone(), config.data.clone());
        let (status, trouble) = (driver.status.subscribe(), driver.trouble.subscribe());
        let orders = driver.me.clone();
        Self { status, trouble, elected, orders, task: tokio::spawn(driver.run()) }
    }

    pub(super) fn status(&self) -> watch::Receiver<Status> {
        self.status.clone()
    }

    /// Why the agent has not been of use until now, if it has not.
    pub(super) fn troubles(&self) -> watch::Receiver<Option<AgentTrouble>> {
        self.trouble.clone()
    }

    /// What it tells of itself.
    pub(super) fn state(&self) -> CandidateState {
        CandidateState { status: self.status(), group: None, counted: Arc::new(CandidateMetrics::default()) }
    }

    /// Waits for the next leadership. Cancel-safe.
    ///
    /// # Errors
    /// If there will be none.
    pub(super) async fn elected(&mut self) -> Result<AgentLeadership, StopReason> {
        self.elected.recv().await.ok_or(StopReason::DriverFailed)
    }

    /// The work of a leadership is to stop, for this reason.
    pub(super) fn give_up(&self, reason: EndReason) {
        self.order(Order::GiveUp(reason));
    }

    /// Whether it takes part.
    pub(super) fn take_part(&self, takes_part: bool) {
        self.order(Order::TakePart(takes_part));
    }

    /// Leaves the election, and returns when the agent has been told all there is to tell.
    pub(super) async fn withdraw(mut self) {
        // Nobody works by what was not taken.
        self.elected.close();
        while self.elected.try_recv().is_ok() {}
        self.order(Order::Leave);
        if let Err(error) = self.task.await {
            debug!(%error, "the connection to the agent was not ended");
        }
    }

    fn order(&self, order: Order) {
        // One that has ended has nothing left to do.
        let _ = self.orders.send(order);
    }
}

impl AgentLeadership {
    pub(super) const fn token(&self) -> Token {
        self.token
    }

    pub(super) fn phases(&self) -> watch::Receiver<Phase> {
        self.phases.clone()
    }

    /// The connection by which it was told, for the warden.
    pub(super) fn connection(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Drop for AgentLeadership {
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stopped(self.token));
    }
}

/// The task that has the connection.
struct Driver {
    socket: PathBuf,
    election: String,
    label: Label,
    data: String,
    status: watch::Sender<Status>,
    trouble: watch::Sender<Option<AgentTrouble>>,
    elected: mpsc::UnboundedSender<AgentLeadership>,
    orders: mpsc::UnboundedReceiver<Order>,
    /// For the leaderships that it hands out.
    me: mpsc::UnboundedSender<Order>,
    /// The leadership that the runner has, until nothing works by it. Until then there is no other, and no other connection.
    lead: Option<Lead>,
    /// What the agent's candidate waits for, as it was told last.
    waits: Why,
    takes_part: bool,
    leaves: bool,
    /// The agent's candidate has seen the election's record.
    has_looked: bool,
    /// Before the next connection.
    pause: Duration,
    /// Why the last connection has ended, if it was told and would only be told again.
    warned: Option<String>,
}

struct Lead {
    belief: Belief,
    phases: watch::Sender<Phase>,
}

enum Woken {
    Order(Option<Order>),
    Due,
    Line(io::Result<Option<Vec<u8>>>),
}

impl Driver {
    /// One that has no connection yet, and the leaderships that it will hand out.
    fn new(
        socket: PathBuf,
        election: &ElectionName,
        label: Label,
        data: String,
    ) -> (Self, mpsc::UnboundedReceiver<AgentLeadership>) {
        let (elected, taken) = mpsc::unbounded_channel();
        let (me, orders) = mpsc::unbounded_channel();
        let waits = Status::Waiting { why: Why::NotLooked, leader: None, standing: None, trouble: None };
        let driver = Self {
            socket,
            election: election.as_str().to_owned(),
            label,
            data,
            status: watch::Sender::new(waits),
            trouble: watch::Sender::new(None),
            elected,
            orders,
            me,
            lead: None,
            waits: Why::NotLooked,
            takes_part: true,
            leaves: false,
            has_looked: false,
            pause: Duration::ZERO,
            warned: None,
        };
        (driver, taken)
    }

    async fn run(mut self) {
        while let Some(channel) = self.connected().await {
            self.take_part(channel).await;
        }
    }

    /// A connection on which a hold was requested, as soon as there is one; `None` when the candidate leaves.
    async fn connected(&mut self) -> Option<Channel> {
        while !self.leaves {
            let asked = async {
                tokio::time::sleep(self.pause).await;
                ask(&self.socket, &self.election, &self.label, &self.data).await
            };
            let order = tokio::select! {
                biased;
                order = self.orders.recv() => order,
                asked = asked, if self.takes_part => {
                    self.pause = (self.pause * 2).clamp(PAUSE, PAUSE_MOST);
                    match asked {
                        Ok(channel) => return Some(channel),
                        Err(why) => self.note_trouble(why, false),
                    }
                    continue;
                }
            };
            // Without a connection nothing can fail.
            let _ = self.obey(order, None);
        }
        None
    }

    /// Takes part by this connection, until that has ended, and nothing works by what it has told.
    async fn take_part(&mut self, channel: Channel) {
        let (mut channel, begun) = (Some(channel), clock::now());
        loop {
            if self.lead.is_none() {
                match channel.take_if(|_| self.leaves || !self.takes_part) {
                    Some(channel) => return leave(channel),
                    None if channel.is_none() => return,
                    None => {}
                }
            }
            let due = self.lead.as_ref().and_then(|lead| lead.belief.deadline());
            let woken = tokio::select! {
                biased;
                order = self.orders.recv() => Woken::Order(order),
                line = next(&mut channel) => Woken::Line(line),
                () = sleep_until(due) => Woken::Due,
            };
            let done = match woken {
                Woken::Order(order) => self.obey(order, channel.as_ref()),
                Woken::Due => {
                    self.change_belief(|belief| belief.wake(clock::now()));
                    Ok(())
                }
                Woken::Line(line) => self.hear(line, channel.as_ref()),
            };
            if let Err(why) = done {
                if clock::now().since(begun) >= PAUSE_MOST {
                    (self.pause, self.warned) = (PAUSE, None);
                }
                self.disconnected(why, channel.take());
            }
        }
    }

    /// Does what the runner asks for.
    ///
    /// # Errors
    /// Why the connection must end.
    fn obey(&mut self, order: Option<Order>, channel: Option<&Channel>) -> Result<(), String> {
        match order {
            Some(Order::Stopped(token)) => {
                self.lead = None;
                self.wait_for(if channel.is_some() { self.waits.clone() } else { Why::Unreachable });
                // An agent that does not know it would renew what nobody works by.
                return channel.map_or(Ok(()), |channel| Self::give_back(TokenText(token), channel));
            }
            Some(Order::GiveUp(reason)) => self.change_belief(|belief| belief.give_up(reason, clock::now())),
            Some(Order::TakePart(takes_part)) => {
                self.takes_part = takes_part;
                // Until an agent says more, or that it abstains.
                if self.lead.is_none() {
                    self.wait_for(Why::Unreachable);
                }
            }
            Some(Order::Leave) | None => self.leaves = true,
        }
        Ok(())
    }

    /// Says that nothing works by this token.
    fn give_back(token: TokenText, channel: &Channel) -> Result<(), String> {
        let said = say(channel, &Said::Stopped { token });
        said.map_err(|error| format!("cannot be told that the work has stopped: {error}"))
    }

    /// Changes what is believed of the leadership, and tells the runner.
    fn change_belief(&mut self, change: impl FnOnce(&mut Belief)) {
        let Some(Lead { belief, phases }) = &mut self.lead else { return };
        change(belief);
        // Whatever was heard: the clock is right.
        belief.wake(clock::now());
        let phase = belief.phase();
        let status = match &phase {
            Phase::Draining { reason, .. } | Phase::Overdue { reason } => {
                Some(Status::Draining { token: belief.token(), reason: reason.clone() })
            }
            Phase::Ended { reason } => Some(Status::Ending { reason: reason.clone() }),
            _ => None,
        };
        phases.send_if_modified(|told| {
            let is_new = *told != phase;
            *told = phase;
            is_new
        });
        if let Some(status) = status {
            self.status.send_replace(status);
        }
    }

    /// Handles a line of the agent, and answers it.
    ///
    /// # Errors
    /// Why the connection must end, as what the agent does.
    fn hear(&mut self, line: io::Result<Option<Vec<u8>>>, channel: Option<&Channel>) -> Result<(), String> {
        let line = line.map_err(|error| format!("is away: {error}"))?.ok_or("is away: it has closed the connection")?;
        let channel = channel.ok_or("is away")?;
        let (heard, number) = match Heard::read(&line) {
            Ok(heard) => heard,
            Err(error) => {
                if let Some(token) = elected_token(&line) {
                    self.decline(token, channel)?;
                }
                return Err(format!("says what makes no sense: {error}"));
            }
        };
        match heard {
            Heard::Waiting(waiting) => self.waiting(waiting),
            Heard::Elected(elected) => self.begin(elected, channel)?,
            Heard::Extended { token, stop_ns, deadline_ns } => {
                self.of_token(token, |belief| belief.extended(point(stop_ns), point(deadline_ns)));
                self.decline(token, channel)?;
                if self.lead.as_ref().is_some_and(|lead| lead.belief.is_over(token.0)) {
                    // It would be renewed for as long as something of the work does not die.
                    return Err("extends a leadership that is over".to_owned());
                }
            }
            Heard::Draining { token, end, by_ns } => {
                let reason = reason(end);
                self.of_token(token, |belief| belief.drain(reason, point(by_ns)));
                self.decline(token, channel)?;
            }
            Heard::Lost { token, end } => {
                let reason = reason(end);
                self.of_token(token, |belief| belief.end(reason));
            }
            Heard::Refused { code, why } => {
                self.note_trouble(format!("the agent has refused: {why}"), !code.may_pass());
                return Err(if code == RefusalCode::Ending { "ends".to_owned() } else { format!("refuses: {why}") });
            }
            Heard::Agent { .. } | Heard::Other => {}
        }
        if let Some(n) = number
            && let Err(error) = say(channel, &Said::Read { n })
        {
            // What it has said before it hung up is heard all the same; one that misses the answer hangs up.
            debug!(%error, "the agent is not answered");
        }
        Ok(())
    }

    /// Gives back a leadership unless the runner has it: nothing works by it.
    fn decline(&self, token: TokenText, channel: &Channel) -> Result<(), String> {
        if self.lead.as_ref().is_some_and(|lead| lead.belief.token() == token.0) {
            return Ok(());
        }
        Self::give_back(token, channel)
    }

    fn of_token(&mut self, token: TokenText, change: impl FnOnce(&mut Belief)) {
        if self.lead.as_ref().is_some_and(|lead| lead.belief.token() == token.0) {
            self.change_belief(change);
        }
    }

    fn waiting(&mut self, waiting: WaitingFrame) {
        // Whatever a later version waits for: it has its store.
        let why = why(&waiting).unwrap_or(Why::Asking);
        let is_reached = !matches!(why, Why::NotLooked | Why::Unreachable);
        if is_reached {
            self.reached();
        } else if let Some(trouble) = waiting.trouble {
            self.note_trouble(format!("the store of the agent does not answer: {trouble}"), false);
        }
        // Another agent has not seen what this candidate has.
        let why = if why == Why::NotLooked && self.has_looked { Why::Unreachable } else { why };
        self.waits = why;
        if self.lead.is_none() {
            self.wait_for(self.waits.clone());
        }
    }

    /// The agent has its store, and this candidate takes part.
    fn reached(&mut self) {
        self.has_looked = true;
        self.trouble.send_if_modified(|trouble| trouble.take().is_some());
    }

    /// It leads. Whether the work can begin is for the runner to say, when it has taken the leadership.
    fn begin(&mut self, elected: ElectedFrame, channel: &Channel) -> Result<(), String> {
        self.reached();
        let ElectedFrame { token: TokenText(token), stop_ns, deadline_ns, lease_ms, grace_ms, .. } = elected;
        if self.lead.is_some() {
            // The agent tells no two: the one before is over. Something of its work does not end, and might not for long; this
            // candidate could lead meanwhile, and do nothing.
            self.change_belief(|belief| belief.end(EndReason::Expired));
            self.decline(TokenText(token), channel)?;
            return Err("has told of a leadership before the work of the last had stopped".to_owned());
        }
        let usual = TimingSettings::for_program(Duration::from_millis(lease_ms));
        let timing = Timing::new(TimingSettings { grace: Duration::from_millis(grace_ms), ..usual });
        let file = channel.stream().as_fd().try_clone_to_owned();
        let (timing, connection) = match (timing, file) {
            (Ok(timing), Ok(connection)) => (timing, connection),
            (timing, file) => {
                self.decline(TokenText(token), channel)?;
                let refused = timing.err().map(|error| error.to_string());
                let why = refused.or(file.err().map(|error| error.to_string())).unwrap_or_default();
                return Err(format!("has told of a leadership that cannot begin: {why}"));
            }
        };
        let belief = Belief::elected(token, timing, point(stop_ns), point(deadline_ns));
        let (phases, told) = watch::channel(belief.phase());
        self.lead = Some(Lead { belief, phases });
        // When it has ended, until the agent says more.
        self.waits = Why::CoolingDown;
        self.status.send_replace(Status::Leading { token, trouble: None });
        // It may be over by now.
        self.change_belief(|_| ());
        // If the runner takes none any more, it is dropped here, and so given back.
        let _ = self.elected.send(AgentLeadership { token, phases: told, connection, orders: self.me.clone() });
        Ok(())
    }

    fn disconnected(&mut self, why: String, channel: Option<Channel>) {
        if let Some(channel) = channel {
            close(&channel);
        }
        let goes_on = match self.lead.as_ref().map(|lead| lead.belief.phase()) {
            Some(Phase::Leading { .. } | Phase::Draining { .. }) => "; the leadership lasts until its deadline",
            _ => "",
        };
        if !self.has_looked {
            self.note_trouble(format!("the agent {why}"), false);
        } else if self.warned.as_ref() != Some(&why) {
            warn!("the agent {why}{goes_on}; it is asked again");
            self.warned = Some(why);
        }
        if self.lead.is_none() {
            self.wait_for(Why::Unreachable);
        }
    }

    /// What is wrong, if it was never right.
    fn note_trouble(&self, why: String, is_lasting: bool) {
        if self.has_looked {
            return;
        }
        self.trouble.send_modify(|trouble| {
            // Why it refused is to be known also after the connection has ended.
            if is_lasting || trouble.as_ref().is_none_or(|trouble| !trouble.is_lasting) {
                *trouble = Some(AgentTrouble { why, is_lasting });
            }
        });
    }

    fn wait_for(&self, why: Why) {
        let why = if self.takes_part { why } else { Why::Abstains };
        self.status.send_if_modified(|status| {
            if matches!(status, Status::Waiting { why: before, .. } if *before == why) {
                return false;
            }
            *status = Status::Waiting { why, leader: None, standing: None, trouble: None };
            true
        });
    }
}

/// A point on the boot clock as this process counts it.
fn point(boot_nanos: u64) -> Instant {
    Instant::from_nanos(boot_nanos.saturating_sub(clock::to_boot_nanos(Instant::ZERO)))
}

/// What the candidate waits for, if this version knows the word.
fn why(waiting: &WaitingFrame) -> Option<Why> {
    let label = |text: &String| Label::new(text.clone()).ok();
    Some(match waiting.state? {
        WaitState::NotLooked => Why::NotLooked,
        WaitState::Unreachable => Why::Unreachable,
        WaitState::Held => {
            let leader = waiting.leader.as_ref()?;
            Why::Held { by: label(&leader.name)?, token: leader.token.0 }
        }
        WaitState::Paused => Why::Paused,
        WaitState::Reserved => Why::Reserved { successor: label(waiting.successor.as_ref()?)? },
        WaitState::CoolingDown => Why::CoolingDown,
        WaitState::RecordLost => Why::RecordLost,
        WaitState::StoreRegressed => Why::StoreRegressed,
        WaitState::Abstains => Why::Abstains,
        WaitState::Asking => Why::Asking,
        WaitState::Other => return None,
    })
}

/// Why a leadership ends, as the runner says it.
fn reason(end: EndFrame) -> EndReason {
    match end.known() {
        // It is the agent that was asked to stop, and not this process.
        Some(EndReason::Withdrawn) => {
            info!("the agent ends, and has all work stopped");
            EndReason::Resigned
        }
        Some(reason) => reason,
        None => EndReason::Expired,
    }
}

#[cfg(test)]
mod tests;
