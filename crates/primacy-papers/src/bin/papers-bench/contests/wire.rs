//! What peers of a contest send each other, as bytes: the machines' messages, and those of the quorum.

use std::collections::BTreeSet;
use std::time::Duration;

use primacy_core::contest::{PeerId, ring};
use primacy_core::lease::{HandoverRequest, Holder};
use primacy_core::quorum::{Answer, Ask, GrantProgress, OrderNumbers, OrderRegister, Orders, Round, VoterView};
use primacy_core::select::Rank;
use primacy_core::{CandidateId, Label, Score, Token};
use primacy_papers::plain::Silence;
use primacy_papers::ring::Word;
use primacy_papers::{pole, roulette};

/// A longer frame is not read, in bytes.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 16;

/// What one peer sends another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The first on a connection, in both directions: whose it is.
    Hello { peer: PeerId },
    /// A message of the machine.
    Contest { message: Vec<u8> },
    /// From a quorum client to a voter.
    Ask { round: Round, ask: Ask },
    /// The voter's answer.
    Answer { round: Round, answer: Answer },
    /// The sender leads, by its own word: where there is no grant.
    Beat,
}

/// Something that is sent.
pub(super) trait Wire: Sized {
    /// Appends its bytes.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads it from the front. `None`: these bytes are no such thing.
    fn take(from: &mut &[u8]) -> Option<Self>;

    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// Reads it from bytes that hold nothing else.
    fn read(mut bytes: &[u8]) -> Option<Self> {
        Self::take(&mut bytes).filter(|_| bytes.is_empty())
    }
}

macro_rules! numbers {
    ($($number:ty)*) => { $(impl Wire for $number {
        fn put(&self, out: &mut Vec<u8>) {
            out.extend(self.to_le_bytes());
        }
        fn take(from: &mut &[u8]) -> Option<Self> {
            let (bytes, rest) = from.split_first_chunk()?;
            *from = rest;
            Some(Self::from_le_bytes(*bytes))
        }
    })* };
}
numbers!(u8 u16 u32 u64 u128 i64);

/// Structs by their fields, in this order.
macro_rules! records {
    ($($record:ident { $($field:ident),* })*) => { $(impl Wire for $record {
        fn put(&self, out: &mut Vec<u8>) {
            $(self.$field.put(out);)*
        }
        fn take(from: &mut &[u8]) -> Option<Self> {
            Some(Self { $($field: Wire::take(from)?),* })
        }
    })* };
}

/// Enums by a number for each variant, and then its fields.
macro_rules! choices {
    ($($choice:ty { $($tag:literal: $variant:ident $({ $($field:ident),* })? $(($($place:ident),*))?;)* })*) => {
        $(impl Wire for $choice {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $({ $($field),* })? $(($($place),*))? => {
                        out.push($tag);
                        $($($field.put(out);)*)?
                        $($($place.put(out);)*)?
                    })*
                }
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                match u8::take(from)? {
                    $($tag => {
                        $($(let $field = Wire::take(from)?;)*)?
                        $($(let $place = Wire::take(from)?;)*)?
                        Some(Self::$variant $({ $($field),* })? $(($($place),*))?)
                    })*
                    _ => None,
                }
            }
        })*
    };
}

/// Through another type, which can say no.
macro_rules! by_way_of {
    ($($what:ty as $other:ty: $to:expr, $from:expr;)*) => { $(impl Wire for $what {
        fn put(&self, out: &mut Vec<u8>) {
            let to: fn(&Self) -> $other = $to;
            to(self).put(out);
        }
        fn take(from: &mut &[u8]) -> Option<Self> {
            let back: fn($other) -> Option<Self> = $from;
            back(<$other>::take(from)?)
        }
    })* };
}

by_way_of! {
    bool as u8: |is| u8::from(*is), |is| (is < 2).then_some(is == 1);
    PeerId as u16: |peer| peer.0, |id| Some(PeerId(id));
    Duration as u64: |span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX), |nanos| Some(Self::from_nanos(nanos));
    Token as u64: |token| token.get(), Token::new;
    CandidateId as u128: |id| id.to_bits(), |bits| Some(CandidateId::from_bits(bits));
    String as Vec<u8>: |text| text.clone().into_bytes(), |bytes| String::from_utf8(bytes).ok();
    Label as String: |label| label.as_str().to_owned(), |text| Label::new(text).ok();
    Rank as Vec<u8>: |rank| rank.to_bytes().to_vec(), |bytes| Rank::from_bytes(&bytes).ok();
    Score as i64: |score| score.thousandths(), |thousandths| Score::from_thousandths(thousandths).ok();
    Round as u64: |round| round.0, |number| Some(Round(number));
    BTreeSet<PeerId> as Vec<u8>:
        |peers| peers.iter().flat_map(|peer| peer.0.to_le_bytes()).collect(),
        |bytes| {
            let (pairs, rest) = bytes.as_chunks();
            rest.is_empty().then(|| pairs.iter().map(|pair| PeerId(u16::from_le_bytes(*pair))).collect())
        };
}

impl Wire for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).unwrap_or(u32::MAX).put(out);
        out.extend(self);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let len = usize::try_from(u32::take(from)?).ok()?;
        let (bytes, rest) = from.split_at_checked(len)?;
        *from = rest;
        Some(bytes.to_vec())
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|some| some.put(out));
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(if bool::take(from)? { Some(T::take(from)?) } else { None })
    }
}

