//! One replica, asked one thing after the other.

use alloc::vec;
use alloc::vec::Vec;

use super::super::ballot::ReplicaId;
use super::super::port::Content;
use super::*;
use crate::{CandidateId, Token};

fn ballot(token: u64) -> Ballot {
    Ballot { token: Token::new(token).expect("a small one"), id: CandidateId::from_bits(7) }
}

fn at(token: u64, index: u64) -> Position {
    Position { ballot: ballot(token), index }
}

fn entry(token: u64, says: u8) -> Entry<Vec<u8>> {
    Entry { ballot: ballot(token), time: GroupTime::default(), content: Content::Payload(vec![says]) }
}

fn config(replicas: &[u128]) -> Config {
    Config::new(replicas.iter().copied().map(ReplicaId::from_bits).collect()).expect("there are some")
}

fn restarted(log: DurableLog<Vec<u8>>) -> Replica<Vec<u8>> {
    Replica::restarted(log, Limits::default(), Planted::default())
}

fn founding() -> Replica<Vec<u8>> {
    restarted(DurableLog::founding(config(&[1, 2, 3])))
}

fn ask(replica: &mut Replica<Vec<u8>>, request: Request<Vec<u8>>) -> Verdict<Vec<u8>> {
    match replica.handle(&request, &mut Vec::new()) {
        Ok(Outcome::Verdict(verdict)) => verdict,
        other => panic!("no verdict: {other:?}"),
    }
}

fn open(replica: &mut Replica<Vec<u8>>, token: u64) -> Verdict<Vec<u8>> {
    ask(replica, Request::Open { ballot: ballot(token) })
}

fn append(token: u64, prev: Position, entries: Vec<Entry<Vec<u8>>>, commit: u64) -> Request<Vec<u8>> {
    Request::Append { ballot: ballot(token), prev, entries, commit, time: GroupTime::default() }
}

fn ballots(replica: &Replica<Vec<u8>>) -> Vec<u64> {
    replica.log().entries().iter().map(|entry| entry.ballot.token.get()).collect()
}

#[test]
fn it_takes_nothing_from_a_smaller_ballot_than_it_has_promised_itself_to() {
    let mut replica = founding();
    assert!(matches!(open(&mut replica, 5), Verdict::Opened(_)));
    assert_eq!(open(&mut replica, 4), Verdict::Outbid(ballot(5)));
    assert_eq!(ask(&mut replica, append(4, Position::START, vec![entry(4, 1)], 0)), Verdict::Outbid(ballot(5)));
    // Nor from a larger one whose `Open` has not come.
    assert_eq!(ask(&mut replica, append(6, Position::START, vec![entry(6, 1)], 0)), Verdict::Outbid(ballot(5)));
    assert_eq!(ask(&mut replica, append(5, Position::START, vec![entry(5, 1)], 0)), Verdict::Matched(1));
    assert!(matches!(open(&mut replica, 5), Verdict::Opened(standing) if standing.last == at(5, 1)));
}

#[test]
fn no_token_leaps_but_the_first() {
    let mut replica = founding();
    assert!(matches!(open(&mut replica, 1 << 40), Verdict::Opened(_)));
    assert_eq!(open(&mut replica, (1 << 40) + (1 << 33)), Verdict::Leap);
    assert_eq!(replica.promised(), ballot(1 << 40));
    assert!(matches!(open(&mut replica, (1 << 40) + (1 << 32)), Verdict::Opened(_)));
}

#[test]
fn it_cuts_at_a_conflict_and_nowhere_else() {
    let mut replica = founding();
    open(&mut replica, 1);
    ask(&mut replica, append(1, Position::START, vec![entry(1, 1), entry(1, 2), entry(1, 3)], 1));
    // Late, and shorter: all of it is there.
    assert_eq!(ask(&mut replica, append(1, Position::START, vec![entry(1, 1)], 1)), Verdict::Matched(3));
    assert_eq!(ballots(&replica), [1, 1, 1]);
    open(&mut replica, 2);
    // Matched is what this leader has shown.
    assert_eq!(ask(&mut replica, append(2, at(1, 1), vec![entry(1, 2)], 1)), Verdict::Matched(2));
    assert_eq!(ballots(&replica), [1, 1, 1]);
    assert_eq!(ask(&mut replica, append(2, at(1, 2), vec![entry(2, 4)], 1)), Verdict::Matched(3));
    assert_eq!(ballots(&replica), [1, 1, 2]);
}

/// A leader that fetches may have got a part of a log that it does not adopt after all.
#[test]
fn what_is_cut_has_not_matched() {
    let matched_after_a_cut = |planted| {
        let founding = DurableLog::founding(config(&[1, 2, 3]));
        let mut replica = Replica::restarted(founding, Limits::default(), planted);
        open(&mut replica, 3);
        let fetched = vec![entry(1, 1), entry(1, 2), entry(1, 3)];
        assert_eq!(ask(&mut replica, append(3, Position::START, fetched, 0)), Verdict::Matched(3));
        let verdict = ask(&mut replica, append(3, Position::START, vec![entry(2, 4)], 0));
        assert_eq!(ballots(&replica), [2]);
        verdict
    };
    assert_eq!(matched_after_a_cut(Planted::default()), Verdict::Matched(1));
    #[cfg(feature = "flaws")]
    assert_eq!(matched_after_a_cut(Planted { flaw: Some(Flaw::CountsNotAdopted) }), Verdict::Matched(3));
}

