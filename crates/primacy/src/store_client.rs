//! A candidate's client of the store: its connection with the call under way, the hints, and its group.

use std::sync::Arc;
use std::task::{self, Waker};
use std::time::Duration;

use primacy_core::lease::{CallId, Holder};
use primacy_core::registers::{Candidacy, FromGroup, GroupCandidate, ToGroup};
use tokio::sync::{mpsc, watch};
use tracing::warn;

use crate::clock;
use crate::group::{self, CandidateMessage, GroupMessage, GroupStatus};
use crate::opener::{CallTime, SharedOpener};
use crate::store::{BoxFuture, Hints, Reply, Request, Session, Store, StoreError};
use crate::{CandidateId, ElectionName, Instant};

/// The candidate's client of the store: one connection, one call at a time, and the hints.
pub(crate) struct StoreClient {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) election: ElectionName,
    pub(crate) connection: Connection,
    pub(crate) hints: HintSubscription,
    pub(crate) group: Option<GroupHandle>,
    me: Holder,
}

/// A candidate's handle of its group, in the `registers` protocol: the channels between their threads.
pub(crate) struct GroupHandle {
    group: Arc<group::Handle>,
    id: CandidateId,
    inbox: mpsc::UnboundedReceiver<GroupMessage>,
}

impl GroupHandle {
    pub(crate) fn new(group: Arc<group::Handle>, candidacy: Candidacy) -> Self {
        // The group alone has the other end, so that its end is heard here.
        let (outbox, inbox) = mpsc::unbounded_channel();
        let id = candidacy.id;
        group.tell(CandidateMessage { what: ToGroup::Enter(candidacy), outbox: Some(outbox) });
        Self { group, id, inbox }
    }

    pub(crate) fn tell(&self, what: ToGroup) {
        self.group.tell(CandidateMessage { what, outbox: None });
    }

    /// What its process knows of taking part.
    pub(crate) fn group_status(&self) -> watch::Receiver<GroupStatus> {
        self.group.status()
    }

    pub(crate) fn group(&self) -> Arc<group::Handle> {
        Arc::clone(&self.group)
    }

    fn turn(&self, call: CallId) -> Turn {
        Turn { group: self.group(), id: self.id, call }
    }
}

/// Until nothing of a request for the lease is under way: then the next candidate in reserve of the process may ask.
struct Turn {
    group: Arc<group::Handle>,
    id: CandidateId,
    call: CallId,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let what = ToGroup::EndTurn { id: self.id, call: self.call };
        self.group.tell(CandidateMessage { what, outbox: None });
    }
}

impl Drop for GroupHandle {
    fn drop(&mut self) {
        self.tell(ToGroup::Leave { id: self.id });
    }
}

/// The connection and the call that it carries.
#[derive(Default)]
pub(crate) struct Connection {
    /// The connection while no call is under way.
    session: Option<Box<dyn Session>>,
    call: Option<Call>,
    opener: SharedOpener<Box<dyn Session>>,
    /// Until when a connection that is being opened is of use.
    wanted_until: Instant,
}

struct Call {
    id: CallId,
    answer: BoxFuture<'static, Answer>,
}

/// What a call brings back: its connection, if that can be used again, and the store's answer.
type Answer = (Option<Box<dyn Session>>, Result<Reply, StoreError>);

/// The candidate's subscription to hints, and how far it has come.
pub(crate) enum HintSubscription {
    Deaf,
    Opening(BoxFuture<'static, Box<dyn Hints>>),
    Open(Box<dyn Hints>),
}

impl StoreClient {
    pub(crate) fn new(store: Arc<dyn Store>, election: ElectionName, me: Holder, group: Option<GroupHandle>) -> Self {
        Self { store, election, connection: Connection::default(), hints: HintSubscription::Deaf, group, me }
    }

