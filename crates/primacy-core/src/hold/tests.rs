//! What a hold does about each thing that can happen to it.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Cause, Context, Effect, Event, Hold, News, Span};
use crate::lease::EndReason;
use crate::{Instant, Token};

const PATIENCE: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn token(number: u64) -> Token {
    Token::new(number).expect("small")
}

fn span(stop_at: u64, deadline: u64) -> Span {
    Span { stop_at: at(stop_at), deadline: at(deadline) }
}

fn hold() -> Hold {
    Hold::new(PATIENCE, at(0))
}

fn step(hold: &mut Hold, now: u64, event: Event) -> Vec<Effect> {
    let mut effects = Vec::new();
    hold.handle(event, &mut Context { now: at(now), effects: &mut effects });
    effects
}

/// One that leads from 1 with token 7, told until 9 and to stop at 5, and has read that.
fn leading() -> Hold {
    let mut hold = hold();
    let told = step(&mut hold, 1, Event::Elected { token: token(7), span: span(5, 9) });
    assert_eq!(told, [Effect::Tell(1, News::Elected { token: token(7), span: span(5, 9) })]);
    assert_eq!(step(&mut hold, 1, Event::Read(1)), []);
    hold
}

#[test]
fn a_program_that_says_that_its_work_has_stopped_gives_back_that_leadership_and_no_other() {
    let mut hold = leading();
    assert_eq!(step(&mut hold, 2, Event::Stopped(token(6))), [], "of one that is over");
    assert_eq!(step(&mut hold, 2, Event::Stopped(token(7))), [Effect::Release(Cause::Stopped)]);
    assert_eq!(step(&mut hold, 2, Event::Ended(EndReason::Finished)), [], "it is known already");
    assert!(hold.is_connected() && hold.token().is_none(), "it waits again");
}

#[test]
fn a_closed_connection_gives_nothing_back_before_the_deadline_and_a_proof_does() {
    let mut alive = leading();
    assert_eq!(step(&mut alive, 2, Event::Disconnected), [Effect::Withdraw]);
    assert_eq!(step(&mut alive, 3, Event::Ended(EndReason::Suspended)), []);
    assert_eq!(alive.deadline(), Some(at(9)));
    assert_eq!(step(&mut alive, 8, Event::Wake), []);
    assert!(!alive.is_over());
    let mut dead = alive.clone();
    assert_eq!(step(&mut alive, 9, Event::Wake), [Effect::Release(Cause::Passed)]);
    assert!(alive.is_over());
    assert_eq!(step(&mut dead, 8, Event::Proven), [Effect::Release(Cause::Dead)]);
    assert!(dead.is_over());
}

#[test]
fn a_program_that_does_not_read_is_told_of_no_more_than_it_can_have_heard() {
    let mut hold = leading();
    let extended = |stop_at| News::Extended { token: token(7), span: span(stop_at, stop_at + 4) };
    assert_eq!(step(&mut hold, 2, Event::Extended(span(6, 10))), [Effect::Tell(2, extended(6))]);
    assert_eq!(step(&mut hold, 3, Event::Extended(span(7, 11))), [], "the last one was not read");
    assert_eq!(step(&mut hold, 4, Event::Extended(span(8, 12))), []);
    // By what it has read it stops at 5.
    assert_eq!(hold.deadline(), Some(at(5)));
    let mut reader = hold.clone();
    assert_eq!(step(&mut reader, 4, Event::Read(2)), [Effect::Tell(3, extended(8))], "the latest alone");
    assert_eq!(reader.deadline(), Some(at(6)));
    assert_eq!(step(&mut reader, 4, Event::Read(9)), [], "no such frame was sent");
    assert_eq!(step(&mut reader, 4, Event::Read(3)), []);
    assert_eq!(reader.deadline(), None);

    assert_eq!(step(&mut hold, 5, Event::Wake), [Effect::HangUp, Effect::Withdraw]);
    // The latest that it may still read in its end of the connection.
    assert_eq!(hold.deadline(), Some(at(10)));
    assert_eq!(step(&mut hold, 10, Event::Wake), [Effect::Release(Cause::Passed)]);
}

