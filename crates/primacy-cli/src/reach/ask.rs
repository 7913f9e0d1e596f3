//! Reaches the store: tries again for a bounded time, gives every call a deadline, and says how old an answer is.

use std::sync::Arc;
use std::time::Duration;

use primacy::store::{
    Admin, ForgetOutcome, Hints, Holder, LeaderSupport, MemberEvent, Members, NoHints, Order, OrderOutcome, Probe,
    Request, Snapshot, Store, StoreError, Term,
};
use primacy::{CandidateId, ElectionName, Instant, Label, Token, clock};

use crate::cli::Common;
use crate::failure::Failure;
use crate::foreign_text::shorten;
use crate::output::span::span;

/// Even someone who does not want to wait gives one call this long.
const CALL_LEAST: Duration = Duration::from_millis(500);
/// A call that takes longer is made anew on another connection.
const CALL_MOST: Duration = Duration::from_secs(5);
/// Opening takes several round trips: on a long way more than a call may take.
const OPENING_MOST: Duration = Duration::from_secs(20);
/// How often opening is measured.
const OPENINGS: usize = 3;
const BACK_OFF_FIRST: Duration = Duration::from_millis(20);
const BACK_OFF_MOST: Duration = Duration::from_secs(1);

/// An answer, and when it was asked for: the state is at least as new as that.
#[derive(Clone, Debug)]
pub(crate) struct Answer<T> {
    /// What the store said.
    pub(crate) value: T,
    asked_at: Instant,
}

impl<T> Answer<T> {
    /// How old it may be by now.
    pub(crate) fn age(&self) -> Duration {
        clock::now().since(self.asked_at)
    }
}

impl Answer<Option<Snapshot>> {
    /// The election as it would look now if nothing had happened since: every age has grown, so a lease that has run
    /// out meanwhile is over.
    pub(crate) fn now(&self) -> Option<Snapshot> {
        self.value.clone().map(|snapshot| aged(snapshot, self.age()))
    }
}

impl Answer<Option<Members>> {
    /// The members as they would look now.
    pub(crate) fn now(&self) -> Option<Members> {
        let by = self.age();
        self.value.clone().map(|mut members| {
            for member in &mut members.members {
                member.age = member.age.map(|age| age.saturating_add(by));
            }
            members
        })
    }
}

/// The snapshot as it would look `by` later, if nothing happened.
pub(crate) fn aged(mut snapshot: Snapshot, by: Duration) -> Snapshot {
    let grow = |age: &mut Option<Duration>| *age = age.map(|age| age.saturating_add(by));
    grow(&mut snapshot.age);
    grow(&mut snapshot.held_for);
    for waiting in &mut snapshot.candidates {
        grow(&mut waiting.age);
    }
    snapshot
}

/// What became of an order, as far as can be known.
#[derive(Clone, Debug)]
pub(crate) struct OrderResult {
    /// The store's answer to the last attempt.
    pub(crate) ordered: OrderOutcome,
    /// Whether an earlier attempt brought no answer, and may have been what changed the row.
    pub(crate) doubtful: bool,
}

/// One election in one store, and the patience to reach it.
pub(crate) struct Reach {
    store: Arc<dyn Store>,
    election: ElectionName,
    wait: Duration,
    /// Whether even what someone has to repair first is waited for.
    waits_for_repair: bool,
    admin: Option<Box<dyn Admin>>,
    /// Nothing is asked, or waited for, any longer.
    end: Option<Instant>,
}

impl Reach {
    /// Nothing is opened yet.
    pub(crate) fn new(store: Arc<dyn Store>, election: ElectionName, wait: Option<Duration>) -> Self {
        // Who says how long to try means a store that is not set up yet, too.
        let waits_for_repair = wait.is_some();
        Self { store, election, wait: wait.unwrap_or(Common::DEFAULT_WAIT), waits_for_repair, admin: None, end: None }
    }