impl<T: Wire> Wire for OrderRegister<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.count.put(out);
        self.value.put(out);
        self.until.put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        Some(Self { count: Wire::take(from)?, value: Wire::take(from)?, until: Wire::take(from)? })
    }
}

impl Wire for Silence {
    fn put(&self, _out: &mut Vec<u8>) {
        match *self {}
    }

    fn take(_from: &mut &[u8]) -> Option<Self> {
        None
    }
}

use pole::{Lead, Proposal, Standing};
use ring::Note;

records! {
    Lead { peer, term }
    Standing { term, in_contact, rank, hears_you, leader }
    Proposal { score, peer }
    Note { term, origin, stage }
    Holder { id, label, data }
    GrantProgress { beat, completed_order }
    OrderNumbers { handover, paused }
    Orders { handover, paused }
    VoterView { highest, term, holder, beat, seen, lease, bound, age, released, orders, completed_order }
    Answer { accepted, view }
}

choices! {
    Frame {
        0: Hello { peer };
        1: Contest { message };
        2: Ask { round, ask };
        3: Answer { round, answer };
        4: Beat;
    }
    roulette::Message {
        0: Propose { term };
        1: Vote { term, weight };
        2: Refuse { term, latest };
        3: Draw { term };
    }
    roulette::PublishedMessage {
        0: Propose { round, number_ppm };
        1: Positive { round, greatest_ppm };
        2: Negative { round, greatest_ppm, coordinator };
        3: Announce { round };
        4: Heartbeat { round };
    }
    pole::PublishedMessage {
        0: Propose { epoch, proposal };
        1: Vote { epoch, leader };
    }
    ring::Stage {
        0: Election;
        1: Elected;
    }
    ring::Message {
        0: Pass { note, excluded };
        1: Got { note, term };
    }
    Word {
        0: Seek;
        1: Found(leader);
        2: Ask;
        3: Reply;
        4: Election(id);
        5: Elected(id);
        6: Unblock;
    }
    HandoverRequest {
        0: NewElection;
        1: Successor(label);
    }
    Ask {
        0: Read;
        1: Claim { term, holder, lease, seen, granted };
        2: Renew { term, id, beat, lease, completed_order };
        3: Release { term, id, beat, completed_order };
        4: Order { orders, token };
        6: Forget { term };
        5: Withdraw { term, id, beat };
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    fn comes_back<T: Wire + Debug + PartialEq>(sent: &T) {
        let bytes = sent.bytes();
        assert_eq!(T::read(&bytes).as_ref(), Some(sent));
        for cut in 0..bytes.len() {
            assert_eq!(T::read(&bytes[..cut]), None, "{cut} bytes of {sent:?}");
        }
        assert_eq!(T::read(&[bytes.as_slice(), &[0]].concat()), None, "a byte more than {sent:?}");
    }

    fn holder() -> Holder {
        let label = Label::new("p3").expect("a label");
        Holder { id: CandidateId::from_bits(7 << 100), label, data: "räum".into() }
    }

    #[test]
    fn frames_come_back_whole_and_no_part_of_them_is_taken_for_one() {
        let (round, term) = (Round(5), Token::new(9).expect("a token"));
        let orders = Orders {
            handover: OrderRegister::new(3, Some(HandoverRequest::Successor(holder().label))),
            ..Orders::default()
        };
        let view = VoterView {
            term,
            holder: Some(holder()),
            bound: Some(Duration::from_millis(3)),
            orders,
            ..VoterView::default()
        };
        let claim = Ask::Claim {
            term,
            holder: holder(),
            lease: Duration::MAX / 2,
            seen: OrderNumbers::default(),
            granted: None,
        };
        comes_back(&Frame::Ask { round, ask: Ask::Read });
        comes_back(&Frame::Answer { round, answer: Answer { accepted: true, view } });
        comes_back(&Frame::Contest { message: vec![1, 2, 3] });
        comes_back(&Frame::Hello { peer: PeerId(8) });
        comes_back(&Frame::Beat);
        // Longer than the wire can say: the longest that it can.
        assert!(
            matches!(Ask::read(&claim.bytes()), Some(Ask::Claim { lease, .. }) if lease > Duration::from_secs(1 << 33))
        );
    }

    #[test]
    fn messages_of_every_machine_come_back() {
        let note = Note { term: 4, origin: PeerId(2), stage: ring::Stage::Elected };
        comes_back(&ring::Message::Pass { note, excluded: [PeerId(1), PeerId(300)].into() });
        comes_back(&Word::Election(PeerId(9)));
        comes_back(&roulette::Message::Vote { term: 1 << 40, weight: 3 });
        comes_back(&roulette::PublishedMessage::Negative { round: 1, greatest_ppm: 2, coordinator: true });
        let proposal = Proposal { score: Some(Score::from(-3)), peer: PeerId(1) };
        comes_back(&pole::PublishedMessage::Propose { epoch: 1, proposal });
        let leader = Some(Lead { peer: PeerId(1), term: 2 });
        let rank = Some(Rank::from([-1, 2, 0, 0, 0, 0, 0, i32::MAX]));
        comes_back(&Standing { term: 3, in_contact: true, rank, hears_you: false, leader });
    }

    #[test]
    fn what_no_peer_sends_is_refused() {
        for garbage in [&[][..], &[9], &[2, 0], &[1, 255, 255, 255, 255, 1], &[0, 1, 0, 0]] {
            assert_eq!(Frame::read(garbage), None, "{garbage:?}");
        }
    }
}
