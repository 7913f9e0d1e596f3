//! A complete search of what two services can do that run the published statements.
//!
//! A tick is a second. Each service that runs polls once in it, or twice, before time goes on; the time-out of 20 polls is
//! [`TIMEOUT`] here. A call is carried out and answered at once, unless the adversary spends a slow one.

use std::fmt;

use primacy_sim::search::Searched;
use stateright::{Model, Property};

use crate::mysql::{Row, ServiceId, attempt, force, is_leader};

/// The promise.
pub const ONE: &str = "of the services that run, one at most takes itself for the leader";
/// What the next poll does not mend.
pub const AGREED: &str = "after a poll of each, one at most takes itself for the leader";
/// Termination: after a leader is lost.
pub const SHORT: &str = "while somebody polls, nobody leads for a time-out and two polls at most";
/// A leader is not to stop for nothing.
pub const KNOWS: &str = "whom the row names takes itself for the leader after its poll";

const LEADS: &str = "somebody leads";
const FOLLOWS: &str = "somebody leads after another";

/// Seconds without a poll, after which another may lead.
pub const TIMEOUT: i64 = 3;

/// By what a service is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// By its host: started again, it is the same service.
    Host,
    /// By host and process: started again, it is another.
    Process,
}

/// By what a service knows that it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tells {
    /// By asking who leads, after each poll.
    Select,
    /// By the count of changed rows, as an answer below the post proposes.
    Affected,
}

/// What may happen, how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Services that are stopped, for as long as it likes, and go on.
    pub stops: u8,
    /// Polls that take as long as it likes, on the way there and on the way back.
    pub slow: u8,
    /// Services that die. What they have sent may still arrive.
    pub crashes: u8,
    /// Services that are started again, because they died or are stopped and do not answer.
    pub restarts: u8,
    /// Steps of the server's clock, by more than a time-out ahead or back.
    pub clock_steps: u8,
    /// Operators who force a leader.
    pub forces: u8,
    /// Operators who delete the row.
    pub deletions: u8,
}

/// One search.
#[derive(Clone, Debug)]
pub struct Search {
    /// For the table.
    pub name: &'static str,
    /// By what services are named.
    pub identity: Identity,
    /// By what they know that they lead.
    pub tells: Tells,
    /// How often a service polls in a second.
    pub polls: u8,
    /// How many seconds.
    pub horizon: i64,
    /// What may happen.
    pub budget: Budget,
    /// The one property that is looked at; all of those that must hold, if none is named.
    pub only: Option<&'static str>,
}

impl Search {
    /// Two services with fresh names, and nothing happens to them.
    pub fn new(name: &'static str, budget: Budget) -> Self {
        let (identity, tells) = (Identity::Process, Tells::Select);
        Self { name, identity, tells, polls: 1, horizon: TIMEOUT * 2 + 4, budget, only: None }
    }
}

/// A poll under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Poll {
    /// To be carried out.
    Asked,
    /// Carried out; whether the answer is that it leads.
    Answered(bool),
}

/// One process of a service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    id: ServiceId,
    lives: bool,
    stopped: bool,
    /// The flag, "frequently updated": what it acts by.
    leads: bool,
    /// How often it has polled in this second.
    polled: u8,
    poll: Option<Poll>,
}

impl Service {
    fn new(id: ServiceId) -> Self {
        Self { id, lives: true, stopped: false, leads: false, polled: 0, poll: None }
    }

    fn runs(&self) -> bool {
        self.lives && !self.stopped
    }

    /// What it acts by, while it acts.
    fn acts(&self) -> bool {
        self.runs() && self.leads
    }
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// Seconds of real time.
    second: i64,
    /// How far the server's clock is ahead.
    ahead: i64,
    row: Option<Row>,
    services: Vec<Service>,
    /// Polls of processes that died, still under way.
    late: Vec<ServiceId>,
    budget: Budget,
    /// Seconds for which nobody has led while somebody polled.
    vacant: i64,
    /// Who polled last was told that it does not lead, although the row names it.
    doubts: bool,
    led: Option<ServiceId>,
    followed: bool,
}