#[test]
fn what_is_committed_is_never_cut() {
    let mut replica = founding();
    open(&mut replica, 1);
    ask(&mut replica, append(1, Position::START, vec![entry(1, 1), entry(1, 2)], 2));
    assert_eq!(replica.commit(), 2);
    open(&mut replica, 2);
    let wrong = append(2, at(1, 1), vec![entry(2, 9)], 1);
    assert_eq!(replica.handle(&wrong, &mut Vec::new()), Err(Diverged { index: 2 }));
    assert_eq!(ballots(&replica), [1, 1]);
}

#[test]
fn it_says_where_it_is_behind() {
    let mut replica = founding();
    open(&mut replica, 1);
    ask(&mut replica, append(1, Position::START, vec![entry(1, 1), entry(1, 2)], 1));
    open(&mut replica, 3);
    let behind = |last| Verdict::Behind { commit: 1, last };
    assert_eq!(ask(&mut replica, append(3, at(2, 5), vec![], 1)), behind(at(1, 2)), "it ends before that");
    assert_eq!(ask(&mut replica, append(3, at(2, 2), vec![], 1)), behind(at(1, 2)), "it has another there");
    // At or below its commit there is nothing to compare.
    assert_eq!(ask(&mut replica, append(3, at(1, 1), vec![entry(2, 5)], 1)), Verdict::Matched(2));
    assert_eq!(ballots(&replica), [1, 2]);
}

#[test]
fn its_commit_rises_to_what_has_matched() {
    let mut replica = founding();
    open(&mut replica, 1);
    ask(&mut replica, append(1, Position::START, vec![entry(1, 1), entry(1, 2), entry(1, 3)], 0));
    open(&mut replica, 2);
    let beat = |commit| Request::Beat { ballot: ballot(2), round: 1, commit, time: GroupTime::default() };
    // What it has behind may be another's.
    assert_eq!(ask(&mut replica, beat(3)), Verdict::Beaten { round: 1, matched: 0 });
    assert_eq!(replica.commit(), 0);
    ask(&mut replica, append(2, Position::START, vec![entry(1, 1)], 3));
    assert_eq!(replica.commit(), 1);
    ask(&mut replica, beat(3));
    assert_eq!(replica.commit(), 1);
}

#[test]
fn after_a_restart_it_knows_its_promise_and_its_log_and_nothing_to_be_committed() {
    let mut replica = founding();
    open(&mut replica, 2);
    ask(&mut replica, append(2, Position::START, vec![entry(2, 1)], 1));
    let mut replica = restarted(replica.log().clone());
    assert_eq!((replica.promised(), replica.commit(), ballots(&replica)), (ballot(2), 0, vec![2]));
    assert_eq!(open(&mut replica, 1), Verdict::Outbid(ballot(2)));
}

#[test]
fn a_cut_restores_the_config_before() {
    let mut replica = founding();
    let new = config(&[1, 2, 3]).joint(config(&[1, 2, 4]).old().clone()).expect("one for another");
    let change = Entry { content: Content::Config(new.clone()), ..entry(1, 0) };
    open(&mut replica, 1);
    ask(&mut replica, append(1, Position::START, vec![entry(1, 1), change], 0));
    assert_eq!((replica.config(), replica.log().config_index()), (Some(&new), 2));
    assert_eq!(replica.log().config_at(1), Some(&config(&[1, 2, 3])));
    open(&mut replica, 2);
    ask(&mut replica, append(2, at(1, 1), vec![entry(2, 2)], 0));
    assert_eq!((replica.config(), replica.log().config_index()), (Some(&config(&[1, 2, 3])), 0));
}

#[test]
fn it_tells_a_leader_what_it_lacks_up_to_the_end() {
    let mut replica = founding();
    open(&mut replica, 1);
    ask(&mut replica, append(1, Position::START, vec![entry(1, 1), entry(1, 2), entry(1, 3)], 3));
    open(&mut replica, 2);
    let fetch = |prev, end| Request::Fetch { ballot: ballot(2), prev, end, chunk: 0 };
    let entries = vec![entry(1, 2)];
    assert_eq!(ask(&mut replica, fetch(at(1, 1), at(1, 2))), Verdict::Fetched { prev: at(1, 1), entries });
    let behind = Verdict::Behind { commit: 3, last: at(1, 2) };
    assert_eq!(ask(&mut replica, fetch(at(2, 2), at(1, 3))), behind, "also where all here is committed");
    for _ in 0..3 {
        replica.applied_next();
    }
    let snapshot = replica.compact(replica.applied(), 2, &mut Vec::new()).expect("something is applied");
    assert_eq!((snapshot.position, replica.log().entries().len()), (at(1, 3), 0));
    let outcome = replica.handle(&fetch(at(1, 1), at(1, 3)), &mut Vec::new());
    assert_eq!(outcome, Ok(Outcome::Chunk(snapshot.clone(), 0)));
    // It has had five chunks of an older snapshot from here.
    let fetch = Request::Fetch { ballot: ballot(2), prev: at(1, 1), end: at(1, 3), chunk: 5 };
    assert_eq!(replica.handle(&fetch, &mut Vec::new()), Ok(Outcome::Chunk(snapshot, 0)), "it has two chunks");
}