    /// The same, and it tries for this long. What someone has to repair first is not waited for.
    #[must_use]
    pub(crate) fn within(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// From now on another election is asked about, over the same connection.
    pub(crate) fn turn_to(&mut self, election: &ElectionName) {
        if self.election != *election {
            self.election = election.clone();
        }
    }

    /// All that is asked from now on ends by then: what has not begun by then is not done.
    pub(crate) fn end_at(&mut self, end: Instant) {
        self.end = Some(end);
    }

    /// How long something may take that may take this long by itself.
    fn bounded(&self, bound: Duration) -> Result<Duration, StoreError> {
        let left = self.end.map_or(bound, |end| end.since(clock::now()).min(bound));
        let over = || StoreError::Unreachable("the store has not answered in time".to_owned());
        if left.is_zero() { Err(over()) } else { Ok(left) }
    }

    fn patience(&self) -> Patience {
        let left = self.end.map_or(self.wait, |end| end.since(clock::now()).min(self.wait));
        Patience::new(left, self.waits_for_repair)
    }

    /// Which election.
    pub(crate) const fn election(&self) -> &ElectionName {
        &self.election
    }

    /// Where the store is, for people.
    pub(crate) fn location(&self) -> String {
        shorten(&self.store.location(), 400)
    }

    /// The election as it is.
    pub(crate) async fn snapshot(&mut self) -> Result<Answer<Option<Snapshot>>, Failure> {
        let election = self.election.clone();
        self.ask(async |admin: &mut dyn Admin| admin.snapshot(&election).await).await
    }

    /// The election as it is, or the error of the only attempt.
    pub(crate) async fn look(&mut self) -> Result<Answer<Option<Snapshot>>, StoreError> {
        let election = self.election.clone();
        self.attempt(Bounds::ALONE, &mut async |admin: &mut dyn Admin| admin.snapshot(&election).await).await
    }

    /// All elections.
    pub(crate) async fn elections(&mut self) -> Result<Answer<Vec<Snapshot>>, Failure> {
        self.ask(async |admin: &mut dyn Admin| admin.elections().await).await
    }

    /// The last leaderships, the newest first.
    pub(crate) async fn history(&mut self, limit: u32) -> Result<Answer<Vec<Term>>, Failure> {
        let election = self.election.clone();
        self.ask(async |admin: &mut dyn Admin| admin.history(&election, limit).await).await
    }

    /// Who takes part by the `registers` protocol.
    pub(crate) async fn members(&mut self) -> Result<Answer<Option<Members>>, Failure> {
        let election = self.election.clone();
        self.ask(async |admin: &mut dyn Admin| admin.members(&election).await).await
    }

    /// The same for an answer that can be done without: none if the only attempt fails.
    pub(crate) async fn members_if_told(&mut self) -> Option<Members> {
        // A refusal would cost the connection.
        if !self.store.keeps_registers() {
            return None;
        }
        let election = self.election.clone();
        let answer =
            self.attempt(Bounds::ALONE, &mut async |admin: &mut dyn Admin| admin.members(&election).await).await;
        answer.inspect_err(|error| tracing::debug!(%error, "the members are not known")).ok()?.now()
    }

    /// Which voters support the leader: none if the store has no voters, nobody leads, or the only attempt fails.
    pub(crate) async fn support_if_told(&mut self) -> Option<LeaderSupport> {
        let election = self.election.clone();
        let answer =
            self.attempt(Bounds::ALONE, &mut async |admin: &mut dyn Admin| admin.support(&election).await).await;
        answer.inspect_err(|error| tracing::debug!(%error, "who supports the leader is not known")).ok()?.value
    }

    /// What has happened among the members, the newest first.
    pub(crate) async fn events(&mut self, limit: u32) -> Result<Answer<Vec<MemberEvent>>, Failure> {
        let election = self.election.clone();
        self.ask(async |admin: &mut dyn Admin| admin.events(&election, limit).await).await
    }

    /// The same, or the error of the only attempt.
    pub(crate) async fn look_at_events(&mut self, limit: u32) -> Result<Vec<MemberEvent>, StoreError> {
        let election = self.election.clone();
        let events = &mut async |admin: &mut dyn Admin| admin.events(&election, limit).await;
        Ok(self.attempt(Bounds::ALONE, events).await?.value)
    }

    /// What the store is and guarantees.
    pub(crate) async fn probe(&mut self) -> Result<Answer<Probe>, Failure> {
        self.ask(async |admin: &mut dyn Admin| admin.probe().await).await
    }

    /// Hints of changes, or none if the store cannot give any now: polling stays.
    pub(crate) async fn hints(&self) -> Box<dyn Hints> {
        match tokio::time::timeout(CALL_LEAST, self.store.hints(&self.election)).await {
            Ok(Ok(hints)) => hints,
            Ok(Err(_)) | Err(_) => Box::new(NoHints),
        }
    }

    /// Gives an order. After an attempt whose outcome is unknown, the next one insists on the token that was last seen,
    /// so that one order never deposes two leaders (rule R7).
    pub(crate) async fn order(&mut self, mut order: Order, seen: Token) -> Result<OrderResult, Failure> {
        let election = self.election.clone();
        let mut patience = self.patience();
        let mut doubtful = false;
        loop {
            let wanted = order.clone();
            match self
                .attempt(patience.bounds(), &mut async |admin: &mut dyn Admin| {
                    admin.order(&election, wanted.clone()).await
                })
                .await
            {
                Ok(answer) => return Ok(OrderResult { ordered: answer.value, doubtful }),
                Err(error) => {
                    if matches!(error, StoreError::Unknown(_)) {
                        doubtful = true;
                        order.token = order.token.or(Some(seen));
                    }
                    if !patience.may_retry(&error).await {
                        let failure = self.unreached(&error);
                        return Err(match doubtful {
                            true => failure.with("it is unknown whether the order was written: see primacy status"),
                            false => failure,
                        });
                    }
                }
            }
        }
    }

    /// Forgets the election. Twice is once.
    pub(crate) async fn forget(&mut self) -> Result<ForgetOutcome, Failure> {
        let election = self.election.clone();
        Ok(self.ask(async |admin: &mut dyn Admin| admin.forget(&election).await).await?.value)
    }

    /// Asks until there is an answer or the patience is used up.
    async fn ask<T>(
        &mut self,
        mut question: impl AsyncFnMut(&mut dyn Admin) -> Result<T, StoreError>,
    ) -> Result<Answer<T>, Failure> {
        let mut patience = self.patience();
        loop {
            match self.attempt(patience.bounds(), &mut question).await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    tracing::debug!(%error, "the store did not answer");
                    if !patience.may_retry(&error).await {
                        return Err(self.unreached(&error));
                    }
                }
            }
        }
    }

    /// One attempt, bounded. A connection that failed or is late is not used again (rule R8).
    async fn attempt<T>(
        &mut self,
        bounds: Bounds,
        question: &mut impl AsyncFnMut(&mut dyn Admin) -> Result<T, StoreError>,
    ) -> Result<Answer<T>, StoreError> {
        let open = self.admin.take();
        let late = |bound: Duration| StoreError::Unknown(format!("nothing came within {}", span(bound)));
        let mut admin = match open {
            Some(admin) => admin,
            None => {
                let opening = self.bounded(bounds.opening)?;
                let opened = tokio::time::timeout(opening, self.store.admin()).await;
                // Nothing has been asked yet.
                let late = |_| StoreError::Unreachable(format!("no connection within {}", span(opening)));
                opened.map_err(late)??
            }
        };
        let (asked_at, call) = (clock::now(), self.bounded(bounds.call)?);
        let value = tokio::time::timeout(call, question(admin.as_mut())).await;
        let value = value.map_err(|_| late(call))??;
        self.admin = Some(admin);
        Ok(Answer { value, asked_at })
    }

    /// How long it takes to open a candidate's connection and to look once, the longest of some times; `None` where this
    /// user's connections cannot be a candidate's. Nothing is written.
    pub(crate) async fn opening(&self) -> Option<Duration> {
        let label = Label::new("doctor").ok()?;
        let me = Holder { id: CandidateId::from_bits(u128::from(std::process::id())), label, data: String::new() };
        let mut longest = Duration::ZERO;
        for _ in 0..OPENINGS {
            let start = clock::now();
            let opened = tokio::time::timeout(OPENING_MOST, async {
                let mut session = self.store.session(&self.election, &me).await?;
                session.step(Request::Look { announce: None }).await
            });
            match opened.await {
                Ok(Ok(_)) => longest = longest.max(clock::now().since(start)),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "opening a candidate's connection is not measured");
                    return None;
                }
                Err(_) => return Some(OPENING_MOST),
            }
        }
        Some(longest)
    }

    fn unreached(&self, error: &StoreError) -> Failure {
        let advice = match error {
            StoreError::Unusable(_) => "nothing was changed".to_owned(),
            _ => format!("tried for {}; check --store, or try longer with --wait", span(self.wait)),
        };
        // A store names itself in most of its errors, and each of its hosts.
        let (location, error) = (self.location(), error.to_string());
        let path = location.split_once(':').map_or(location.as_str(), |(_, path)| path);
        let is_named = error.contains(path) || error.contains("://");
        let place = if is_named { String::new() } else { format!("{location}: ") };
        Failure::unavailable(format!("{place}{error} ({advice})"))
    }
}

