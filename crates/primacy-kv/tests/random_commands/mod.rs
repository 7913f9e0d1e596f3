//! Random commands, a real Redis to ask them of, and what is compared of the answers.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command as Program, Stdio};

use primacy_kv::command::{Command, Limits};
use redis_protocol::resp2::{
    decode::decode,
    types::{OwnedFrame, Resp2Frame as _},
};

/// A server that ends with the test.
pub(crate) struct Server {
    process: Child,
    connection: TcpStream,
    unread: Vec<u8>,
}

impl Server {
    /// Starts a server, and waits until it listens.
    pub(crate) fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"];
        let mut program = Program::new("redis-server");
        program.args(["--port", &port.to_string(), "--set-proc-title", "no"]).args(settings);
        let mut process = program.stdout(Stdio::piped()).spawn().expect("Debian's package redis-server is installed");
        let mut log = process.stdout.take().unwrap();
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains("Ready to accept connections") {
            let mut piece = [0; 1024];
            let length = log.read(&mut piece).unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&piece[..length]);
        }
        // The pipe stays open: a server that cannot log ends.
        std::mem::forget(log);
        let connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
        Self { process, connection, unread: Vec::new() }
    }

    pub(crate) fn ask(&mut self, arguments: &[&[u8]]) -> OwnedFrame {
        self.send(arguments);
        self.reply()
    }

    /// Asks, and does not wait for the answer.
    pub(crate) fn send(&mut self, arguments: &[&[u8]]) {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        self.connection.write_all(&bytes).unwrap();
    }

    /// The next answer.
    pub(crate) fn reply(&mut self) -> OwnedFrame {
        loop {
            if let Some((frame, length)) = decode(&self.unread).unwrap() {
                self.unread.drain(..length);
                return frame;
            }
            let mut piece = [0; 4096];
            let length = self.connection.read(&mut piece).unwrap();
            assert!(length > 0, "the server has closed the connection");
            self.unread.extend_from_slice(&piece[..length]);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The numbers of SplitMix64.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let number = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }

    pub(crate) fn is_one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }
}

/// Shapes of commands. A letter in angle brackets stands for a random word of that kind.
pub(crate) const SHAPES: &[&str] = &[
    "set <k> <v>",
    "set <k> <v> <o>",
    "set <k> <v> <o> <o>",
    "set <k> <v> <e> <t>",
    "set <k> <v> <e> <t> <o>",
    "get <k>",
    "getdel <k>",
    "getex <k>",
    "getex <k> <e> <t>",
    "getex <k> <o>",
    "getset <k> <v>",
    "setnx <k> <v>",
    "setex <k> <t> <v>",
    "psetex <k> <t> <v>",
    "mget <k> <k> <k>",
    "mset <k> <v> <k> <v>",
    "mset <k> <v> <k>",
    "msetnx <k> <v> <k> <v>",
    "append <k> <v>",
    "strlen <k>",
    "incr <k>",
    "decr <k>",
    "incrby <k> <n>",
    "decrby <k> <n>",
    "incrbyfloat <k> <f>",
    "set <k> <f>",
    "set <k> <n>",
    "del <k> <k>",
    "unlink <k>",
    "exists <k> <k> <k>",
    "type <k>",
    "expire <k> <t>",
    "pexpire <k> <t>",
    "expire <k> <d> <c>",
    "pexpire <k> <d> <c> <c>",
    "expireat <k> <a>",
    "pexpireat <k> <t>",
    "ttl <k>",
    "pttl <k>",
    "persist <k>",
    "dbsize",
    "keys <p>",
    "multi",
    "exec",
    "exec",
    "discard",
    "watch <k>",
    "set <k>",
    "get <k> <k>",
    "nonsense <k> <v>",
    "set <k> <v> exat <u>",
    "getex <k> exat <a>",
    "expireat <k> <a> <c>",
];

/// Rarely, since it ends what came before.
pub(crate) const FLUSH: &str = "flushall";

