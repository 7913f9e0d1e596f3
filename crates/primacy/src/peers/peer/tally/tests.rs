use std::time::Duration;

use primacy_core::quorum::{Ask, Counts};

use super::*;
use crate::peers::cluster::{Cluster, Roster};
use crate::store::Holder;
use crate::{Label, Token};

const OWN: VoterId = VoterId::from_bits(1);
const LEASE: Duration = Duration::from_secs(10);

fn name(name: &str) -> ElectionName {
    ElectionName::new(name).expect("valid")
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// A voter of a cluster of its own, and where its answers go.
struct Subject {
    tally: Tally,
    out: Out,
    answers: mpsc::Receiver<(u64, Body)>,
    _folder: tempfile::TempDir,
}

impl Subject {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let own = ("a".to_owned(), (OWN, "a@h:1".parse().expect("an address")));
        let cluster = Cluster::of(Roster::from([own]));
        let mut kept = Kept::of(OWN);
        kept.cluster = Some(prost::Message::encode_to_vec(&wire::Cluster::from(&cluster)));
        let ballots = Ballots::restarted(kept, folder.path(), 20_000, at(0)).expect("it is sound");
        let tally = Tally::new(ballots, watch::channel(Some(cluster)).0);
        let (answers, inbox) = mpsc::channel(16);
        Self { tally, out: Out { answers, end: Arc::default() }, answers: inbox, _folder: folder }
    }

    /// What is answered at this time to a candidate.
    fn asks(&mut self, candidate: u128, ask: Ask, reading: Reading) -> Option<Answer> {
        let question = Question {
            voters: 0,
            election: name("jobs"),
            ask,
            asker: CandidateId::from_bits(candidate),
            announce: None,
            lists: false,
            reason: String::new(),
        };
        let work = Work::Ask { number: 7, question: Box::new(question), out: self.out.clone() };
        match self.tally.note_time(reading) {
            Some(now) => self.tally.take(work, now),
            None => self.tally.put_off(&work),
        }
        self.tally.tell();
        match self.answers.try_recv().expect("it answers").1 {
            Body::Answer(reply) => Some(wire::Told::try_from(&reply).expect("an answer").answer),
            Body::Refused(refused) => {
                assert!(refused.is_passing);
                None
            }
            other => panic!("{other:?}"),
        }
    }
}

fn claim(candidate: u128, term: u64) -> Ask {
    let holder = Holder {
        id: CandidateId::from_bits(candidate),
        label: Label::new("web").expect("valid"),
        data: String::new(),
    };
    let term = Token::new(term).expect("small");
    Ask::Claim { term, holder, lease: LEASE, seen: Counts::default(), granted: None }
}

#[test]
fn a_voter_whose_machine_slept_or_whose_clock_failed_is_bound_as_after_a_restart() {
    for failed in [Reading::Stepped(at(60_000)), Reading::Unreadable] {
        let mut voter = Subject::new();
        let granted = voter.asks(1, claim(1, 1), Reading::Stepped(at(1_000))).expect("an answer");
        assert!(granted.accepted);
        // The holder has renewed just before, for all that this voter can know.
        let bound_from = match failed {
            Reading::Unreadable => {
                assert_eq!(voter.asks(2, claim(2, 2), failed), None, "it is free for nobody");
                Reading::Stepped(at(60_000))
            }
            stepped => stepped,
        };
        let refused = voter.asks(2, claim(2, 2), bound_from).expect("an answer");
        assert!(!refused.accepted, "{failed:?}: it is free while the holder may believe");
        assert!(refused.view.bound.is_some_and(|bound| bound >= LEASE), "{refused:?}");
        let renewed = Ask::Renew {
            term: Token::new(1).expect("small"),
            id: CandidateId::from_bits(1),
            beat: 2,
            lease: LEASE,
            fulfilled: 0,
        };
        assert!(voter.asks(1, renewed, Reading::Steady(at(61_000))).expect("an answer").accepted, "it still leads");
        assert!(!voter.asks(2, claim(2, 2), Reading::Steady(at(70_500))).expect("an answer").accepted);
        assert!(voter.asks(2, claim(2, 2), Reading::Steady(at(71_500))).expect("an answer").accepted);
    }
}