/// How long one attempt may take.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// To open a connection, if none is open.
    opening: Duration,
    /// To be answered over it.
    call: Duration,
}

impl Bounds {
    /// Where only one attempt is made.
    const ALONE: Self = Self { opening: OPENING_MOST, call: CALL_MOST };
}

/// How long to go on trying, and how long until the next attempt.
struct Patience {
    until: Instant,
    waits_for_repair: bool,
    back_off: Duration,
}

impl Patience {
    fn new(wait: Duration, waits_for_repair: bool) -> Self {
        Self { until: clock::now() + wait, waits_for_repair, back_off: BACK_OFF_FIRST }
    }

    fn left(&self) -> Duration {
        self.until.since(clock::now())
    }

    /// How long the next attempt may take.
    fn bounds(&self) -> Bounds {
        let most = |most| self.left().clamp(CALL_LEAST, most);
        Bounds { opening: most(OPENING_MOST), call: most(CALL_MOST) }
    }

    /// Whether to try once more, after the pause that belongs before it. What someone has to repair first is only
    /// tried again if that was asked for.
    async fn may_retry(&mut self, error: &StoreError) -> bool {
        let hopeless = matches!(error, StoreError::Unusable(_)) && !self.waits_for_repair;
        if hopeless || self.left().is_zero() {
            return false;
        }
        tokio::time::sleep(self.back_off.min(self.left())).await;
        self.back_off = (self.back_off * 2).min(BACK_OFF_MOST);
        true
    }
}