pub(crate) fn word(numbers: &mut Numbers, kind: u8, time_of_day: i64) -> String {
    let integers = [
        "0",
        "1",
        "-1",
        "2",
        "10",
        "-7",
        "100",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "01",
        "+1",
        "-0",
        " 1",
        "1.0",
        "abc",
        "",
        "4611686018427387904",
    ];
    match kind {
        b'k' => numbers.one(&["a", "b", "c", "d", "{a}1", "long key", "", "\u{e9}", "n", "m", "x[y", "*"]).into(),
        b'v' => {
            numbers.one(&["v", "", "w", "10", "-3", "0.5", "3.25", "a b\r\nc", "1e3", "9223372036854775807"]).into()
        }
        b'n' => numbers.one(&integers).into(),
        b'f' => numbers
            .one(&[
                "0.5", "0.1", "0.2", "-0.3", "1", "1e2", "2.5e-1", "10.50", ".5", "5.", "abc", "", "1.5 ", "-1e1", "0",
                "3.0e3", "+2", "1e-5", "0.000001",
            ])
            .into(),
        b'o' => numbers.one(&["nx", "XX", "get", "KEEPTTL", "persist", "nope"]).into(),
        b'e' => numbers.one(&["ex", "PX", "ex", "px", "nope"]).into(),
        b't' => numbers
            .one(&["100000", "200000", "0", "-1", "abc", "9223372036854775807", "9223372036854775", "9223372036854776"])
            .into(),
        b'a' => (time_of_day / 1000 + i64::try_from(numbers.next() % 3).unwrap() * 100_000 - 100_000).to_string(),
        b'u' => (time_of_day / 1000 + 100_000).to_string(),
        // The server's clock goes on, so that no two expiries that are compared may be meant to be the same.
        b'd' => (50_000_000 + numbers.next() % 1_000_000_007).to_string(),
        b'c' => numbers.one(&["nx", "xx", "gt", "lt", "nope"]).into(),
        b'p' => numbers.one(&["*", "?", "[a-c]", "[^a]", "*[", "l*k?y", "\\*", "{*}1", "[", "*y*", "x\\[y", ""]).into(),
        other => panic!("{other}"),
    }
}

pub(crate) fn arguments(numbers: &mut Numbers, time_of_day: i64) -> Vec<String> {
    let shape = if numbers.is_one_in(200) { FLUSH } else { numbers.one(SHAPES) };
    let words = shape.split(' ').map(|part| match part.as_bytes() {
        [b'<', kind, b'>'] => word(numbers, *kind, time_of_day),
        _ => part.to_owned(),
    });
    words.collect()
}

/// What is compared of an answer.
pub(crate) fn comparable(words: &[String], frame: OwnedFrame) -> OwnedFrame {
    match frame {
        // The order of keys is nobody's promise.
        OwnedFrame::Array(mut keys) if words[0] == "keys" => {
            keys.sort_by_key(|key| format!("{key:?}"));
            OwnedFrame::Array(keys)
        }
        // The server's clock goes on: some milliseconds are no difference. Here ends what is nearly 100 s or more.
        OwnedFrame::Integer(left) if words[0] == "pttl" && left > 10_000 => {
            OwnedFrame::Integer(left.saturating_add(30_000) / 60_000)
        }
        OwnedFrame::Integer(left) if words[0] == "ttl" && left > 10 => OwnedFrame::Integer((left + 30) / 60),
        OwnedFrame::Array(replies) if words[0] == "exec" => OwnedFrame::Array(
            replies
                .into_iter()
                .map(|reply| match reply {
                    OwnedFrame::Integer(left) if left > 10_000 => {
                        OwnedFrame::Integer(left.saturating_add(30_000) / 60_000)
                    }
                    OwnedFrame::Integer(left) if left > 10 => OwnedFrame::Integer((left + 30) / 60),
                    other => other,
                })
                .collect(),
        ),
        other => other,
    }
}

/// Whether a command is known, has the right number of arguments, and is refused for what they say.
pub(crate) fn has_wrong_options(arguments: &[&[u8]]) -> bool {
    let Err(error) = Command::parse(arguments, &Limits::default()) else { return false };
    // That MSET needs pairs, its number of arguments does not say.
    let is_counted = error.to_string().contains("wrong number") && !arguments[0].starts_with(b"mset");
    !is_counted && !error.to_string().contains("unknown command")
}

/// Whether two answers differ only in decimal numbers that a `double` cannot tell apart, or that are too large here.
pub(crate) fn is_rounding(ours: &OwnedFrame, theirs: &OwnedFrame) -> bool {
    let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<f64>().ok();
    match (ours, theirs) {
        (OwnedFrame::BulkString(ours), OwnedFrame::BulkString(theirs)) => {
            let (Some(mine), Some(other)) = (number(ours), number(theirs)) else { return false };
            ours != theirs && theirs.len() > 17 && (mine - other).abs() <= other.abs() * 1e-15
        }
        // Numbers of more than 21 digits are none here.
        (OwnedFrame::Error(ours), OwnedFrame::BulkString(theirs)) => {
            ours.ends_with("not a valid float") && theirs.len() > 21 && number(theirs).is_some()
        }
        (OwnedFrame::Array(ours), OwnedFrame::Array(theirs)) if ours.len() == theirs.len() && ours != theirs => {
            ours.iter().zip(theirs).any(|(ours, theirs)| is_rounding(ours, theirs))
        }
        _ => false,
    }
}

/// The server's time of day in milliseconds.
pub(crate) fn time_of_day(server: &mut Server) -> i64 {
    let OwnedFrame::Array(parts) = server.ask(&[b"time"]) else { panic!("no time") };
    let numbers: Vec<i64> = parts.iter().map(|part| part.as_str().unwrap().parse().unwrap()).collect();
    numbers[0] * 1000 + numbers[1] / 1000
}

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}