#[test]
fn a_leadership_that_ends_early_is_kept_until_the_program_has_heard() {
    let mut hold = leading();
    let reason = EndReason::Suspended;
    let lost = News::Lost { token: token(7), reason: reason.clone() };
    assert_eq!(step(&mut hold, 2, Event::Ended(reason)), [Effect::Tell(2, lost)]);
    let mut silent = hold.clone();
    assert_eq!(step(&mut hold, 3, Event::Stopped(token(7))), [Effect::Release(Cause::Stopped)]);
    assert_eq!(step(&mut silent, 8, Event::Wake), []);
    let mut reader = silent.clone();
    assert_eq!(step(&mut silent, 9, Event::Wake), [], "it may yet read of its loss");
    let gone = [Effect::Release(Cause::Passed), Effect::HangUp, Effect::Withdraw];
    assert_eq!(step(&mut silent, 12, Event::Wake), gone);
    assert_eq!(step(&mut reader, 8, Event::Read(2)), []);
    assert_eq!(step(&mut reader, 9, Event::Wake), [Effect::Release(Cause::Passed)], "it believes no more");
    assert!(reader.is_connected());
}

#[test]
fn who_is_elected_when_it_has_gone_never_leads() {
    let mut hold = hold();
    assert_eq!(step(&mut hold, 1, Event::Disconnected), [Effect::Withdraw]);
    assert!(hold.is_over());
    assert_eq!(
        step(&mut hold, 1, Event::Elected { token: token(7), span: span(5, 9) }),
        [Effect::Release(Cause::NeverTold)]
    );
    assert!(hold.is_over());
}

#[test]
fn a_program_that_waits_and_does_not_read_is_hung_up_on() {
    let mut hold = hold();
    assert_eq!(step(&mut hold, 1, Event::Moved), [Effect::Tell(1, News::Waiting)]);
    assert_eq!(step(&mut hold, 2, Event::Moved), []);
    assert_eq!(step(&mut hold, 2, Event::Read(1)), [Effect::Tell(2, News::Waiting)]);
    assert_eq!(step(&mut hold, 3, Event::Read(2)), []);
    // It is asked for a sign of life.
    assert_eq!(step(&mut hold, 12, Event::Wake), [Effect::Tell(3, News::Waiting)]);
    assert_eq!(step(&mut hold, 22, Event::Wake), vec![Effect::HangUp, Effect::Withdraw]);
    assert!(hold.is_over());
}

#[test]
fn work_that_is_told_to_stop_is_told_so_at_once() {
    let mut hold = leading();
    let _ = step(&mut hold, 2, Event::Extended(span(6, 10)));
    let _ = step(&mut hold, 3, Event::Extended(span(7, 11)));
    let (reason, by) = (EndReason::Resigned, at(8));
    let draining = News::Draining { token: token(7), reason: reason.clone(), by };
    assert_eq!(step(&mut hold, 3, Event::Draining { reason, by }), [Effect::Tell(3, draining)]);
    assert_eq!(step(&mut hold, 4, Event::Read(3)), [], "an extension that was not told is none any more");
    assert_eq!(step(&mut hold, 4, Event::Stopped(token(7))), [Effect::Release(Cause::Stopped)]);
}

#[test]
fn an_extension_that_waits_to_be_told_goes_with_its_leadership() {
    let mut hold = leading();
    let _ = step(&mut hold, 2, Event::Extended(span(6, 10)));
    let _ = step(&mut hold, 3, Event::Extended(span(7, 11)));
    assert_eq!(step(&mut hold, 3, Event::Stopped(token(7))), [Effect::Release(Cause::Stopped)]);
    assert_eq!(step(&mut hold, 3, Event::Read(2)), []);
}

#[test]
fn a_program_that_has_read_all_is_not_hung_up_on_because_the_agent_was_late() {
    let mut hold = leading();
    let extended = News::Extended { token: token(7), span: span(10, 14) };
    assert_eq!(step(&mut hold, 6, Event::Extended(span(10, 14))), [Effect::Tell(2, extended)]);
    assert_eq!(hold.deadline(), Some(at(10)));
    assert_eq!(step(&mut hold, 7, Event::Stopped(token(7))), [Effect::Release(Cause::Stopped)]);
}
