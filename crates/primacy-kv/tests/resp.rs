//! The codec beside an independent one, and however the bytes are cut into pieces.
#![expect(clippy::unwrap_used, reason = "what helps a test may fail as a test does")]

use primacy_kv::resp::{Decoder, Limits, Protocol, Reply};
use proptest::collection::vec as many;
use proptest::prelude::*;
use redis_protocol::resp2::{decode::decode as decode2, encode::encode as encode2, types::OwnedFrame as Frame2};
use redis_protocol::resp3::{decode::complete::decode as decode3, types::OwnedFrame as Frame3};

/// All requests in these pieces, or the error behind them.
fn requests(pieces: &[&[u8]], limits: Limits) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
    let mut decoder = Decoder::new(limits);
    let mut requests = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.request() {
                Ok(None) => break,
                Ok(Some(request)) => requests.push(request.arguments().map(<[u8]>::to_vec).collect()),
                Err(error) => {
                    assert_eq!(decoder.request().err(), Some(error.clone()), "it has failed for good");
                    return (requests, Some(error.to_string()));
                }
            }
        }
    }
    (requests, None)
}

fn one(bytes: &[u8]) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
    requests(&[bytes], Limits::DEFAULT)
}

/// What a client sends, by the other codec.
fn sent(arguments: &[Vec<u8>]) -> Vec<u8> {
    let frame = Frame2::Array(arguments.iter().map(|argument| Frame2::BulkString(argument.clone())).collect());
    let mut bytes = vec![0; 16 + arguments.iter().map(|argument| argument.len() + 32).sum::<usize>()];
    let length = encode2(&mut bytes, &frame, false).unwrap();
    bytes.truncate(length);
    bytes
}