/// What happens next. Processes are named by number, in the order of their starts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A second passes.
    Tick,
    /// A process polls, and is answered.
    Polls(usize),
    /// It sends a poll that is slow.
    PollsSlowly(usize),
    /// Its slow poll is carried out.
    Lands(usize),
    /// It is answered.
    IsAnswered(usize),
    /// The poll of a process that died is carried out.
    LandsLate(usize),
    /// It is stopped.
    Stops(usize),
    /// It goes on.
    GoesOn(usize),
    /// It dies.
    Dies(usize),
    /// Its host starts it again.
    IsStartedAgain(usize),
    /// The server's clock steps by this many seconds.
    ClockSteps(i64),
    /// An operator forces it to lead.
    IsForced(usize),
    /// An operator deletes the row.
    RowIsDeleted,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (process, does) = match self {
            Self::Tick => return f.write_str("a second passes"),
            Self::RowIsDeleted => return f.write_str("an operator deletes the row"),
            Self::ClockSteps(by) => return write!(f, "the server's clock steps by {by} s"),
            Self::LandsLate(_) => return f.write_str("the poll of a dead process is carried out"),
            Self::Polls(process) => (process, "polls"),
            Self::PollsSlowly(process) => (process, "sends a poll that is slow"),
            Self::Lands(process) => (process, "has its slow poll carried out"),
            Self::IsAnswered(process) => (process, "is answered"),
            Self::Stops(process) => (process, "is stopped"),
            Self::GoesOn(process) => (process, "goes on"),
            Self::Dies(process) => (process, "dies"),
            Self::IsStartedAgain(process) => (process, "is started again"),
            Self::IsForced(process) => (process, "is made the leader by an operator"),
        };
        write!(f, "process {} {does}", process + 1)
    }
}

impl World {
    fn now(&self) -> i64 {
        self.second + self.ahead
    }

    /// Carries out the statement, and gives what it tells of who leads.
    fn carry_out(&mut self, id: ServiceId, tells: Tells) -> bool {
        let (row, affected) = attempt(self.row, id, self.now(), TIMEOUT);
        self.row = Some(row);
        match tells {
            Tells::Select => is_leader(self.row, id),
            Tells::Affected => affected > 0,
        }
    }

    fn tell(&mut self, process: usize, leads: bool) {
        let service = &mut self.services[process];
        (service.leads, service.poll) = (leads, None);
        service.polled += 1;
        let id = service.id;
        self.doubts = is_leader(self.row, id) && !leads;
        if leads {
            self.followed |= self.led.is_some_and(|led| led != id);
            self.led = Some(id);
        }
    }

    fn leaders(&self) -> impl Iterator<Item = &Service> {
        self.services.iter().filter(|service| service.acts())
    }

    /// Whether all that run have polled in this second, and nothing else is under way.
    fn is_calm(&self) -> bool {
        self.services
            .iter()
            .filter(|service| service.runs())
            .all(|service| service.polled > 0 && service.poll.is_none())
    }

