//! Any message is read back, and any bytes are read or refused.

use alloc::collections::BTreeSet;

use primacy_core::log::{ChunkOrder, Config, Content, Position, ReplicaId, Snapshot};
use primacy_core::{CandidateId, Token};
use proptest::collection::{btree_set, vec as many};
use proptest::prelude::*;

use super::*;
use crate::testing;

fn ballots() -> impl Strategy<Value = Ballot> {
    (0..=Token::MAX.get(), any::<u128>()).prop_map(|(token, id)| Ballot {
        token: Token::new(token).expect("it is not too large"),
        id: CandidateId::from_bits(id),
    })
}

fn positions() -> impl Strategy<Value = Position> {
    (ballots(), 0..=1_u64 << 62).prop_map(|(ballot, index)| Position { ballot, index })
}

fn replicas() -> impl Strategy<Value = BTreeSet<ReplicaId>> {
    btree_set(any::<u128>().prop_map(ReplicaId::from_bits), 1..5)
}

fn configs() -> impl Strategy<Value = Config> {
    (replicas(), prop::option::of(replicas()))
        .prop_map(|(old, incoming)| Config::read(old, incoming).expect("there are some"))
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    (positions(), configs(), any::<u64>(), 1..9_u32).prop_map(|(position, config, time, chunks)| Snapshot {
        position,
        config,
        time: GroupTime::from_millis(time),
        chunks,
    })
}

fn bytes() -> impl Strategy<Value = LogBytes> {
    many(any::<u8>(), 0..40).prop_map(LogBytes::from)
}

fn entries() -> impl Strategy<Value = Vec<Entry<LogBytes>>> {
    let content =
        prop_oneof![Just(Content::Opening), configs().prop_map(Content::Config), bytes().prop_map(Content::Payload)];
    let entry = (ballots(), any::<u64>(), content).prop_map(|(ballot, time, content)| Entry {
        ballot,
        time: GroupTime::from_millis(time),
        content,
    });
    many(entry, 0..4)
}

fn requests() -> impl Strategy<Value = Request<LogBytes>> {
    let time = || any::<u64>().prop_map(GroupTime::from_millis);
    prop_oneof![
        ballots().prop_map(|ballot| Request::Open { ballot }),
        (ballots(), positions(), entries(), any::<u64>(), time())
            .prop_map(|(ballot, prev, entries, commit, time)| Request::Append { ballot, prev, entries, commit, time }),
        (ballots(), snapshots(), any::<u32>(), bytes()).prop_map(|(ballot, snapshot, chunk, data)| Request::Install {
            ballot,
            snapshot,
            chunk,
            data
        }),
        (ballots(), any::<u64>(), any::<u64>(), time()).prop_map(|(ballot, round, commit, time)| Request::Beat {
            ballot,
            round,
            commit,
            time
        }),
        (ballots(), positions(), positions(), any::<u32>()).prop_map(|(ballot, prev, end, chunk)| Request::Fetch {
            ballot,
            prev,
            end,
            chunk
        }),
    ]
}

fn verdicts() -> impl Strategy<Value = Verdict<LogBytes>> {
    prop_oneof![
        ballots().prop_map(Verdict::Outbid),
        Just(Verdict::Leap),
        (positions(), any::<u64>(), prop::option::of(configs()))
            .prop_map(|(last, commit, config)| Verdict::Opened(Standing { last, commit, config })),
        any::<u64>().prop_map(Verdict::Matched),
        (any::<u64>(), positions()).prop_map(|(commit, last)| Verdict::Behind { commit, last }),
        Just(Verdict::Blank),
        (positions(), any::<u32>()).prop_map(|(position, chunk)| Verdict::Wants { position, chunk }),
        (any::<u64>(), any::<u64>()).prop_map(|(round, matched)| Verdict::Beaten { round, matched }),
        (positions(), entries()).prop_map(|(prev, entries)| Verdict::Fetched { prev, entries }),
        (snapshots(), any::<u32>(), bytes()).prop_map(|(snapshot, chunk, data)| Verdict::FetchedChunk {
            snapshot,
            chunk,
            data
        }),
    ]
}

fn messages() -> impl Strategy<Value = Message> {
    let answer = (ballots(), verdicts()).prop_map(|(ballot, verdict)| Answer { ballot, verdict });
    let forward = (
        ballots(),
        any::<u64>(),
        any::<u64>(),
        many((any::<u64>(), testing::operation().prop_map(Change::Operation)), 0..4),
    );
    let forward = forward.prop_map(|(ballot, starts, acknowledged, writes)| Forward {
        ballot,
        starts,
        acknowledged,
        sent_before: starts / 2,
        writes,
        reads: [(7, Query::Count), (8, Query::Random(1))].into(),
    });
    let answers = (ballots(), any::<u64>(), any::<bool>(), many((any::<u64>(), testing::answer()), 0..4));
    let answers = answers.prop_map(|(ballot, starts, is_over, writes)| Answers {
        ballot,
        starts,
        is_over,
        is_left_out: starts % 2 == 1,
        reads: writes.clone(),
        writes,
    });
    prop_oneof![
        requests().prop_map(|request| Message::Log(log::Message::Request(request))),
        answer.prop_map(|answer| Message::Log(log::Message::Answer(answer))),
        forward.prop_map(Message::Forward),
        answers.prop_map(Message::Answers),
    ]
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

#[test]
fn chunks_are_bulk_in_either_direction_and_nothing_else_is() {
    let config = Config::new([ReplicaId::from_bits(1)].into()).expect("there is one");
    let snapshot = Snapshot { position: Position::START, config, time: GroupTime::default(), chunks: 1 };
    for is_answer in [false, true] {
        let to = ReplicaId::from_bits(2);
        let order = ChunkOrder { to, ballot: Ballot::NONE, snapshot: snapshot.clone(), chunk: 0, is_answer };
        assert!(Message::Log(order.message(Vec::new().into())).is_bulk());
    }
    assert!(!Message::Log(log::Message::Request(Request::Open { ballot: Ballot::NONE })).is_bulk());
}

proptest! {
    #[test]
    fn a_message_is_read_back(message in messages()) {
        prop_assert_eq!(Message::decode(&encoded(&message)), Ok(message));
    }

    #[test]
    fn a_message_has_one_form(message in messages(), at: prop::sample::Index, bit in 0..8_u8) {
        let mut bytes = encoded(&message);
        *at.get_mut(&mut bytes) ^= 1 << bit;
        if let Ok(read) = Message::decode(&bytes) {
            prop_assert_eq!(encoded(&read), bytes);
        }
    }

    #[test]
    fn a_part_of_a_message_is_refused(message in messages(), at: prop::sample::Index) {
        let bytes = encoded(&message);
        prop_assert!(Message::decode(&bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(tag in 0..5_u8, mut bytes: Vec<u8>) {
        bytes.splice(0..0, [VERSION, tag]);
        let _ = Message::decode(&bytes);
    }
}
