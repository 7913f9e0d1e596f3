//! What TCP does about lost packets in one direction of a connection: time-outs (RFC 6298), losses that show by what was sent
//! later and has arrived (RACK), and probes of a tail (TLP; both RFC 8985).
//!
//! Nothing is drawn here and nothing waits: the network tells both ends what reached them, and they tell what is to be sent. Each
//! frame is a segment. Of the windows there is only what a time-out leaves of them: nothing new is sent until something comes back.

use std::collections::{BTreeSet, VecDeque};

/// How much later than at once a receiver acknowledges what came in order, if it has nothing else to send: as Linux.
const DELAY: u64 = 40_000_000;

/// The most that a sender expects of that, as RFC 8985 and Linux.
const WORST_DELAY: u64 = 200_000_000;

/// The longest time-out, as Linux.
const LONGEST: u64 = 120_000_000_000;

/// What a receiver says that it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ack {
    /// All before this one.
    next: u64,
    /// And these.
    beyond: BTreeSet<u64>,
}

/// The end that sends, with what it knows.
#[derive(Debug)]
pub(crate) struct Sender {
    /// The shortest time-out.
    least: u64,
    /// The receiver tells of what is beyond a hole (SACK), which RACK and TLP ask for; else there are only time-outs.
    selective: bool,
    trips: Trips,
    /// The number of the first in flight.
    first: u64,
    /// All from the first one on that is not known to have arrived.
    flight: VecDeque<Segment>,
    /// Of those known to have arrived the one that was sent last: when, its number, and how long its acknowledgment took.
    latest: Option<(u64, u64, u64)>,
    /// When a new one was sent or something was heard.
    moved: u64,
    /// From when on the time-out counts.
    since: u64,
    /// How often it has passed.
    doubled: u32,
    /// It has passed, and nothing was heard since.
    waits: bool,
}

#[derive(Debug)]
struct Segment {
    /// When it was sent last, if ever.
    sent: Option<u64>,
    again: bool,
    /// It is known to have arrived.
    arrived: bool,
}

/// How long it takes until something comes back.
#[derive(Debug)]
struct Trips {
    least: u64,
    smooth: u64,
    varies: u64,
}

/// The end that receives.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    /// All before this one have arrived.
    next: u64,
    beyond: BTreeSet<u64>,
    /// When it says so of its own accord, if it has not said all.
    owes: Option<u64>,
}

impl Trips {
    fn sample(&mut self, trip: u64) {
        self.least = self.least.min(trip);
        self.varies = (self.varies * 3 + self.smooth.abs_diff(trip)) / 4;
        self.smooth = (self.smooth * 7 + trip) / 8;
    }
}

impl Sender {
    /// A sender whose shortest time-out and first round trip are these.
    pub(crate) fn new(least: u64, trip: u64, selective: bool) -> Self {
        let trips = Trips { least: trip, smooth: trip, varies: trip / 2 };
        let flight = VecDeque::new();
        let latest = None;
        Self { least, selective, trips, first: 0, flight, latest, moved: 0, since: 0, doubled: 0, waits: false }
    }

    /// There is a new segment: its number, if it is to be sent now.
    pub(crate) fn push(&mut self, now: u64) -> Option<u64> {
        let sent = Some(now).filter(|_| !self.waits);
        let number = self.next();
        if sent.is_some() {
            self.moved = now;
            if self.flight.is_empty() {
                self.since = now;
            }
        }
        self.flight.push_back(Segment { sent, again: false, arrived: false });
        sent.map(|_| number)
    }

    /// An acknowledgment has come: which segments are to be sent now.
    pub(crate) fn hear(&mut self, ack: &Ack, now: u64) -> Vec<u64> {
        let mut trip = None;
        let mut is_news = false;
        for (number, segment) in (self.first..).zip(&mut self.flight) {
            if number >= ack.next && ack.beyond.is_empty() {
                break;
            }
            let tells = number < ack.next || self.selective && ack.beyond.contains(&number);
            let Some(sent) = segment.sent.filter(|_| !segment.arrived && tells) else { continue };
            (segment.arrived, is_news) = (true, true);
            let took = now.saturating_sub(sent);
            if !segment.again {
                trip = trip.or(Some(took));
            }
            // What came back sooner than anything can was sent before.
            if !(segment.again && took < self.trips.least)
                && self.latest.is_none_or(|last| (sent, number) > (last.0, last.1))
            {
                self.latest = Some((sent, number, took));
            }
        }
        if !is_news {
            return Vec::new();
        }
        if let Some(trip) = trip {
            self.trips.sample(trip);
        }
        (self.moved, self.waits) = (now, false);
        while self.flight.front().is_some_and(|segment| segment.arrived) {
            self.flight.pop_front();
            self.first += 1;
            (self.since, self.doubled) = (now, 0);
        }
        let mut send = self.resend(now);
        for (number, segment) in (self.first..).zip(&mut self.flight) {
            if segment.sent.is_none() {
                segment.sent = Some(now);
                send.push(number);
            }
        }
        send
    }

