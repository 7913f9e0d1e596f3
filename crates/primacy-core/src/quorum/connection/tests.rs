//! What waits, what is lost, and when a connection is given up and made anew.

use super::*;

type Connection = VoterConnection<u64, &'static str>;

const A: VoterId = VoterId::from_bits(1);
const B: VoterId = VoterId::from_bits(2);

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

fn send(number: u64, question: &'static str) -> ConnectionEffect<u64, &'static str> {
    ConnectionEffect::Send { number, question }
}

fn lost(voter: VoterId, tag: u64) -> ConnectionEffect<u64, &'static str> {
    ConnectionEffect::Lost { voter, tag }
}

/// One that was made at once, to this voter.
fn opened() -> Connection {
    let mut out = Vec::new();
    let mut connection = Connection::open(&mut out);
    assert_eq!(out, [ConnectionEffect::Connect]);
    connection.connected(A, at(0), &mut out);
    connection
}

#[test]
fn questions_wait_for_the_first_connection_and_for_no_later_one() {
    let mut out = Vec::new();
    let mut connection = Connection::open(&mut Vec::new());
    connection.ask(A, 7, "one", at(0), &mut out);
    connection.ask(B, 8, "for another", at(0), &mut out);
    assert!(out.is_empty() && connection.is_opening() && connection.next_tick().is_none());
    connection.connected(A, at(5), &mut out);
    assert_eq!(out, [send(1, "one"), lost(B, 8)], "another voter answers there than the one that is meant");
    out.clear();
    connection.failed(at(6), &mut out);
    assert_eq!(out, [ConnectionEffect::Close, lost(A, 7)]);
    out.clear();
    connection.ask(A, 9, "two", at(7), &mut out);
    assert_eq!(out, [lost(A, 9)]);
    assert_eq!(connection.answered(1), None, "an answer over the connection that broke is none");
}

#[test]
fn a_first_connection_that_cannot_be_made_loses_what_waits_for_it() {
    let mut out = Vec::new();
    let mut connection = Connection::open(&mut Vec::new());
    connection.ask(A, 7, "one", at(0), &mut out);
    connection.failed(at(3), &mut out);
    assert_eq!(out, [lost(A, 7)]);
    assert!(!connection.is_opening());
}

#[test]
fn the_pause_before_the_next_attempt_doubles_up_to_a_second_and_is_short_again_after_a_success() {
    let mut connection = opened();
    let (mut now, mut pauses) = (at(0), Vec::new());
    for _ in 0..8 {
        let mut out = Vec::new();
        connection.failed(now, &mut out);
        let next = connection.next_tick().expect("it is made anew");
        pauses.push(next.since(now).as_millis());
        connection.tick(next - Duration::from_nanos(1), &mut out);
        assert!(!out.contains(&ConnectionEffect::Connect), "too early");
        connection.tick(next, &mut out);
        assert_eq!(out.last(), Some(&ConnectionEffect::Connect));
        assert_eq!(connection.next_tick(), None, "an attempt has its own time-out");
        now = next;
    }
    assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1_000, 1_000]);
    connection.connected(A, now, &mut Vec::new());
    connection.failed(now, &mut Vec::new());
    assert_eq!(connection.next_tick(), Some(now + Duration::from_millis(20)));
}

#[test]
fn a_question_that_is_not_answered_ends_the_connection_also_after_it_was_made_anew() {
    let mut connection = opened();
    for round in 0..3 {
        let begin = at(round * 5_000);
        let mut out = Vec::new();
        connection.ask(A, 1, "first", begin, &mut out);
        connection.ask(A, 2, "second", begin + Duration::from_millis(300), &mut out);
        let [ConnectionEffect::Send { number, .. }, _] = out[..] else { panic!("both are sent: {out:?}") };
        assert_eq!(connection.answered(number), Some((A, 1)));
        assert_eq!(connection.answered(number), None, "once");
        let silent = begin + Duration::from_millis(1_300);
        assert_eq!(connection.next_tick(), Some(silent), "the oldest that is open counts");
        out.clear();
        connection.tick(silent, &mut out);
        assert_eq!(out, [ConnectionEffect::Close, lost(A, 2)]);
        let again = connection.next_tick().expect("it is made anew");
        connection.tick(again, &mut out);
        connection.connected(A, again, &mut out);
        assert_eq!(connection.next_tick(), None, "nothing is open");
    }
}

#[test]
fn a_question_that_is_given_up_ends_the_connection_if_nothing_was_heard_since() {
    let given_up = |heard: Option<u64>, tag: u64, at_millis: u64| {
        let (mut connection, mut out) = (opened(), Vec::new());
        connection.ask(A, 7, "one", at(10), &mut out);
        connection.ask(A, 8, "of another", at(11), &mut out);
        heard.into_iter().for_each(|millis| connection.heard(at(millis)));
        out.clear();
        connection.give_up(|asked| asked == tag, at(at_millis), &mut out);
        out
    };
    let ended = [ConnectionEffect::Close, lost(A, 7), lost(A, 8)];
    assert_eq!(given_up(None, 7, 40), ended, "the other asks anew, too");
    assert_eq!(given_up(Some(10), 7, 40), ended, "what came before it was asked says nothing");
    assert_eq!(given_up(Some(12), 7, 40), [], "it serves others");
    assert_eq!(given_up(None, 7, 20), [], "it is not late");
    assert_eq!(given_up(None, 9, 40), [], "who has asked nothing knows nothing");
}
