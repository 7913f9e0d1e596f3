//! The published ring by hand: one message at a time, first come, first served.

use std::collections::VecDeque;

use primacy_core::Instant;
use primacy_core::contest::ring::Circle;
use primacy_core::contest::{Contest as _, Context, Effect, Event, PeerId};

use super::*;

fn circle(ids: &[u16]) -> Circle {
    Circle::new(ids.iter().copied().map(PeerId))
}

/// What one machine does.
fn handle(machine: &mut Published, event: Event<Word>, now: Instant) -> Vec<Effect<Word>> {
    let mut effects = Vec::new();
    machine.handle(event, &mut Context { now, entropy: &mut || 0, effects: &mut effects });
    effects
}

#[test]
fn as_published_one_start_makes_the_greatest_id_lead_and_lifts_every_block() {
    let ids = [1, 2, 3, 4];
    let mut machines = ids.map(|id| Published::member(PeerId(id), circle(&ids), HEARTBEAT));
    let mut opinions = Vec::new();
    let mut coming = VecDeque::from([(2, Event::Vacant)]);
    while let Some((by, event)) = coming.pop_front() {
        for effect in handle(&mut machines[usize::from(by) - 1], event, Instant::ZERO) {
            match effect {
                Effect::Send { to, message } => coming.push_back((to.0, Event::Heard { from: PeerId(by), message })),
                Effect::Nominate(nominee) => opinions.push((by, nominee.0)),
            }
        }
    }
    assert_eq!(opinions, [(4, 4), (1, 4), (2, 4), (3, 4)]);
    assert!(machines.iter().all(|machine| !machine.is_blocked()));
}

#[test]
fn as_published_a_participant_discards_smaller_ids_and_a_blocked_server_all() {
    let heard = |id| Event::Heard { from: PeerId(1), message: Word::Election(PeerId(id)) };
    let send = |message| Effect::Send { to: PeerId(3), message };
    let mut machine = Published::member(PeerId(2), circle(&[1, 2, 3]), HEARTBEAT);
    assert_eq!(handle(&mut machine, heard(1), Instant::ZERO), [send(Word::Election(PeerId(2)))]);
    assert_eq!(handle(&mut machine, heard(1), Instant::ZERO), []);
    assert_eq!(handle(&mut machine, heard(3), Instant::ZERO), [send(Word::Election(PeerId(3)))]);
    let elected = Event::Heard { from: PeerId(1), message: Word::Elected(PeerId(3)) };
    let effects = [Effect::Nominate(PeerId(3)), send(Word::Elected(PeerId(3)))];
    assert_eq!(handle(&mut machine, elected, Instant::ZERO), effects);
    assert!(machine.is_blocked());
    assert_eq!(handle(&mut machine, heard(2), Instant::ZERO), []);
    handle(&mut machine, Event::Heard { from: PeerId(3), message: Word::Unblock }, Instant::ZERO);
    assert_eq!(handle(&mut machine, heard(2), Instant::ZERO).first(), Some(&Effect::Nominate(PeerId(2))));
}

#[test]
fn as_published_a_missing_reply_starts_an_election_and_a_reply_none() {
    let at = |beats: u32| Instant::ZERO + HEARTBEAT * beats;
    let ask = Effect::Send { to: PeerId(3), message: Word::Ask };
    let mut machine = Published::member(PeerId(1), circle(&[1, 2, 3]), HEARTBEAT);
    handle(&mut machine, Event::Led(PeerId(3)), at(0));
    assert_eq!(handle(&mut machine, Event::Wake, at(0)), std::slice::from_ref(&ask));
    handle(&mut machine, Event::Heard { from: PeerId(3), message: Word::Reply }, at(0));
    assert_eq!(handle(&mut machine, Event::Wake, at(1)), std::slice::from_ref(&ask));
    let start = Effect::Send { to: PeerId(2), message: Word::Election(PeerId(1)) };
    assert_eq!(handle(&mut machine, Event::Wake, at(2)), [start, ask]);
}
