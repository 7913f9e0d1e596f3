//! etcd's gRPC by hand: HTTP/2 with one stream at a time, `Put` and `Range`, without a general client's queues, tasks and buffers.
//!
//! An answer with a message is a success, and one without is an error: the server sends no message then. So headers need not be
//! understood, and the server is told to keep no table for them.

use anyhow::{Context as _, Result, bail, ensure};

use super::{Codec, Event, Outcome, Request};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// Flags of frames.
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// Room for what the server sends: all that can be said at once, and again when half of it is used.
const WINDOW: u32 = (1 << 31) - 1;
const FIRST_WINDOW: u32 = 65_535;

/// The length of a frame's head.
const HEAD: usize = 9;

pub(super) struct Etcd {
    value_bytes: usize,
    /// Of the last request; clients' streams have odd numbers.
    stream: u32,
    /// What the server's table of headers has by now: those of this path.
    path: Option<&'static str>,
    /// How many bytes have come since the server was last given room.
    received: u32,
    /// Of the answer's message so far.
    message: usize,
    is_read: bool,
}

impl Etcd {
    pub(super) fn new(value_bytes: usize) -> Self {
        Self { value_bytes, stream: u32::MAX, path: None, received: 0, message: 0, is_read: false }
    }

    /// The first request of a path tells the server all headers, and the later ones their places in its table.
    fn headers(&mut self, path: &'static str) -> Vec<u8> {
        // POST, http, and the other four, of which the last one that came has the first place.
        const KNOWN: [u8; 6] = [0x83, 0x86, 0xc1, 0xc0, 0xbf, 0xbe];
        if self.path == Some(path) {
            return KNOWN.to_vec();
        }
        self.path = Some(path);
        let mut block = vec![0x83, 0x86];
        let mut literal = |name: &[u8], value: &str| {
            block.extend(name);
            block.push(value.len() as u8);
            block.extend(value.as_bytes());
        };
        literal(&[0x44], path);
        literal(&[0x41], "etcd");
        literal(&[0x5f], "application/grpc");
        literal(b"\x40\x02te", "trailers");
        block
    }
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, body: &[u8]) {
    out.extend(&(body.len() as u32).to_be_bytes()[1..]);
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(body);
}

/// A field of bytes in protobuf.
fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend(bytes);
}

impl Codec for Etcd {
    fn greeting(&mut self, out: &mut Vec<u8>) -> bool {
        out.extend(PREFACE);
        // No table of headers, and all the room that there can be for each stream.
        let settings = [(1u16, 0u32), (4, WINDOW)];
        let settings: Vec<u8> =
            settings.iter().flat_map(|(key, value)| key.to_be_bytes().into_iter().chain(value.to_be_bytes())).collect();
        frame(out, SETTINGS, 0, 0, &settings);
        frame(out, WINDOW_UPDATE, 0, 0, &(WINDOW - FIRST_WINDOW).to_be_bytes());
        false
    }