    /// When it does something of its own accord, unless it hears something before.
    pub(crate) fn due(&self) -> Option<u64> {
        self.flight.front()?;
        let timeout = self.since.saturating_add(self.timeout());
        let tail = self.probes().map_or(timeout, |wait| timeout.min(self.moved + wait));
        let flight = self.flight.iter().enumerate();
        let lost = flight.filter_map(|(index, segment)| self.lost_at(self.first + index as u64, segment));
        Some(lost.fold(tail, u64::min))
    }

    /// That time has come: which segments are to be sent now.
    pub(crate) fn expire(&mut self, now: u64) -> Vec<u64> {
        let lost = self.resend(now);
        if !lost.is_empty() {
            return lost;
        }
        let last = self.flight.iter().rposition(|segment| segment.sent.is_some());
        let index = if self.probes().is_some() {
            last
        } else {
            (self.doubled, self.waits) = (self.doubled + 1, true);
            last.map(|_| 0)
        };
        let Some(index) = index else { return Vec::new() };
        self.since = now;
        self.flight[index].send_again(now);
        vec![self.first + index as u64]
    }

    /// Nothing is sent before something is heard.
    pub(crate) const fn waits(&self) -> bool {
        self.waits
    }

    /// The number of the next one.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.flight.len() as u64
    }

    /// About how long something takes one way.
    pub(crate) const fn way(&self) -> u64 {
        self.trips.least / 2
    }

    /// Nothing of what was sent matters any more.
    pub(crate) fn forget(&mut self) {
        self.first = self.next();
        self.flight.clear();
        (self.doubled, self.waits) = (0, false);
    }

    /// Sends again what is lost because a later one has arrived, and it has had its time.
    fn resend(&mut self, now: u64) -> Vec<u64> {
        let mut lost = Vec::new();
        if self.latest.is_some() {
            for index in 0..self.flight.len() {
                let number = self.first + index as u64;
                if self.lost_at(number, &self.flight[index]).is_some_and(|at| at <= now) {
                    self.flight[index].send_again(now);
                    self.since = now;
                    lost.push(number);
                }
            }
        }
        lost
    }

    /// When a segment counts as lost, if a later one has arrived. Until then it may have been overtaken.
    fn lost_at(&self, number: u64, segment: &Segment) -> Option<u64> {
        let (latest, last, took) = self.latest?;
        let sent = segment.sent.filter(|sent| !segment.arrived && (*sent, number) < (latest, last))?;
        Some(sent + took + self.trips.least / 4)
    }

    /// After how long the tail is probed, if it is: nothing else is being mended.
    fn probes(&self) -> Option<u64> {
        let in_order =
            self.selective && !self.waits && self.flight.iter().all(|segment| !segment.arrived && !segment.again);
        let alone = if self.flight.len() == 1 { WORST_DELAY } else { 0 };
        in_order.then_some(self.trips.smooth * 2 + alone)
    }

    fn timeout(&self) -> u64 {
        let first = self.least.max(self.trips.smooth + self.trips.varies * 4);
        first.saturating_mul(1 << self.doubled.min(32)).min(LONGEST)
    }
}

impl Segment {
    const fn send_again(&mut self, now: u64) {
        (self.sent, self.again) = (Some(now), true);
    }
}

impl Receiver {
    /// A segment has arrived. Whether it must say so at once: something is missing, or was.
    pub(crate) fn take(&mut self, number: u64, now: u64) -> bool {
        let in_order = number == self.next && self.beyond.is_empty();
        if number == self.next {
            self.next += 1;
            while self.beyond.remove(&self.next) {
                self.next += 1;
            }
        } else if number > self.next {
            self.beyond.insert(number);
        }
        if in_order && self.owes.is_none() {
            self.owes = Some(now + DELAY);
        }
        !in_order
    }