#[test]
fn protocol_errors_have_the_words_of_redis() {
    let long = "a".repeat(70_000);
    for (bytes, words) in [
        ("*x\r\n", "Protocol error: invalid multibulk length"),
        ("*1048577\r\n", "Protocol error: invalid multibulk length"),
        ("*99999999999999999999\r\n", "Protocol error: invalid multibulk length"),
        ("*1\r\n:1\r\n", "Protocol error: expected '$', got ':'"),
        ("*1\r\n\r\n", "Protocol error: expected '$', got '\r'"),
        ("*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        ("*1\r\n$8388609\r\n", "Protocol error: invalid bulk length"),
        ("*1\r\n$1x\r\n", "Protocol error: invalid bulk length"),
        ("*1\r\n$1\r\nab\r\n", "Protocol error: expected CRLF behind an argument"),
        ("get \"a\r\n", "Protocol error: unbalanced quotes in request"),
        (&long, "Protocol error: too big inline request"),
        (&format!("*{long}"), "Protocol error: too big mbulk count string"),
        (&format!("*1\r\n${long}"), "Protocol error: too big bulk count string"),
    ] {
        assert_eq!(one(bytes.as_bytes()), (Vec::new(), Some(words.to_owned())), "{words}");
    }
    let error = requests(&[b"*11\r\n"], Limits::UNAUTHENTICATED).1;
    assert_eq!(error.as_deref(), Some("Protocol error: unauthenticated multibulk length"));
    let error = requests(&[b"*1\r\n$16385\r\n"], Limits::UNAUTHENTICATED).1;
    assert_eq!(error.as_deref(), Some("Protocol error: unauthenticated bulk length"));
}

#[test]
fn a_request_is_bounded_as_a_whole() {
    let limits = Limits { request: 100, ..Limits::DEFAULT };
    let small = sent(&[vec![b'a'; 40], vec![b'b'; 20]]);
    assert_eq!(requests(&[&small, &small], limits).0.len(), 2);
    let large = sent(&[vec![b'a'; 40], vec![b'b'; 60]]);
    let error = requests(&[&large[..60]], limits).1;
    assert_eq!(error.as_deref(), Some("Protocol error: too big request"), "before the bytes have come");
}

#[test]
fn empty_requests_are_passed_over() {
    let (requests, error) = one(b"\r\n*0\r\n*-1\r\n  \nPING\r\n");
    assert_eq!((requests, error), (vec![vec![b"PING".to_vec()]], None));
}

#[test]
fn named_lengths_take_no_memory() {
    let mut decoder = Decoder::new(Limits::DEFAULT);
    decoder.push(b"*1048576\r\n$8388608\r\nabc");
    assert!(decoder.request().unwrap().is_none());
    assert_eq!(decoder.buffered(), 23);
}

#[test]
fn a_large_request_in_small_pieces_is_read_in_linear_time() {
    let argument = vec![b'x'; 8 << 20];
    let bytes = sent(std::slice::from_ref(&argument));
    let pieces: Vec<&[u8]> = bytes.chunks(100).collect();
    assert_eq!(requests(&pieces, Limits::DEFAULT), (vec![vec![argument]], None));
    let many = sent(&vec![b"a".to_vec(); 100_000]);
    let pieces: Vec<&[u8]> = many.chunks(3).collect();
    assert_eq!(requests(&pieces, Limits::DEFAULT).0[0].len(), 100_000);
}

#[test]
fn an_error_stays_on_its_line() {
    let mut bytes = Vec::new();
    Reply::Error("ERR a\r\n+OK".into()).encode(Protocol::V2, &mut bytes);
    assert_eq!(bytes, b"-ERR a  +OK\r\n");
}

fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

/// Replies that both versions have, and that the other codec reads as they are.
fn reply() -> impl Strategy<Value = Reply> {
    let leaf = prop_oneof![
        "[a-zA-Z ]{0,9}".prop_map(|text| Reply::Simple(text.into())),
        "[A-Z]{1,5} [a-z ]{0,9}".prop_map(|text| Reply::Error(text.into())),
        any::<i64>().prop_map(Reply::Integer),
        any::<Vec<u8>>().prop_map(Reply::bulk),
        Just(Reply::Null),
    ];
    leaf.prop_recursive(3, 20, 5, |inside| {
        let pair = ("[a-z]{1,5}".prop_map(Reply::bulk), inside.clone());
        prop_oneof![
            many(inside, 0..5).prop_map(Reply::Array),
            many(pair, 0..3).prop_map(|mut pairs| {
                pairs.sort_by_key(|(name, _)| format!("{name:?}"));
                pairs.dedup_by_key(|(name, _)| name.clone());
                Reply::Map(pairs)
            }),
        ]
    })
}

/// What a client of RESP2 sees.
fn frame2(reply: &Reply) -> Frame2 {
    match reply {
        Reply::Simple(text) => Frame2::SimpleString(text.as_bytes().to_vec()),
        Reply::Error(text) => Frame2::Error(text.to_string()),
        Reply::Integer(number) => Frame2::Integer(*number),
        Reply::Bulk(bytes) => Frame2::BulkString(bytes.to_vec()),
        Reply::Array(replies) | Reply::Set(replies) => Frame2::Array(replies.iter().map(frame2).collect()),
        Reply::Map(pairs) => {
            Frame2::Array(pairs.iter().flat_map(|(name, value)| [frame2(name), frame2(value)]).collect())
        }
        Reply::Verbatim(text) => Frame2::BulkString(text.as_bytes().to_vec()),
        Reply::Null | Reply::NullArray => Frame2::Null,
    }
}

/// What a client of RESP3 sees.
fn frame3(reply: &Reply) -> Frame3 {
    let all = |replies: &[Reply]| replies.iter().map(frame3).collect();
    let attributes = None;
    match reply {
        Reply::Simple(text) => Frame3::SimpleString { data: text.as_bytes().to_vec(), attributes },
        Reply::Error(text) => Frame3::SimpleError { data: text.to_string(), attributes },
        Reply::Integer(data) => Frame3::Number { data: *data, attributes },
        Reply::Bulk(bytes) => Frame3::BlobString { data: bytes.to_vec(), attributes },
        Reply::Array(replies) => Frame3::Array { data: all(replies), attributes },
        Reply::Map(pairs) => {
            let data = pairs.iter().map(|(name, value)| (frame3(name), frame3(value))).collect();
            Frame3::Map { data, attributes }
        }
        Reply::Null | Reply::NullArray => Frame3::Null,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn requests_are_read_however_they_are_cut(
        all in many(many(any::<Vec<u8>>(), 1..6), 0..6),
        cuts: Vec<prop::sample::Index>,
    ) {
        let bytes: Vec<u8> = all.iter().flat_map(|arguments| sent(arguments)).collect();
        prop_assert_eq!(requests(&cut(&bytes, &cuts), Limits::DEFAULT), (all, None));
    }

    #[test]
    fn any_bytes_are_read_alike_however_they_are_cut(
        lines in many("(\\*[0-4]|\\$[0-4]|[a-c\"' ]{0,5}|\\PC{0,3})(\r\n|\n|\r)?", 0..12),
        cuts: Vec<prop::sample::Index>,
    ) {
        let bytes = lines.concat().into_bytes();
        prop_assert_eq!(requests(&cut(&bytes, &cuts), Limits::DEFAULT), one(&bytes));
    }

    #[test]
    fn replies_are_read_by_another_codec(reply in reply()) {
        let mut bytes = Vec::new();
        reply.encode(Protocol::V2, &mut bytes);
        prop_assert_eq!(decode2(&bytes).unwrap(), Some((frame2(&reply), bytes.len())));
        bytes.clear();
        reply.encode(Protocol::V3, &mut bytes);
        prop_assert_eq!(decode3(&bytes).unwrap(), Some((frame3(&reply), bytes.len())));
    }
}
