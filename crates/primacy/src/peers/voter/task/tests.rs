//! What a voter keeps of what it is asked, and when it trusts its clock.

use std::time::Duration;

use primacy_core::quorum::{Ask, GrantProgress, OrderNumbers, Query, UNCLAIMED_MAX, WAITING_MAX};

use super::super::command::{ANSWERS_MOST, ReplyReceiver};
use super::super::hosted_elections::ElectionQuery;
use super::super::watchers;
use super::*;
use crate::peers::config::{Cluster, Roster};
use crate::select::Rank;
use crate::store::waiting::WaiterInfo;
use crate::store::{Holder, history};
use crate::{CandidateId, ElectionName, Label, Token};

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
    task: VoterTask,
    out: ReplySender,
    answers: ReplyReceiver,
    folder: tempfile::TempDir,
}

impl Subject {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let own = ("a".to_owned(), (OWN, "a@h:1".parse().expect("an address")));
        let cluster = Cluster::of(Roster::from([own]));
        let mut data = VoterFileData::of(OWN);
        data.cluster = Some(prost::Message::encode_to_vec(&wire::Cluster::from(&cluster)));
        let elections = HostedElections::restarted(data, folder.path(), 20_000, at(0)).expect("it is sound");
        let task = VoterTask::new(elections, watch::channel(Some(cluster)).0, Arc::default());
        let (out, answers) = ReplySender::new();
        Self { task, out, answers, folder }
    }

    /// What it has changed is on disk, and its answers leave.
    fn writes(&mut self) {
        let _kept = self.task.elections.begin_write();
        self.task.elections.written();
        self.task.tell();
    }

    /// What is answered at this time to a candidate.
    fn asks(&mut self, candidate: u128, ask: Ask, reading: Reading) -> Option<Answer> {
        let command = self.question(name("jobs"), candidate, ask, false);
        match self.task.note_time(reading) {
            Some(now) => self.task.take(command, now),
            None => self.task.put_off(&command),
        }
        self.writes();
        match self.answers.inbox.try_recv().expect("it answers").1 {
            Body::Answer(reply) => Some(wire::Piggyback::try_from(&reply).expect("an answer").answer),
            Body::Refused(refused) => {
                assert!(refused.is_passing);
                None
            }
            other => panic!("{other:?}"),
        }
    }

    fn question(&self, election: ElectionName, candidate: u128, ask: Ask, waits: bool) -> VoterCommand {
        let notice = WaiterInfo { who: holder(candidate), note: "waits".to_owned() };
        let asker = CandidateId::from_bits(candidate);
        let announce = waits.then_some((asker, Rank::LAST, notice));
        let query = Query { number: 0, election, ask, asker, announce };
        let query = ElectionQuery { query, lists: false, reason: String::new() };
        VoterCommand::Ask { number: 7, query: Box::new(query), out: self.out.clone() }
    }

    /// Does this at that time, and reads the answers.
    fn takes(&mut self, command: VoterCommand, now: Instant) -> Vec<Body> {
        self.task.take(command, now);
        self.writes();
        self.reads()
    }

    fn reads(&mut self) -> Vec<Body> {
        std::iter::from_fn(|| self.answers.inbox.try_recv().ok()).map(|(_, body)| body).collect()
    }
}

fn holder(candidate: u128) -> Holder {
    Holder { id: CandidateId::from_bits(candidate), label: Label::new("web").expect("valid"), data: String::new() }
}

fn claim(candidate: u128, term: u64) -> Ask {
    let (term, holder) = (Token::new(term).expect("small"), holder(candidate));
    Ask::Claim { term, holder, lease: LEASE, seen: OrderNumbers::default(), granted: None }
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
            completed_order: 0,
        };
        assert!(voter.asks(1, renewed, Reading::Steady(at(61_000))).expect("an answer").accepted, "it still leads");
        assert!(!voter.asks(2, claim(2, 2), Reading::Steady(at(70_500))).expect("an answer").accepted);
        assert!(voter.asks(2, claim(2, 2), Reading::Steady(at(71_500))).expect("an answer").accepted);
    }
}