    fn take(&mut self, search: &Search, step: Step) {
        match step {
            Step::Tick => {
                let nobody = self.leaders().next().is_none() && self.services.iter().any(|service| service.polled > 0);
                self.vacant = if nobody { self.vacant + 1 } else { 0 };
                self.second += 1;
                self.services.iter_mut().for_each(|service| service.polled = 0);
            }
            Step::Polls(process) => {
                let leads = self.carry_out(self.services[process].id, search.tells);
                self.tell(process, leads);
            }
            Step::PollsSlowly(process) => {
                self.budget.slow -= 1;
                self.services[process].poll = Some(Poll::Asked);
            }
            Step::Lands(process) => {
                let leads = self.carry_out(self.services[process].id, search.tells);
                self.services[process].poll = Some(Poll::Answered(leads));
            }
            Step::IsAnswered(process) => {
                if let Some(Poll::Answered(leads)) = self.services[process].poll {
                    self.tell(process, leads);
                }
            }
            Step::LandsLate(at) => {
                let id = self.late.remove(at);
                self.carry_out(id, search.tells);
            }
            Step::Stops(process) => {
                self.budget.stops -= 1;
                self.services[process].stopped = true;
            }
            Step::GoesOn(process) => self.services[process].stopped = false,
            Step::Dies(process) => {
                self.budget.crashes -= 1;
                let service = &mut self.services[process];
                service.lives = false;
                service.leads = false;
                if service.poll.take() == Some(Poll::Asked) {
                    self.late.push(service.id);
                }
            }
            Step::IsStartedAgain(process) => {
                self.budget.restarts -= 1;
                let id = match search.identity {
                    Identity::Host => self.services[process].id,
                    Identity::Process => ServiceId(self.services.len() as u8),
                };
                self.services.push(Service::new(id));
            }
            Step::ClockSteps(by) => {
                self.budget.clock_steps -= 1;
                self.ahead += by;
            }
            Step::IsForced(process) => {
                self.budget.forces -= 1;
                self.row = Some(force(self.services[process].id, self.now()));
            }
            Step::RowIsDeleted => {
                self.budget.deletions -= 1;
                self.row = None;
            }
        }
    }
}

impl Model for Search {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            second: 100,
            ahead: 0,
            row: None,
            services: (0..2).map(ServiceId).map(Service::new).collect(),
            late: Vec::new(),
            budget: self.budget,
            vacant: 0,
            doubts: false,
            led: None,
            followed: false,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let budget = &world.budget;
        steps.extend((0..world.late.len()).map(Step::LandsLate));
        for (process, service) in world.services.iter().enumerate() {
            if service.lives && budget.crashes > 0 {
                steps.push(Step::Dies(process));
            }
            if budget.restarts > 0 && !service.runs() {
                steps.push(Step::IsStartedAgain(process));
            }
            if service.lives && service.poll == Some(Poll::Asked) {
                steps.push(Step::Lands(process));
            }
            if service.lives && service.stopped {
                steps.push(Step::GoesOn(process));
            }
            if !service.runs() {
                continue;
            }
            match service.poll {
                None if service.polled < self.polls => {
                    steps.push(Step::Polls(process));
                    if budget.slow > 0 {
                        steps.push(Step::PollsSlowly(process));
                    }
                }
                Some(Poll::Answered(_)) => steps.push(Step::IsAnswered(process)),
                None | Some(Poll::Asked) => {}
            }
            if budget.stops > 0 {
                steps.push(Step::Stops(process));
            }
            if budget.forces > 0 {
                steps.push(Step::IsForced(process));
            }
        }
        if budget.deletions > 0 && world.row.is_some() {
            steps.push(Step::RowIsDeleted);
        }
        if budget.clock_steps > 0 {
            steps.extend([TIMEOUT + 1, -TIMEOUT - 1].map(Step::ClockSteps));
        }
        // A slow poll keeps nobody else from going on.
        let is_due = |service: &Service| service.runs() && service.poll.is_none() && service.polled < self.polls;
        if world.second < 100 + self.horizon && !world.services.iter().any(is_due) {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        next.take(self, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all: Vec<Property<Self>> = vec![
            Property::always(ONE, |_, world: &World| world.leaders().count() <= 1),
            Property::always(AGREED, |_, world: &World| !world.is_calm() || world.leaders().count() <= 1),
            Property::always(SHORT, |_, world: &World| world.vacant <= TIMEOUT + 2),
            Property::always(KNOWS, |_, world: &World| !world.doubts),
        ];
        match self.only {
            Some(only) => all.retain(|property| property.name == only),
            None => all.extend([
                Property::sometimes(LEADS, |_, world: &World| world.leaders().next().is_some()),
                Property::sometimes(FOLLOWS, |_, world: &World| world.followed),
            ]),
        }
        all
    }
}

impl Searched for Search {
    fn name(&self) -> &'static str {
        self.name
    }
}
