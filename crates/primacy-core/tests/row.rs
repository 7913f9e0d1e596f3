//! The rules of an election's record against an oracle.
//!
//! The oracle is a naive store, written apart on purpose from the descriptions of [`Request`] and [`OrderKind`]: it changes
//! its record in place, field by field, and shares no code with the rules. The other stores in memory share them.

use std::time::Duration;

use primacy_core::lease::row::{self, Verdict};
use primacy_core::lease::{
    EndReason, Expectation, Floor, HandoverRequest, Holder, Order, OrderKind, Record, Request, Version,
};
use primacy_core::{CandidateId, Label, Token};
use proptest::prelude::*;

/// The oracle.
#[derive(Clone, Debug, Default, PartialEq)]
struct NaiveStore {
    record: Option<Record>,
    remembered: u64,
}

/// What became of an order; and why the term has ended, if it has.
#[derive(Clone, Debug, PartialEq)]
enum Naive {
    Written(Option<EndReason>),
    Already,
    TokenChanged,
}

impl NaiveStore {
    /// Takes a step, and says whether it changed anything.
    fn step(&mut self, request: &Request) -> bool {
        match request {
            Request::Look { .. } | Request::Leave => false,
            Request::Acquire { expect, floor, holder, lease } => {
                let as_expected = match (&self.record, expect) {
                    (None, None) => self.remembered <= floor.seen.get(),
                    (None, Some(_)) | (Some(_), None) => false,
                    (Some(record), Some(Expectation { version, order_number })) => {
                        record.version.token == version.token
                            && record.version.beat == version.beat
                            && record.order_number == *order_number
                    }
                };
                if !as_expected {
                    return false;
                }
                let mut last = self.remembered;
                for floor in [floor.seen, floor.outside] {
                    if floor.get() > last {
                        last = floor.get();
                    }
                }
                let (order_number, paused) =
                    self.record.as_ref().map_or((0, false), |record| (record.order_number, record.paused));
                if let Some(record) = &self.record
                    && record.version.token.get() > last
                {
                    last = record.version.token.get();
                }
                self.remembered = last + 1;
                let token = Token::new(self.remembered).expect("small");
                let holder = Some(holder.clone());
                let version = Version { token, beat: 1 };
                self.record = Some(Record { version, holder, lease: *lease, order_number, handover: None, paused });
                true
            }
            Request::Renew { id, version, lease, completed_order } => {
                let Some(record) = self.held_by(*id, *version) else { return false };
                record.version.beat += 1;
                record.lease = *lease;
                if *completed_order == Some(record.order_number) {
                    record.handover = None;
                }
                true
            }
            Request::Release { id, version, .. } => {
                let Some(record) = self.held_by(*id, *version) else { return false };
                record.version.beat += 1;
                record.holder = None;
                if record.handover == Some(HandoverRequest::NewElection) {
                    record.handover = None;
                }
                true
            }
        }
    }

    fn held_by(&mut self, id: CandidateId, version: Version) -> Option<&mut Record> {
        let record = self.record.as_mut()?;
        let holder = record.holder.as_ref()?;
        (holder.id == id && record.version == version).then_some(record)
    }

    /// Takes an order on a record, and says what became of it.
    fn order(&mut self, live: bool, order: &Order) -> Naive {
        let record = self.record.as_mut().expect("there is one");
        if order.token.is_some_and(|token| token != record.version.token) {
            return Naive::TokenChanged;
        }
        let before = record.clone();
        let mut is_emptied = false;
        match &order.kind {
            OrderKind::Pause => record.paused = true,
            OrderKind::Resume => record.paused = false,
            OrderKind::Depose { now } => {
                if record.holder.is_some() {
                    is_emptied = *now;
                    record.handover = if *now { None } else { Some(HandoverRequest::NewElection) };
                }
            }
            OrderKind::Promote { successor, now } => {
                let leads = live && record.holder.as_ref().is_some_and(|holder| holder.label == *successor);
                is_emptied = *now && !leads && record.holder.is_some();
                record.handover = if leads { None } else { Some(HandoverRequest::Successor(successor.clone())) };
            }
        }
        if is_emptied {
            record.holder = None;
            record.version.beat += 1;
        }
        if *record == before {
            return Naive::Already;
        }
        record.order_number += 1;
        Naive::Written(is_emptied.then(|| match &order.kind {
            OrderKind::Promote { successor, .. } => EndReason::Promoted { successor: successor.clone() },
            _ => EndReason::Deposed,
        }))
    }
}