/// The voter supports a later claim, or restarts: it still tells of the last leadership that it knows to have been one.
#[test]
fn a_voter_tells_of_the_last_grant_that_it_knows_of_whatever_is_claimed_since() {
    let mut voter = Subject::new();
    let told = |voter: &mut Subject, ask: Ask, now: u64| {
        let VoterCommand::Ask { number, mut query, out } = voter.question(name("jobs"), 9, ask, false) else {
            panic!("a question")
        };
        query.lists = true;
        let answers = voter.takes(VoterCommand::Ask { number, query, out }, at(now));
        let Some(Body::Answer(reply)) = answers.into_iter().find(|body| matches!(body, Body::Answer(_))) else {
            panic!("an answer")
        };
        let told = wire::Piggyback::try_from(&reply).expect("an answer");
        let token = |term: Option<crate::store::Term>| term.map(|term| term.token.get());
        (token(told.proven), token(told.claimed))
    };
    let token = |number| Token::new(number).expect("small");
    assert_eq!(told(&mut voter, Ask::Read, 1), (None, None), "nobody has ever led");
    assert_eq!(told(&mut voter, claim(1, 5), 2), (None, Some(5)), "perhaps it is granted");
    let id = CandidateId::from_bits(1);
    let renewal = Ask::Renew { term: token(5), id, beat: 2, lease: LEASE, completed_order: 0 };
    assert_eq!(told(&mut voter, renewal, 3), (Some(5), None), "who renews was granted it");
    assert_eq!(told(&mut voter, claim(2, 6), 60_000), (Some(5), Some(6)));
    voter.task.elections.write_history();
    let data = voter.task.elections.rewrite();
    let restarted = HostedElections::restarted(data, voter.folder.path(), 20_000, at(60_001)).expect("it is sound");
    voter.task.elections = restarted;
    assert_eq!(told(&mut voter, Ask::Read, 60_002), (Some(5), Some(6)), "after a restart too");
    let taken_back = Ask::Release { term: token(6), id: CandidateId::from_bits(2), beat: 0, completed_order: 0 };
    assert_eq!(told(&mut voter, taken_back, 60_003), (Some(5), None), "it was never granted");
}

/// A rival's later claim comes to nothing, and the voter comes back to the leader.
#[test]
fn a_voter_that_comes_back_tells_of_the_leadership_that_goes_on_and_of_no_other() {
    let mut voter = Subject::new();
    let led = |voter: &Subject| {
        let terms = voter.task.elections.past(&name("jobs"), 10);
        terms.iter().map(|term| (term.token.get(), term.ended.is_some())).collect::<Vec<_>>()
    };
    let comes_back = |beat| {
        let Ask::Claim { term, holder, lease, seen, .. } = claim(1, 5) else { panic!("a claim") };
        Ask::Claim { term, holder, lease, seen, granted: Some(GrantProgress { beat, completed_order: 0 }) }
    };
    assert!(voter.asks(1, claim(1, 5), Reading::Stepped(at(1))).expect("an answer").accepted);
    for (term, now) in [(6, 20_000), (7, 40_000)] {
        assert!(voter.asks(2, claim(2, term), Reading::Steady(at(now))).expect("an answer").accepted);
    }
    assert_eq!(led(&voter), [(7, false), (6, true), (5, true)]);
    assert!(!voter.asks(1, comes_back(9), Reading::Steady(at(41_000))).expect("an answer").accepted, "it is bound");
    assert!(voter.asks(1, comes_back(9), Reading::Steady(at(60_000))).expect("an answer").accepted);
    assert_eq!(led(&voter), [(5, false)]);
    voter.task.elections.write_history();
    let data = voter.task.elections.rewrite();
    voter.task.elections =
        HostedElections::restarted(data, voter.folder.path(), 20_000, at(60_001)).expect("it is sound");
    assert_eq!(led(&voter), [(5, false)], "after a restart too");
    assert!(!voter.asks(2, claim(2, 7), Reading::Steady(at(90_000))).expect("an answer").accepted, "not a second time");
}