    /// Sends a call to the store.
    pub(crate) fn send(&mut self, id: CallId, request: Request, time: CallTime) {
        self.hints.drop_hints();
        let (store, election, me) = (Arc::clone(&self.store), self.election.clone(), self.me.clone());
        let session = self.connection.session.take();
        let asks = matches!(request, Request::Acquire { .. });
        let turn = self.group.as_ref().filter(|_| asks).map(|handle| Arc::new(handle.turn(id)));
        let opener = Arc::clone(&self.connection.opener);
        self.connection.wanted_until = time.asked_at + time.opening * 2;
        let answer = Box::pin(async move {
            let mut opener = opener.lock().await;
            let mut session = match session {
                Some(session) => session,
                None => {
                    let place = store.location();
                    let open = || {
                        // An opening that goes on keeps the turn.
                        let turn = turn.clone();
                        async move {
                            let opened = store.session(&election, &me).await;
                            drop(turn);
                            opened
                        }
                    };
                    match opener.connection(time, &place, open).await {
                        Ok(session) => session,
                        Err(error) => return (None, Err(error)),
                    }
                }
            };
            let result = session.step(request).await;
            if result.is_ok() {
                opener.answered();
            }
            // A connection that has failed once is not used again.
            (result.is_ok().then_some(session), result)
        });
        self.connection.call = Some(Call { id, answer });
    }

    /// Waits until nothing of the candidate is left in the registers, for a while: the process may end next, and what is
    /// left then is there until it is evicted.
    pub(crate) async fn leave_group(&mut self, patience: Duration) {
        let Some(mut group) = self.group.take() else { return };
        let left = async {
            while let Some(said) = group.inbox.recv().await {
                if said.what == FromGroup::Left {
                    break;
                }
            }
        };
        // Evicted it will be all the same.
        let _ = tokio::time::timeout(patience, left).await;
    }

    /// R8: dropping the call drops its connection with it. One that is still being opened carries nothing yet: it is for the
    /// next call. Returns whether there is one.
    pub(crate) fn hang_up(&mut self) -> bool {
        (self.connection.session, self.connection.call) = (None, None);
        self.connection.opener.try_lock().is_ok_and(|opener| opener.is_opening())
    }

    /// Starts to listen for hints once a call was answered, since before the store may not exist; and stops when it need
    /// not be told, so that a release wakes a few and not all (HAZARDS 55).
    pub(crate) fn listen(&mut self, candidate: &GroupCandidate) {
        if !candidate.listens() {
            self.hints = HintSubscription::Deaf;
            self.connection.session = None;
            if self.connection.call.is_none() && clock::now() > self.connection.wanted_until {
                self.connection.close_unused();
            }
            return;
        }
        // Who stands in line was placed there by an answer to its group. Its own first look may be long in coming, and
        // what it is to be told of must not wait for that.
        let in_line = self.group.is_some() && !candidate.is_in_reserve();
        if !matches!(self.hints, HintSubscription::Deaf) || (self.connection.session.is_none() && !in_line) {
            return;
        }
        let (store, election) = (Arc::clone(&self.store), self.election.clone());
        self.hints = HintSubscription::Opening(Box::pin(async move {
            match store.hints(&election).await {
                Ok(hints) => hints,
                Err(error) => {
                    warn!(%error, "no notifications of changes; the store is polled instead");
                    Box::new(crate::store::NoHints)
                }
            }
        }));
    }
}

impl Connection {
    pub(crate) async fn answer(&mut self) -> (CallId, Result<Reply, StoreError>) {
        let Some(call) = &mut self.call else { return std::future::pending().await };
        let id = call.id;
        let (session, result) = call.answer.as_mut().await;
        (self.session, self.call) = (session, None);
        (id, result)
    }

    fn close_unused(&self) {
        if let Ok(mut opener) = self.opener.try_lock() {
            opener.close_unused();
        }
    }
}

/// What the group says next, if there is one.
pub(crate) async fn from_group(group: &mut Option<GroupHandle>) -> Option<GroupMessage> {
    match group {
        Some(group) => group.inbox.recv().await,
        None => std::future::pending().await,
    }
}

impl HintSubscription {
    /// What has come until now is answered by the call that is about to be sent. Otherwise a burst of hints, which come while
    /// the candidate waits for its turn to look, would cause a second look that tells nothing.
    fn drop_hints(&mut self) {
        if let Self::Open(hints) = self {
            let _ = hints.next().as_mut().poll(&mut task::Context::from_waker(Waker::noop()));
        }
    }

    pub(crate) async fn hint(&mut self) {
        match self {
            Self::Deaf => std::future::pending().await,
            Self::Open(hints) => hints.next().await,
            // Having begun to listen is a hint by itself: something may have been missed.
            Self::Opening(opening) => *self = Self::Open(opening.as_mut().await),
        }
    }
}

#[cfg(test)]
#[path = "../tests/support/gated.rs"]
mod gated;

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use primacy_core::registers::{Rounds, RoundsSettings};
    use primacy_core::select::FailBack;
    use tokio::sync::Semaphore;

