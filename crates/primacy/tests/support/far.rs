//! Candidates far away from their store: a leader comes in time, and another one when that is cut off.

use std::sync::Arc;
use std::time::Duration;

use primacy::store::{Announcement, Holder, Request, Store, Why};
use primacy::{
    Candidate, CandidateConfig, CandidateId, Election, ElectionName, Instant, Label, Leadership, Phase, Status,
};
use primacy::{Timing, TimingSettings, clock, select::Rank};
use primacy_servers::Proxy;

/// A machine with ways of its own to the servers of a store.
pub(crate) struct Site {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) ways: Vec<Proxy>,
}

/// How far away the servers are, and what that costs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Distance {
    pub(crate) round_trip: Duration,
    pub(crate) lease: Duration,
    /// How many round trips it takes to open a connection, at most, the one of TCP included.
    pub(crate) opening: u32,
}

/// Beside the way, for servers and tests on a busy machine.
const BUSY: Duration = Duration::from_secs(3);

/// Figures, for readers of a test's output.
#[expect(clippy::print_stdout, reason = "the test's output is where they belong")]
fn tell(figures: std::fmt::Arguments<'_>) {
    println!("{figures}");
}

fn label(name: &str) -> Label {
    Label::new(name).expect("a valid label")
}

impl Distance {
    pub(crate) fn timing(&self) -> Timing {
        Timing::new(TimingSettings::for_program(self.lease)).expect("valid")
    }

    /// Opens a connection, as the doctor does, and takes as many round trips as it may.
    async fn measure(&self, site: &Site, election: &ElectionName) -> Duration {
        let me = Holder { id: CandidateId::from_bits(9), label: label("probe"), data: String::new() };
        let flights = || site.ways.iter().map(Proxy::flights).max().unwrap_or_default();
        let (start, before) = (clock::now(), flights());
        let mut session = site.store.session(election, &me).await.expect("opens");
        let opened = clock::now();
        // With the one of TCP, which no flight is.
        let trips = flights() - before + 1;
        for (step, most) in [("first", 2), ("second", 1)] {
            let before = flights();
            let announce = Some(Announcement { why: Why::NotLooked, rank: Rank::default() });
            session.step(Request::Look { announce }).await.expect("looks");
            let trips = flights() - before;
            tell(format_args!("the {step} look took {trips} round trips"));
            assert!(trips <= most, "{trips} round trips for the {step} look");
        }
        session.step(Request::Leave).await.expect("leaves");
        let took = opened.since(start);
        tell(format_args!("opening took {trips} round trips and {took:?}"));
        assert!(trips <= u64::from(self.opening), "{trips} round trips to open a connection");
        took
    }

    fn campaign(&self, site: &Site, election: &ElectionName, name: &str) -> Candidate {
        let mut config = CandidateConfig::new(label(name));
        config.timing = self.timing();
        Election::new(Arc::clone(&site.store), election.clone()).campaign_with(config).expect("the system has a thread")
    }

    /// Until two renewals have come when they were expected. A hint, as that of an arrival, causes one at any time, which others
    /// see a renewal interval later: the published bound is about others.
    async fn renews_at_its_pace(&self, leads: &Leadership) {
        let mut phases = leads.phases();
        let mut before = None;
        let mut regular = 0;
        while regular < 2 {
            let Phase::Leading { until, .. } = *phases.borrow_and_update() else { panic!("it leads no more") };
            let is_regular =
                before.is_some_and(|before: Instant| until.since(before) * 10 > self.timing().renew_every() * 9);
            regular = if is_regular { regular + 1 } else { 0 };
            before = Some(until);
            let changed = tokio::time::timeout(self.lease, phases.changed()).await;
            changed.expect("it renews in time").expect("its thread goes on");
        }
    }

    /// One candidate at each site. The first leads within the published bound of its start, and the other within that of
    /// the moment in which the first is cut off.
    pub(crate) async fn elects(self, here: Site, there: Site) {
        let election = ElectionName::new("far").expect("a valid name");
        // Tables are there, as in any but the first minute of a database.
        let me = Holder { id: CandidateId::from_bits(8), label: label("early"), data: String::new() };
        drop(here.store.session(&election, &me).await.expect("opens"));
        here.ways.iter().chain(&there.ways).for_each(|way| way.move_away(self.round_trip));
        let timing = self.timing();
        let opening = self.measure(&there, &election).await;
        assert!(timing.carries(opening, self.round_trip), "{opening:?} is too long for {timing:?}");

        let start = clock::now();
        let mut first = self.campaign(&here, &election, "first");
        let bound = timing.opening_bound(opening, self.round_trip) + BUSY;
        let leads = tokio::time::timeout(bound, first.elected()).await;
        let leads = leads.unwrap_or_else(|_| panic!("nobody leads within {bound:?}")).expect("elected");
        tell(format_args!("a leader after {:?}; the bound is {bound:?}", clock::now().since(start)));

        let mut second = self.campaign(&there, &election, "second");
        let mut status = second.status();
        let knows = |status: &Status| matches!(status, Status::Waiting { leader: Some(_), .. });
        let known = tokio::time::timeout(bound, status.wait_for(knows)).await;
        assert!(known.expect("it has seen the leader in time").is_ok());
        assert!(leads.is_current(), "an arrival unseats nobody");
        self.renews_at_its_pace(&leads).await;

        let start = clock::now();
        here.ways.iter().for_each(Proxy::cut);
        let bound = timing.failover_bound(0, self.round_trip) + BUSY;
        let next = tokio::time::timeout(bound, second.elected()).await;
        let next = next.unwrap_or_else(|_| panic!("nobody leads within {bound:?} of the loss")).expect("elected");
        tell(format_args!("the next leader after {:?}; the bound is {bound:?}", clock::now().since(start)));
        assert!(next.token() > leads.token() && !leads.is_current());
    }
}