#[test]
fn a_candidate_cannot_say_that_its_election_was_forgotten() {
    let mut voter = Subject::new();
    assert!(voter.asks(1, claim(1, 5), Reading::Stepped(at(1))).expect("an answer").accepted);
    let term = Token::new(5).expect("small");
    let release = Ask::Release { term, id: CandidateId::from_bits(1), beat: 1, completed_order: 0 };
    let VoterCommand::Ask { number, mut query, out } = voter.question(name("jobs"), 1, release, false) else {
        panic!("a question")
    };
    query.reason = history::FORGOTTEN.to_owned();
    voter.takes(VoterCommand::Ask { number, query, out }, at(2));
    let terms = voter.task.elections.past(&name("jobs"), 10);
    assert!(terms.iter().all(|term| term.ended.is_some() && !history::is_of_forgetting(term)), "{terms:?}");
}

/// More than a stranger sent in the test by which this was found.
const FLOOD: u32 = 400_000;

#[test]
fn looks_at_unknown_elections_leave_nothing_behind() {
    let mut voter = Subject::new();
    assert!(voter.asks(1, claim(1, 1), Reading::Stepped(at(1))).expect("an answer").accepted);
    for n in 0..FLOOD {
        let command = voter.question(name(&format!("unknown-{n}")), 2, Ask::Read, false);
        assert!(matches!(voter.takes(command, at(2))[..], [Body::Answer(_)]));
    }
    assert_eq!(voter.task.elections.counts(), (1, 0, 1), "one election, nobody waits, and one promise ends");
    let end = voter.task.elections.next_end().expect("it is bound");
    voter.task.elections.expire(end);
    assert_eq!(voter.task.elections.release().1.len(), 1);
    assert_eq!(voter.task.elections.next_end(), None);
}

/// Who waits is noted beside whatever it asks, also if that is refused.
#[test]
fn refused_asks_of_those_who_wait_leave_nothing_behind_when_they_leave() {
    let mut voter = Subject::new();
    let (term, id) = (Token::new(1).expect("small"), CandidateId::from_bits(1));
    for n in 0..1_000 {
        let election = name(&format!("unknown-{n}"));
        for ask in [
            Ask::Withdraw { term, id, beat: 2 },
            Ask::Renew { term, id, beat: 2, lease: LEASE, completed_order: 0 },
            Ask::Release { term, id, beat: 2, completed_order: 0 },
        ] {
            let command = voter.question(election.clone(), 1, ask, true);
            voter.takes(command, at(2));
        }
        let out = voter.out.clone();
        voter.takes(VoterCommand::Leave { number: 1, election, id, out }, at(3));
    }
    assert_eq!((voter.task.elections.counts(), voter.task.elections.histories()), ((0, 0, 0), 0));
}

#[test]
fn those_who_wait_in_many_elections_are_counted_up_to_a_bound_and_forgotten_in_time() {
    let mut voter = Subject::new();
    voter.asks(1, claim(1, 1), Reading::Stepped(at(1)));
    let names = UNCLAIMED_MAX + UNCLAIMED_MAX / 4;
    for n in 0..3 * names {
        let (election, candidate) = (name(&format!("unknown-{}", n % names)), 10 + u128::try_from(n).expect("it fits"));
        let command = voter.question(election, candidate, Ask::Read, true);
        assert!(matches!(voter.takes(command, at(2))[..], [Body::Answer(_), ..]));
    }
    let (elections, waiting, _) = voter.task.elections.counts();
    assert_eq!((elections, waiting), (UNCLAIMED_MAX + 1, WAITING_MAX));
    // A watcher that leaves makes room.
    let (election, id, out) = (name("unknown-0"), CandidateId::from_bits(10), voter.out.clone());
    voter.takes(VoterCommand::Leave { number: 1, election, id, out }, at(3));
    assert_eq!(voter.task.elections.counts(), (elections, waiting - 1, 1));
    let late = at(24 * 3_600_000);
    for n in 0..2 {
        let command = voter.question(name(&format!("late-{n}")), 7, Ask::Read, true);
        voter.takes(command, late);
    }
    assert_eq!(voter.task.elections.counts(), (3, 2, 1), "all others have said nothing for a day");
}