    /// What it says with whatever it sends.
    pub(crate) fn ack(&mut self) -> Ack {
        self.owes = None;
        Ack { next: self.next, beyond: self.beyond.clone() }
    }

    /// When it will have said what it has of its own accord, if it has not said so.
    pub(crate) const fn owes(&self) -> Option<u64> {
        self.owes
    }

    /// All before this one have arrived.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// It waits for none before this one.
    pub(crate) fn skip(&mut self, next: u64) {
        self.next = next;
        self.beyond.clear();
        self.owes = None;
    }
}

#[cfg(test)]
mod tests {
    use super::{Ack, Receiver, Sender};

    const MS: u64 = 1_000_000;

    /// Linux's shortest time-out, and a way there and back of 2 ms.
    fn sender() -> Sender {
        Sender::new(200 * MS, 2 * MS, true)
    }

    fn ack(next: u64, beyond: &[u64]) -> Ack {
        Ack { next, beyond: beyond.iter().copied().collect() }
    }

    /// New segments at these times, all of which leave.
    fn send(sender: &mut Sender, times: &[u64]) {
        times.iter().for_each(|at| assert!(sender.push(*at).is_some()));
    }

    /// Sends again when it is due; when that was, and what was sent.
    fn expire(sender: &mut Sender) -> (u64, Vec<u64>) {
        let due = sender.due().expect("something is in flight");
        (due / MS, sender.expire(due))
    }

    #[test]
    fn what_is_lost_is_sent_again_when_a_later_one_has_arrived() {
        let mut sender = sender();
        assert_eq!((sender.push(0), sender.push(20 * MS)), (Some(0), Some(1)));
        assert_eq!(sender.hear(&ack(0, &[1]), 22 * MS), [0]);
        assert!(sender.hear(&ack(0, &[1]), 23 * MS).is_empty(), "once");
        assert!(sender.hear(&ack(2, &[]), 24 * MS).is_empty());
        assert_eq!(sender.due(), None);
    }

    #[test]
    fn what_was_sent_just_before_may_have_been_overtaken() {
        let mut sender = sender();
        send(&mut sender, &[0, 0]);
        assert!(sender.hear(&ack(0, &[1]), 2 * MS).is_empty());
        assert_eq!(sender.due(), Some(2 * MS + MS / 2), "a quarter of the way there and back");
        assert_eq!(sender.expire(2 * MS + MS / 2), [0]);
        // It comes after all, and the other one with it.
        send(&mut sender, &[3 * MS, 3 * MS]);
        assert!(sender.hear(&ack(2, &[3]), 5 * MS).is_empty());
        assert!(sender.hear(&ack(4, &[]), 5 * MS).is_empty());
        assert_eq!(sender.due(), None);
    }

    #[test]
    fn what_was_sent_later_is_not_lost_because_an_earlier_one_has_arrived() {
        let mut sender = sender();
        send(&mut sender, &[0, 0, 0]);
        assert!(sender.hear(&ack(1, &[]), 2 * MS).is_empty());
        assert_eq!(sender.due(), Some(6 * MS), "the probe of a tail of two");
    }

    #[test]
    fn what_is_lost_again_is_sent_again_when_a_later_one_has_arrived() {
        let mut sender = sender();
        send(&mut sender, &[0, 20 * MS]);
        assert_eq!(sender.hear(&ack(0, &[1]), 22 * MS), [0]);
        sender.push(40 * MS);
        assert_eq!(sender.hear(&ack(0, &[1, 2]), 42 * MS), [0]);
        // Nothing follows, and no tail is probed while something is mended.
        assert_eq!(expire(&mut sender), (242, vec![0]));
    }

    #[test]
    fn an_acknowledgment_that_is_lost_is_made_up_for_by_the_next() {
        let mut sender = sender();
        send(&mut sender, &[0, 20 * MS, 40 * MS]);
        assert_eq!(sender.hear(&ack(1, &[2]), 42 * MS), [1]);
        assert_eq!(sender.first, 1);
    }

    #[test]
    fn a_tail_of_two_is_probed_once_and_soon() {
        let mut sender = sender();
        send(&mut sender, &[0, MS]);
        assert_eq!(expire(&mut sender), (5, vec![1]));
        // The probe shows that the other one is lost too.
        let mut heard = sender;
        assert_eq!(heard.hear(&ack(0, &[1]), 7 * MS), [0]);
        assert_eq!(heard.first, 0);

        let mut sender = self::sender();
        send(&mut sender, &[0, MS]);
        expire(&mut sender);
        assert_eq!(expire(&mut sender), (205, vec![0]), "no second probe");
    }