    use super::gated::{Gate, GatedStore};
    use super::*;
    use crate::group::{GroupSlot, Settings};
    use crate::store::EndReason;
    use crate::{Label, Token};

    const LEASE: Duration = Duration::from_secs(4);
    const NOT_DONE: primacy_core::lease::CallError = primacy_core::lease::CallError::NotDone;

    /// Notes who comes for the lease, and lets each in when the test says so.
    #[derive(Debug)]
    struct OpeningGate {
        came: Mutex<Vec<String>>,
        lets_in: Semaphore,
    }

    impl OpeningGate {
        fn came(&self) -> Vec<String> {
            self.came.lock().unwrap_or_else(PoisonError::into_inner).clone()
        }
    }

    impl Gate for OpeningGate {
        fn session<'a>(&'a self, candidate: &'a Holder) -> BoxFuture<'a, ()> {
            Box::pin(async move {
                self.came.lock().unwrap_or_else(PoisonError::into_inner).push(candidate.label.to_string());
                self.lets_in.acquire().await.expect("it is never closed").forget();
            })
        }
    }

    /// Lets the tasks that open connections get as far as they can.
    async fn openings() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    fn gated() -> Arc<GatedStore<OpeningGate>> {
        Arc::new(GatedStore::new(OpeningGate { came: Mutex::default(), lets_in: Semaphore::new(0) }))
    }

    fn time(call: Duration) -> CallTime {
        let now = clock::now();
        CallTime { asked_at: now, deadline: now + call, opening: Duration::from_secs(20) }
    }

    fn looking(gated: &Arc<GatedStore<OpeningGate>>) -> StoreClient {
        let (id, label) = (CandidateId::from_bits(rand::random()), Label::new("one").expect("valid"));
        let me = Holder { id, label, data: String::new() };
        StoreClient::new(gated.clone(), ElectionName::new("jobs").expect("valid"), me, None)
    }

    /// Waits for the answer of a call until it can get no further by itself.
    async fn tried(client: &mut StoreClient) -> Option<Result<Reply, StoreError>> {
        tokio::select! {
            biased;
            (_, result) = client.connection.answer() => Some(result),
            () = openings() => None,
        }
    }

    #[tokio::test]
    async fn a_call_answers_the_hints_that_came_before_it() {
        let gated = gated();
        gated.gate.lets_in.add_permits(9);
        let mut client = looking(&gated);
        let (election, me) = (client.election.clone(), client.me.clone());
        client.hints = HintSubscription::Open(gated.hints(&election).await.expect("opens"));
        let mut other = gated.session(&election, &me).await.expect("opens");
        let acquire = Request::Acquire { expect: None, floor: Token::NONE.into(), holder: me.clone(), lease: LEASE };
        let Ok(Reply::Applied(record)) = other.step(acquire).await else { panic!("it is free") };
        client.send(CallId(1), Request::Look { announce: None }, time(LEASE));
        assert!(matches!(client.connection.answer().await, (CallId(1), Ok(Reply::Seen(_)))));
        let hinted = async |client: &mut StoreClient| {
            tokio::select! {
                biased;
                () = client.hints.hint() => true,
                () = openings() => false,
            }
        };
        assert!(!hinted(&mut client).await, "the call was sent after the change");
        let release = Request::Release { id: me.id, version: record.version, reason: EndReason::Finished };
        assert!(matches!(other.step(release).await, Ok(Reply::Applied(_))));
        assert!(hinted(&mut client).await, "nobody has looked since");
    }

    #[tokio::test]
    async fn an_opening_outlives_its_call_and_serves_the_next() {
        let gated = gated();
        let mut client = looking(&gated);
        for call in 1..=3 {
            client.send(CallId(call), Request::Look { announce: None }, time(LEASE));
            assert!(tried(&mut client).await.is_none(), "the gate is shut");
            assert!(client.hang_up(), "the opening goes on");
        }
        assert_eq!(gated.gate.came(), ["one"], "one opening for three calls");
        gated.gate.lets_in.add_permits(1);
        openings().await;
        client.send(CallId(4), Request::Look { announce: None }, time(LEASE));
        let answer = client.connection.answer().await;
        assert!(matches!(answer, (CallId(4), Ok(Reply::Seen(_)))), "{answer:?}");
        assert_eq!(gated.gate.came(), ["one"]);
        // A connection whose call was given up is not used again.
        client.send(CallId(5), Request::Look { announce: None }, time(LEASE));
        assert!(!client.hang_up());
        client.send(CallId(6), Request::Look { announce: None }, time(LEASE));
        assert!(tried(&mut client).await.is_none(), "the gate is shut");
        assert_eq!(gated.gate.came(), ["one", "one"]);
    }