#[test]
fn claims_of_ever_more_elections_are_refused_and_those_that_are_kept_go_on() {
    let mut voter = Subject::new();
    let now = at(2);
    // As many at a time as a connection takes answers: all of them are on disk after one write.
    let names: Vec<_> = (0..ELECTIONS_MAX).map(|n| name(&format!("claimed-{n}"))).collect();
    for names in names.chunks(ANSWERS_MOST) {
        for election in names {
            let command = voter.question(election.clone(), 1, claim(1, 1), false);
            voter.task.take(command, now);
        }
        voter.writes();
        let answers = voter.reads();
        assert_eq!(answers.iter().filter(|answer| matches!(answer, Body::Answer(_))).count(), names.len());
    }
    for n in 0..1_000 {
        let command = voter.question(name(&format!("more-{n}")), 1, claim(1, 1), false);
        assert!(matches!(voter.takes(command, now)[..], [Body::Refused(_)]));
    }
    let again = voter.question(name("claimed-0"), 1, claim(1, 2), false);
    assert!(matches!(voter.takes(again, now)[..], [Body::Answer(_)]));
    assert_eq!(voter.task.elections.counts(), (ELECTIONS_MAX, 0, ELECTIONS_MAX));
    // All of them can be listed, a part at a time.
    let (mut listed, mut after) = (0, None);
    loop {
        let list = VoterCommand::List { number: 1, after: after.take(), out: voter.out.clone() };
        let [Body::Listed(Names { names })] = &voter.takes(list, now)[..] else { panic!("a list") };
        listed += names.len();
        match names.last() {
            Some(last) => after = Some(name(last)),
            None => break,
        }
    }
    assert_eq!(listed, ELECTIONS_MAX);
}

#[test]
fn what_connections_watch_is_bounded_and_ends_with_them() {
    let mut voter = Subject::new();
    let each = watchers::OF_ONE_MOST + 36;
    for n in 0..FLOOD as usize {
        // Connections of which each watches more than it may.
        if n.is_multiple_of(each) {
            (voter.out, voter.answers) = ReplySender::new();
        }
        let watch = VoterCommand::Watch { election: name(&format!("unknown-{n}")), out: voter.out.clone() };
        assert!(matches!(voter.takes(watch, at(2))[..], [Body::Hint(_)]));
    }
    let (watched, connections) = voter.task.watchers.counts();
    assert_eq!((watched, connections), (watchers::MOST, (FLOOD as usize).div_ceil(each)), "the last has room too");
    for id in 0..=voter.out.id {
        voter.takes(VoterCommand::Gone { id }, at(3));
    }
    assert_eq!(voter.task.watchers.counts(), (0, 0));
}

#[test]
fn a_candidate_that_claims_and_gives_back_without_end_does_not_fill_the_disk() {
    let mut voter = Subject::new();
    voter.task.note_time(Reading::Stepped(at(1_000)));
    for term in 1..=40_000 {
        let now = at(1_000_000 + term);
        let id = CandidateId::from_bits(1);
        let release = Ask::Release { term: Token::new(term).expect("small"), id, beat: 1, completed_order: 0 };
        for ask in [claim(1, term), release] {
            let command = voter.question(name("jobs"), 1, ask, false);
            voter.task.take(command, now);
        }
        if term % 128 == 0 {
            let _kept = voter.task.elections.begin_write();
            voter.task.elections.written();
            voter.task.tell();
            voter.task.elections.write_history();
            voter.reads();
        }
    }
    let length = std::fs::metadata(voter.folder.path().join("history")).expect("it is there").len();
    assert!(length < 2_000_000, "{length} bytes");
    let (_, past) = super::super::history_log::HistoryLog::open(voter.folder.path());
    assert_eq!(past.values().map(|past| past.newest(u32::MAX).count()).sum::<usize>(), 1_000);
}
