//! Candidates under watch: who believed to lead, from when until when.

use std::sync::Arc;
use std::time::Duration;

use primacy::store::{EndReason, Order, OrderKind, Term};
use primacy::{
    Candidate, CandidateConfig, Election, Instant, Label, Phase, Status, Timing, TimingSettings, Token, clock,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Figures, for the reader of a test's output.
#[expect(clippy::print_stdout, reason = "the test's output is where they belong")]
pub(crate) fn tell(figures: std::fmt::Arguments<'_>) {
    println!("{figures}");
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Long enough that no stall of a disk or of the machine costs a leadership, and short enough to be waited out.
pub(crate) const LEASE: Duration = Duration::from_secs(6);

/// A token is of this epoch, and counts on from the other. It need not be the very next: a grant that takes too long is not used,
/// and its token is passed over.
pub(crate) fn assert_follows(token: Token, other: Token, epoch: u32) {
    assert!(token.epoch() == epoch && token.counter() > other.counter(), "{token} of epoch {epoch} after {other}");
}

/// One leadership as its holder believed in it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) who: String,
    pub(crate) token: Token,
    pub(crate) from: Instant,
    /// When belief ends or has ended.
    pub(crate) until: Instant,
    pub(crate) ended: Option<EndReason>,
}

/// Candidates of one election. Each has a store of its own, as if it were a process of its own.
pub(crate) struct Crew {
    pub(crate) name: String,
    pub(crate) timing: Timing,
    spans: Arc<watch::Sender<Vec<Span>>>,
    members: Vec<Member>,
}

struct Member {
    label: String,
    election: Election,
    status: watch::Receiver<Status>,
    work: JoinHandle<()>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.work.abort();
    }
}

impl Crew {
    pub(crate) fn new(name: &str, lease: Duration) -> Self {
        Self::with(name, TimingSettings::new(lease))
    }

    pub(crate) fn with(name: &str, settings: TimingSettings) -> Self {
        let timing = Timing::new(settings).expect("valid settings");
        Self { name: name.into(), timing, spans: Arc::new(watch::Sender::new(Vec::new())), members: Vec::new() }
    }

    /// A new candidate.
    pub(crate) fn join(&mut self, label: &str, url: &str) {
        let election = Election::open(url, &self.name).expect("a valid URL");
        let mut config = CandidateConfig::new(Label::new(label).expect("a valid label"));
        config.timing = self.timing;
        let candidate = election.campaign_with(config).expect("starts");
        let status = candidate.status();
        let work = tokio::spawn(work(label.to_owned(), candidate, Arc::clone(&self.spans)));
        self.members.push(Member { label: label.into(), election, status, work });
    }

    /// A candidate stops at once; if it leads it gives its leadership back.
    pub(crate) async fn leave(&mut self, label: &str) {
        let at = self.members.iter().position(|member| member.label == label).expect("a member");
        let member = self.members.remove(at);
        let mut status = member.status.clone();
        drop(member);
        let stopped = status.wait_for(|status| matches!(status, Status::Stopped { .. }));
        drop(tokio::time::timeout(PATIENCE, stopped).await.expect("stops").expect("says so"));
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.spans.borrow().clone()
    }