    #[tokio::test]
    async fn a_connection_that_comes_late_in_a_call_is_for_the_next() {
        let gated = gated();
        let mut client = looking(&gated);
        // Most of its time is over before there is a connection.
        let late = CallTime { deadline: clock::now(), ..time(LEASE) };
        client.send(CallId(1), Request::Look { announce: None }, late);
        gated.gate.lets_in.add_permits(1);
        let answer = client.connection.answer().await;
        let is_late = |error: &StoreError| error.to_string().contains("too late") && error.outcome() == NOT_DONE;
        assert!(matches!(&answer, (CallId(1), Err(error)) if is_late(error)), "{answer:?}");
        client.send(CallId(2), Request::Look { announce: None }, time(LEASE));
        assert!(client.connection.answer().await.1.is_ok());
        assert_eq!(gated.gate.came(), ["one"]);
    }

    #[tokio::test]
    async fn an_opening_ends_with_its_candidate() {
        let gated = gated();
        let mut client = looking(&gated);
        client.send(CallId(1), Request::Look { announce: None }, time(LEASE));
        assert!(tried(&mut client).await.is_none(), "the gate is shut");
        client.hang_up();
        drop(client);
        openings().await;
        assert_eq!(Arc::strong_count(&gated), 1, "nobody opens any more");
    }

    /// Waits until the group has said this to it.
    async fn hears(client: &mut StoreClient, what: FromGroup) {
        let group = client.group.as_mut().expect("it has a group");
        while group.inbox.recv().await.expect("the group runs").what != what {}
    }

    #[tokio::test]
    async fn a_turn_lasts_until_the_call_is_over_and_no_connection_is_opened_for_it() {
        let gated = gated();
        let store: Arc<dyn Store> = gated.clone();
        let election = ElectionName::new("jobs").expect("valid");
        let rounds = Rounds::new(RoundsSettings::new(LEASE / 2)).expect("valid");
        let slot = GroupSlot::default();
        let group = slot.join(&store, &election, Settings { rounds, fail_back: FailBack::Never }).expect("it starts");
        let [mut first, mut second, mut last] = ["first", "second", "last"].map(|name| {
            let (id, label) = (CandidateId::from_bits(rand::random()), Label::new(name).expect("valid"));
            let holder = Holder { id, label: label.clone(), data: String::new() };
            let candidacy = Candidacy { id, label, data: String::new(), rank: None };
            let handle = GroupHandle::new(Arc::clone(&group), candidacy);
            StoreClient::new(Arc::clone(&store), election.clone(), holder, Some(handle))
        });
        let awaits_turn = |client: &StoreClient, call| {
            let what = ToGroup::AwaitTurn { id: client.me.id, call };
            client.group.as_ref().expect("it has a group").tell(what);
        };
        let request = |client: &StoreClient| {
            let holder = client.me.clone();
            Request::Acquire { expect: None, floor: Token::NONE.into(), holder, lease: LEASE }
        };
        let turn = |call| FromGroup::Turn { call: CallId(call) };
        awaits_turn(&first, CallId(1));
        awaits_turn(&second, CallId(1));
        hears(&mut first, turn(1)).await;
        first.send(CallId(1), request(&first), time(LEASE));
        assert!(tried(&mut first).await.is_none(), "the gate is shut");
        assert!(first.hang_up(), "the opening goes on");
        // When another has left, the group has heard all that it was told before.
        last.group.as_ref().expect("it has a group").tell(ToGroup::Leave { id: last.me.id });
        hears(&mut last, FromGroup::Left).await;
        while let Ok(said) = second.group.as_mut().expect("it has a group").inbox.try_recv() {
            assert_ne!(said.what, turn(1), "while a connection is opened");
        }
        gated.gate.lets_in.add_permits(1);
        hears(&mut second, turn(1)).await;
        assert_eq!(gated.gate.lets_in.available_permits(), 0);
        awaits_turn(&first, CallId(2));
        gated.gate.lets_in.add_permits(1);
        second.send(CallId(1), request(&second), time(LEASE));
        assert!(second.connection.answer().await.1.is_ok());
        hears(&mut first, turn(2)).await;
    }
}