    #[test]
    fn a_tail_of_one_may_be_acknowledged_late() {
        let mut sender = Sender::new(500 * MS, 2 * MS, true);
        sender.push(0);
        assert_eq!(expire(&mut sender), (204, vec![0]));
        // A time-out that comes sooner bounds the wait.
        let mut sender = self::sender();
        sender.push(0);
        assert_eq!(expire(&mut sender), (200, vec![0]));
        // It counts from the probe, and doubles.
        assert_eq!(expire(&mut sender), (400, vec![0]));
        assert_eq!(expire(&mut sender), (800, vec![0]));
    }

    #[test]
    fn after_a_time_out_new_segments_wait_until_something_is_heard() {
        let mut sender = sender();
        send(&mut sender, &[0, 0, 0]);
        expire(&mut sender);
        expire(&mut sender);
        assert!(sender.waits() && sender.push(210 * MS).is_none());
        assert!(sender.hear(&ack(0, &[]), 211 * MS).is_empty(), "no news");
        assert!(sender.waits());
        // The others are lost, as the first came back that was sent after them; the new one goes with them.
        assert_eq!(sender.hear(&ack(1, &[]), 212 * MS), [1, 2, 3]);
        assert!(sender.hear(&ack(2, &[]), 213 * MS).is_empty(), "once");
        assert!(!sender.waits() && sender.push(213 * MS).is_some());
        assert_eq!(sender.timeout(), 200 * MS, "it is as short as before");
    }

    #[test]
    fn time_outs_follow_what_is_measured() {
        let mut sender = sender();
        sender.push(0);
        sender.hear(&ack(1, &[]), 202 * MS);
        // (2 * 7 + 202) / 8 and 4 * (3 * 1 + 200) / 4.
        assert_eq!(sender.timeout(), (27 + 203) * MS);
        assert_eq!(sender.trips.least, 2 * MS);
        // Nobody knows which of two was acknowledged.
        sender.push(300 * MS);
        expire(&mut sender);
        sender.hear(&ack(2, &[]), 9_000 * MS);
        assert_eq!(sender.timeout(), (27 + 203) * MS);
        assert_eq!(Sender::new(1, 50_000 * MS, true).timeout(), 120_000 * MS);
    }

    #[test]
    fn without_selective_acknowledgments_there_are_only_time_outs() {
        let mut sender = Sender::new(200 * MS, 2 * MS, false);
        send(&mut sender, &[0, MS, 20 * MS]);
        assert!(sender.hear(&ack(0, &[1, 2]), 22 * MS).is_empty());
        assert_eq!(expire(&mut sender), (200, vec![0]));
        // What was sent before that is sent again when that has arrived.
        assert_eq!(sender.hear(&ack(1, &[]), 202 * MS), [1, 2]);
        // They count from when the first was sent, or the one before it was acknowledged.
        let mut sender = Sender::new(200 * MS, 2 * MS, false);
        send(&mut sender, &[0, MS, 20 * MS]);
        sender.hear(&ack(1, &[]), 2 * MS);
        assert_eq!(sender.due(), Some(202 * MS));
    }

    #[test]
    fn what_comes_back_too_soon_was_sent_before() {
        let mut sender = sender();
        send(&mut sender, &[0, MS]);
        expire(&mut sender);
        // The probe left at 5 ms.
        assert!(sender.hear(&ack(0, &[1]), 6 * MS).is_empty());
        assert_eq!(sender.latest, None);
    }

    #[test]
    fn a_receiver_speaks_at_once_when_something_is_missing_or_was() {
        let mut receiver = Receiver::default();
        assert!(!receiver.take(0, 0) && !receiver.take(1, 10 * MS));
        assert_eq!(receiver.owes(), Some(40 * MS));
        assert_eq!(receiver.ack().next, 2);
        assert_eq!(receiver.owes(), None);
        assert!(receiver.take(3, 20 * MS) && receiver.take(4, 20 * MS));
        assert!(receiver.take(3, 20 * MS) && receiver.take(0, 20 * MS), "twice");
        let said = receiver.ack();
        assert_eq!((said.next, said.beyond.into_iter().collect::<Vec<_>>()), (2, vec![3, 4]));
        assert!(receiver.take(2, 30 * MS));
        assert_eq!((receiver.next(), receiver.beyond.len()), (5, 0));
    }
}
