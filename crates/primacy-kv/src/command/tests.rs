//! What the parser accepts, and the words with which it refuses.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::slot::Slot;

fn parse(line: &str) -> Result<Command, String> {
    let arguments: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    Command::parse(&arguments, &Limits::default()).map_err(|error| error.to_string())
}

fn operation(line: &str) -> Operation {
    match parse(line) {
        Ok(Command::Operation(operation)) => operation,
        other => panic!("{line}: {other:?}"),
    }
}

fn set(line: &str) -> Set {
    match operation(line) {
        Operation::Set(set) => set,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn options_of_set_are_read_in_any_order_and_case() {
    let read = set("sEt k v gEt px 5 xx");
    assert_eq!((read.condition, read.expiry), (Condition::IfPresent, Expiry::After(5)));
    assert_eq!(read.answer, SetAnswer::Previous);
    assert_eq!(set("set k v exat 7").expiry, Expiry::At(7_000));
    assert_eq!(set("set k v keepttl").expiry, Expiry::Keep);
    assert_eq!(set("set k v ifeq old").condition, Condition::IfEqual(b"old".to_vec().into()));
    assert_eq!(
        set("set k v ifne old nx".split(" nx").next().unwrap()).condition,
        Condition::IfDifferent(b"old".to_vec().into())
    );
    assert_eq!(set("set k v nx nx").condition, Condition::IfAbsent);
}

#[test]
fn refusals_have_the_words_of_redis() {
    let integer = "ERR value is not an integer or out of range";
    for (line, words) in [
        ("get", "ERR wrong number of arguments for 'get' command"),
        ("GET a b", "ERR wrong number of arguments for 'get' command"),
        ("mset a b c", "ERR wrong number of arguments for 'mset' command"),
        ("nope a b", "ERR unknown command 'nope', with args beginning with: 'a' 'b' "),
        ("client", "ERR wrong number of arguments for 'client' command"),
        ("client nope", "ERR unknown subcommand 'nope'. Try CLIENT HELP."),
        ("client kill", "ERR wrong number of arguments for 'client|kill' command"),
        ("config set a b", "ERR unknown subcommand 'set'. Try CONFIG HELP."),
        ("set k v nx xx", "ERR syntax error"),
        ("set k v nx ifeq a", "ERR syntax error"),
        ("set k v ex", "ERR syntax error"),
        ("set k v ex 1 px 1", "ERR syntax error"),
        ("set k v ex 1 keepttl", "ERR syntax error"),
        ("set k v ex a nope", "ERR syntax error"),
        ("set k v ex a", integer),
        ("set k v ex 0", "ERR invalid expire time in 'set' command"),
        ("setex k -1 v", "ERR invalid expire time in 'setex' command"),
        ("psetex k 9223372036854775807 v", "ERR invalid expire time in 'psetex' command"),
        ("expire k 9223372036854776", "ERR invalid expire time in 'expire' command"),
        ("expire k a nope", "ERR Unsupported option nope"),
        ("expire k 1 nx gt", "ERR NX and XX, GT or LT options at the same time are not compatible"),
        ("expire k 1 gt lt", "ERR GT and LT options at the same time are not compatible"),
        ("incrby k 1.5", integer),
        ("decrby k -9223372036854775808", "ERR decrement would overflow"),
        ("incrbyfloat k nan", "ERR value is not a valid float"),
        ("scan x", "ERR invalid cursor"),
        ("scan 0 count 0", "ERR syntax error"),
        ("scan 0 count a", integer),
        ("scan 0 match", "ERR syntax error"),
        ("select 1", "ERR DB index is out of range"),
        ("hello 4", "NOPROTO unsupported protocol version"),
        ("hello a", "ERR Protocol version is not an integer or out of range"),
        ("hello 3 auth a", "ERR Syntax error in HELLO option 'auth'"),
        ("wait 1 -1", "ERR timeout is negative"),
        ("ping a b", "ERR wrong number of arguments for 'ping' command"),
    ] {
        assert_eq!(parse(line), Err(words.to_string()), "{line}");
    }
}

#[test]
fn large_keys_and_values_are_refused() {
    let limits = Limits { key: 3, value: 4 };
    let parse = |arguments: &[&[u8]]| Command::parse(arguments, &limits).is_ok();
    assert!(parse(&[b"set", b"abc", b"abcd"]));
    assert!(!parse(&[b"set", b"abcd", b"a"]));
    assert!(!parse(&[b"set", b"a", b"abcde"]));
    assert!(!parse(&[b"mset", b"a", b"b", b"c", b"abcde"]));
}

#[test]
fn keys_of_one_command_are_in_one_slot_unless_it_can_be_split() {
    assert_eq!(operation("mset {a}1 x {a}2 y").placement(), Ok(Placement::One(Slot::of(b"a"))));
    assert_eq!(operation("mset a x b y").placement(), Err(CommandError::CROSS_SLOT));
    assert_eq!(operation("mget a b").placement(), Ok(Placement::Several));
    assert_eq!(operation("flushall").placement(), Ok(Placement::Every));
}

#[test]
fn what_is_split_is_joined_in_the_order_of_the_client() {
    let parts = operation("mget a b a c").split(|slot| slot.number() % 2);
    assert!(parts.len() > 1, "the keys are in two groups");
    let answers = parts.into_values().map(|part| {
        let values = part.operation.keys().map(crate::resp::Reply::bulk).collect();
        (part.positions, crate::resp::Reply::Array(values))
    });
    let joined = Operation::join(answers);
    let expected = ["a", "b", "a", "c"].map(crate::resp::Reply::bulk).to_vec();
    assert_eq!(joined, crate::resp::Reply::Array(expected));
}

proptest! {
    #[test]
    fn any_arguments_are_read_or_refused(
        name in prop::sample::select(COMMANDS),
        rest: Vec<Vec<u8>>,
        words in proptest::collection::vec("(?i)nx|xx|ex|px|get|1|-1|count|match|persist|ifeq|list|info|kill|id", 0..6),
    ) {
        let mixed: Vec<&[u8]> = rest.iter().map(Vec::as_slice).chain(words.iter().map(String::as_bytes)).collect();
        let arguments: Vec<&[u8]> = core::iter::once(name.name.as_bytes()).chain(mixed).collect();
        let _ = Command::parse(&arguments, &Limits::default());
    }
}