    fn request(&mut self, request: Request, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.is_read = matches!(request, Request::Get | Request::LocalGet);
        self.message = 0;
        self.stream = self.stream.wrapping_add(2);
        let block = self.headers(if self.is_read { "/etcdserverpb.KV/Range" } else { "/etcdserverpb.KV/Put" });
        frame(out, HEADERS, END_HEADERS, self.stream, &block);
        let start = out.len();
        frame(out, DATA, END_STREAM, self.stream, &[0; 5]);
        field(out, 1, key);
        if !self.is_read {
            field(out, 2, value);
        } else if request == Request::LocalGet {
            out.extend([7 << 3, 1]); // Serializable.
        }
        let body = (out.len() - start - HEAD) as u32;
        out[start..start + 3].copy_from_slice(&body.to_be_bytes()[1..]);
        out[start + HEAD + 1..start + HEAD + 5].copy_from_slice(&(body - 5).to_be_bytes());
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(usize, Option<Event>)> {
        let mut at = 0;
        while let Some(head) = input.get(at..at + HEAD) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes(head[5..].try_into()?);
            let Some(body) = input.get(at + HEAD..at + HEAD + length) else { break };
            at += HEAD + length;
            match kind {
                DATA => {
                    ensure!(flags & PADDED == 0, "padded frames are not read");
                    self.received += length as u32;
                    self.message += length;
                    if self.received > WINDOW / 2 {
                        frame(out, WINDOW_UPDATE, 0, 0, &self.received.to_be_bytes());
                        self.received = 0;
                    }
                }
                HEADERS if flags & END_STREAM != 0 && stream == self.stream => {
                    let outcome = match self.message {
                        0 => Outcome::Unknown("refused, or not known".to_owned()),
                        message if self.is_read && message < self.value_bytes => {
                            Outcome::Refused("no such key".to_owned())
                        }
                        _ => Outcome::Done,
                    };
                    return Ok((at, Some(Event::Answered(outcome))));
                }
                SETTINGS if flags & ACK == 0 => frame(out, SETTINGS, ACK, 0, &[]),
                PING if flags & ACK == 0 => frame(out, PING, ACK, 0, body),
                RESET if stream == self.stream => {
                    return Ok((at, Some(Event::Answered(Outcome::Unknown("the stream was reset".to_owned())))));
                }
                GO_AWAY => {
                    bail!("the server goes: {}", String::from_utf8_lossy(body.get(8..).context("a short frame")?))
                }
                _ => {}
            }
        }
        Ok((at, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(stream: u32, message: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame(&mut bytes, HEADERS, END_HEADERS, stream, &[0x88]);
        frame(&mut bytes, DATA, 0, stream, message);
        frame(&mut bytes, HEADERS, END_HEADERS | END_STREAM, stream, &[0x88]);
        bytes
    }

    #[test]
    fn the_second_request_names_its_headers_by_their_places() {
        let (mut etcd, mut first, mut second) = (Etcd::new(3), Vec::new(), Vec::new());
        etcd.request(Request::Set, b"k", b"abc", &mut first);
        etcd.request(Request::Set, b"k", b"abc", &mut second);
        let path = b"/etcdserverpb.KV/Put";
        let names_path = |bytes: &[u8]| bytes.windows(path.len()).any(|window| window == path);
        assert!(names_path(&first) && !names_path(&second));
        assert!(second.ends_with(&[0, 0, 0, 0, 8, 0x0a, 1, b'k', 0x12, 3, b'a', b'b', b'c']));
    }

    #[test]
    fn an_answer_without_a_message_is_no_success() {
        let (mut etcd, mut out) = (Etcd::new(3), Vec::new());
        etcd.request(Request::Set, b"k", b"abc", &mut out);
        let bytes = answer(1, b"");
        let (used, event) = etcd.receive(&bytes, &mut out).expect("it is HTTP/2");
        assert_eq!(used, bytes.len());
        assert!(matches!(event, Some(Event::Answered(Outcome::Unknown(_)))), "{event:?}");
    }

    #[test]
    fn a_ping_is_answered_and_an_answer_comes_in_pieces() {
        let (mut etcd, mut out, mut bytes) = (Etcd::new(3), Vec::new(), Vec::new());
        etcd.request(Request::Get, b"k", b"", &mut out);
        out.clear();
        frame(&mut bytes, PING, 0, 0, b"01234567");
        bytes.extend(answer(1, b"long enough"));
        let (used, event) = etcd.receive(&bytes[..bytes.len() - 1], &mut out).expect("it is HTTP/2");
        assert_eq!((event, out[3], out[4]), (None, PING, ACK));
        let (_, event) = etcd.receive(&bytes[used..], &mut out).expect("it is HTTP/2");
        assert_eq!(event, Some(Event::Answered(Outcome::Done)));
    }
}