    /// The first span for which something holds, as soon as it does.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&Span) -> bool) -> Span {
        let mut spans = self.spans.subscribe();
        let found = async {
            let spans = spans.wait_for(|spans| spans.iter().any(&holds)).await.expect("the crew is there");
            spans.iter().find(|span| holds(span)).expect("there is one").clone()
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(span) => span,
            Err(_) => {
                let told: Vec<_> = self.members.iter().map(|member| (&member.label, member.status.borrow())).collect();
                panic!("waited in vain for {what}: {:#?}; {told:#?}", self.spans());
            }
        }
    }

    /// Somebody leads.
    pub(crate) async fn leader(&self) -> Span {
        self.until("a leader", |span| span.ended.is_none()).await
    }

    /// Somebody leads with a larger token than this.
    pub(crate) async fn leader_after(&self, token: Token) -> Span {
        self.until("a later leader", |span| span.token > token && span.ended.is_none()).await
    }

    /// Somebody leads by a grant or renewal that was sent after this moment.
    pub(crate) async fn confirmed_after(&self, moment: Instant) -> Span {
        let until = moment + self.timing.believed();
        self.until("a grant or renewal", |span| span.until > until && span.ended.is_none()).await
    }

    /// This leadership is over.
    pub(crate) async fn end_of(&self, token: Token) -> Span {
        self.until("the end of a leadership", |span| span.token == token && span.ended.is_some()).await
    }

    /// What a candidate says about itself, once something holds of it.
    pub(crate) async fn status(&self, label: &str, what: &str, holds: impl Fn(&Status) -> bool) -> Status {
        let mut status = self.member(label).status.clone();
        let found = tokio::time::timeout(PATIENCE, status.wait_for(|status| holds(status))).await;
        let found = found.map(|status| status.expect("it campaigns").clone());
        found.unwrap_or_else(|_| panic!("waited in vain for {label}: {what}; {:?}", self.member(label).status.borrow()))
    }

    /// Makes the leader hand over to another, by way of this candidate's store.
    pub(crate) async fn depose(&self, by: &str) {
        let election = &self.member(by).election;
        let mut admin = election.store().admin().await.expect("an admin connection");
        let order = Order { kind: OrderKind::Depose { now: false }, token: None };
        admin.order(election.name(), order).await.expect("ordered");
    }

    /// The terms that a store has kept.
    pub(crate) async fn history(&self, url: &str) -> Vec<Term> {
        let election = Election::open(url, &self.name).expect("a valid URL");
        let mut admin = election.store().admin().await.expect("an admin connection");
        admin.history(election.name(), 1_000).await.expect("a history")
    }

    fn member(&self, label: &str) -> &Member {
        self.members.iter().find(|member| member.label == label).expect("a member")
    }

    /// Integrity and Order, of everything that happened.
    pub(crate) fn judge(&self) {
        let mut spans = self.spans();
        spans.sort_by_key(|span| span.from);
        for pair in spans.windows(2) {
            assert!(pair[0].token < pair[1].token, "tokens do not grow: {spans:#?}");
            assert!(pair[0].until <= pair[1].from, "two led at one moment: {spans:#?}");
        }
        let Some((first, last)) = spans.first().zip(spans.last()) else { panic!("nobody ever led") };
        tell(format_args!("{}: {} leaderships, tokens {} to {}", self.name, spans.len(), first.token, last.token));
        for pair in spans.windows(2) {
            let gap = pair[1].from.since(pair[0].until);
            tell(format_args!("  {} {} {:?}, then nobody for {gap:.1?}", pair[0].who, pair[0].token, pair[0].ended));
        }
    }
}

/// Work that does not stop until it must: when told to make way for another, or when belief is over.
async fn work(who: String, mut candidate: Candidate, spans: Arc<watch::Sender<Vec<Span>>>) {
    while let Ok(leadership) = candidate.elected().await {
        // It ends before the leadership is given back, also when the task is aborted.
        let mut entry = Entry::begin(&who, leadership.token(), &spans);
        let mut phases = leadership.phases();
        loop {
            let phase = phases.borrow_and_update().clone();
            match phase {
                Phase::Leading { until, .. } => entry.change(|span| span.until = until),
                // A lease that cannot be renewed is used to its last moment.
                Phase::Draining { reason: EndReason::Expired, .. } | Phase::Overdue { .. } => {}
                Phase::Draining { reason, .. } | Phase::Ended { reason } => {
                    entry.reason = reason;
                    break;
                }
                other => panic!("{other:?}"),
            }
            if phases.changed().await.is_err() {
                break;
            }
        }
    }
}

/// The span of a leadership that lasts.
struct Entry<'a> {
    token: Token,
    reason: EndReason,
    spans: &'a watch::Sender<Vec<Span>>,
}

impl<'a> Entry<'a> {
    fn begin(who: &str, token: Token, spans: &'a watch::Sender<Vec<Span>>) -> Self {
        let from = clock::now();
        spans.send_modify(|spans| spans.push(Span { who: who.into(), token, from, until: from, ended: None }));
        Self { token, reason: EndReason::Withdrawn, spans }
    }

    fn change(&self, change: impl Fn(&mut Span)) {
        self.spans.send_modify(|spans| {
            // Of two with one token, the later.
            if let Some(span) = spans.iter_mut().rfind(|span| span.token == self.token) {
                change(span);
            }
        });
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let now = clock::now();
        self.change(|span| {
            span.until = span.until.min(now);
            span.ended = Some(self.reason.clone());
        });
    }
}