#[test]
fn a_snapshot_of_an_earlier_state_leaves_the_entries_behind_it() {
    let mut replica = founding();
    open(&mut replica, 1);
    ask(&mut replica, append(1, Position::START, vec![entry(1, 1), entry(1, 2), entry(1, 3)], 2));
    assert_eq!(replica.compact(1, 1, &mut Vec::new()), None, "nothing is applied");
    replica.applied_next();
    replica.applied_next();
    let snapshot = replica.compact(1, 1, &mut Vec::new()).expect("it is applied");
    assert_eq!((snapshot.position, replica.log().entries().len()), (at(1, 1), 2));
    assert_eq!(replica.compact(1, 1, &mut Vec::new()), None, "there is that snapshot");
    assert_eq!(replica.compact(3, 1, &mut Vec::new()), None, "it is not applied");
    assert_eq!((replica.applied(), replica.log().last()), (2, at(1, 3)));
}

fn install(token: u64, position: Position, chunk: u32) -> Request<Vec<u8>> {
    let snapshot = Snapshot { position, config: config(&[1, 2, 3]), time: GroupTime::default(), chunks: 2 };
    Request::Install { ballot: ballot(token), snapshot, chunk, data: vec![chunk as u8] }
}

#[test]
fn a_snapshot_comes_in_chunks_and_takes_the_place_of_the_log() {
    let mut replica = restarted(DurableLog::blank());
    open(&mut replica, 3);
    assert_eq!(ask(&mut replica, append(3, Position::START, vec![], 0)), Verdict::Blank);
    let wants = |chunk| Verdict::Wants { position: at(2, 4), chunk };
    assert_eq!(ask(&mut replica, install(3, at(2, 4), 1)), wants(0));
    assert_eq!(ask(&mut replica, install(3, at(2, 4), 0)), wants(1));
    assert_eq!(ask(&mut replica, install(3, at(2, 4), 0)), wants(1), "twice");
    assert_eq!(replica.log().snapshot(), None);
    assert_eq!(ask(&mut replica, install(3, at(2, 4), 1)), Verdict::Matched(4));
    assert_eq!((replica.commit(), replica.applied(), replica.log().last()), (4, 4, at(2, 4)));
    assert_eq!(replica.promised(), ballot(3));
    // One that comes late changes nothing.
    ask(&mut replica, append(3, at(2, 4), vec![entry(3, 1)], 0));
    assert_eq!(ask(&mut replica, install(3, at(2, 4), 0)), Verdict::Matched(5));
    assert_eq!(ask(&mut replica, install(3, at(1, 2), 0)), Verdict::Matched(5));
    assert_eq!(replica.log().last(), at(3, 5));
}

#[test]
fn chunks_of_two_leaders_are_not_put_together() {
    let mut replica = restarted(DurableLog::blank());
    open(&mut replica, 3);
    ask(&mut replica, install(3, at(2, 4), 0));
    open(&mut replica, 4);
    assert_eq!(ask(&mut replica, install(4, at(2, 4), 1)), Verdict::Wants { position: at(2, 4), chunk: 0 });
}

/// The clock of one leader may be ahead of the one that the log went on by.
#[test]
fn time_counts_as_told_by_who_has_appended_the_last_entry() {
    let time_after = |planted| {
        let founding = DurableLog::founding(config(&[1, 2, 3]));
        let mut replica = Replica::restarted(founding, Limits::default(), planted);
        let beat = |token, millis| Request::Beat {
            ballot: ballot(token),
            round: 1,
            commit: 0,
            time: GroupTime::from_millis(millis),
        };
        open(&mut replica, 1);
        ask(&mut replica, append(1, Position::START, vec![entry(1, 1)], 0));
        ask(&mut replica, beat(1, 40));
        open(&mut replica, 2);
        ask(&mut replica, beat(2, 90));
        let while_opening = replica.time().millis();
        ask(&mut replica, append(2, at(1, 1), vec![entry(2, 2)], 0));
        ask(&mut replica, beat(2, 20));
        let times = [while_opening, replica.time().millis()];
        let log = replica.log().clone();
        (times, restarted(log).time().millis())
    };
    assert_eq!(time_after(Planted::default()), ([40, 20], 0));
    #[cfg(feature = "flaws")]
    assert_eq!(time_after(Planted { flaw: Some(Flaw::TimeOfAnyBallot) }), ([90, 90], 0));
}