/// One draw of a step: what it is, who takes it, and how far what it insists on is off.
type Draw = (u8, u8, u8, u8, bool);

fn label(n: u8) -> Label {
    Label::new(format!("c{n}")).expect("valid")
}

fn token(number: u64) -> Token {
    Token::new(number).expect("small")
}

/// The version that a candidate insists on: mostly the record's.
fn version(record: Option<&Record>, off: u8) -> Version {
    let mut version = record.map_or_else(Version::default, |record| record.version);
    match off {
        0 => version.beat = version.beat.saturating_sub(1),
        1 => version.beat += 1,
        2 => version.token = token(version.token.get().saturating_sub(1)),
        _ => {}
    }
    version
}

fn request((what, who, off, floor, flag): Draw, store: &NaiveStore) -> Request {
    let record = store.record.as_ref();
    let holder = Holder { id: CandidateId::from_bits(u128::from(who)), label: label(who), data: String::new() };
    let (lease, version) = (Duration::from_secs(1 + u64::from(off)), version(record, off));
    let order_number = record.map_or(0, |record| record.order_number);
    match what {
        0..3 => {
            let order_number = if off == 3 { order_number + 1 } else { order_number };
            let expect = (record.is_some() != (off == 4)).then_some(Expectation { version, order_number });
            let near = |ahead| token((store.remembered + u64::from(ahead)).saturating_sub(2));
            let floor = Floor { seen: near(floor), outside: if flag { near(off) } else { Token::NONE } };
            Request::Acquire { expect, floor, holder, lease }
        }
        3..6 => {
            let completed_order = flag.then_some(order_number + u64::from(off == 3));
            Request::Renew { id: holder.id, version, lease, completed_order }
        }
        _ => Request::Release { id: holder.id, version, reason: EndReason::Finished },
    }
}

fn order((what, who, off, _, flag): Draw, record: Option<&Record>) -> Order {
    let kind = match what {
        0 => OrderKind::Pause,
        1 => OrderKind::Resume,
        2..4 => OrderKind::Depose { now: flag },
        _ => OrderKind::Promote { successor: label(who), now: flag },
    };
    let token = record.filter(|_| off < 4).map(|_| version(record, off).token);
    Order { kind, token }
}

fn draw() -> impl Strategy<Value = (bool, Draw)> {
    (prop::bool::weighted(0.3), (0_u8..8, 1_u8..4, 0_u8..12, 0_u8..5, any::<bool>()))
}

proptest! {
    #[test]
    fn the_rules_do_what_the_oracle_does(draws in prop::collection::vec(draw(), 1..60)) {
        let mut oracle = NaiveStore::default();
        let (mut record, mut remembered) = (None::<Record>, Token::NONE);
        for (is_order, draw) in draws {
            let before = oracle.clone();
            let (is_changed, next) = if is_order {
                let Some(judged) = &record else { continue };
                let (live, order) = (draw.3 > 1, order(draw, record.as_ref()));
                let (became, next) = match row::order(judged, live, &order) {
                    Verdict::Write(next, reason) => (Naive::Written(reason), Some(next)),
                    Verdict::Already => (Naive::Already, None),
                    Verdict::TokenChanged => (Naive::TokenChanged, None),
                };
                prop_assert_eq!(oracle.order(live, &order), became, "{:?} of {:?}", order, &before);
                (next.is_some(), next)
            } else {
                let request = request(draw, &oracle);
                let next = row::change(record.as_ref(), remembered, 0, &request).expect("tokens are left");
                (oracle.step(&request), next)
            };
            prop_assert_eq!(is_changed, next.is_some(), "{:?} of {:?}", draw, &before);
            record = next.or(record);
            remembered = remembered.max(record.as_ref().map_or(Token::NONE, |record| record.version.token));
            prop_assert_eq!(&record, &oracle.record, "{:?} of {:?}", draw, &before);
            prop_assert_eq!(remembered.get(), oracle.remembered);
            // Somebody deletes the row now and then.
            if !is_order && draw.2 == 11 && draw.3 == 4 {
                (record, oracle.record) = (None, None);
            }
        }
    }
}
