//! RESP, as Redis and primacy speak it.

use anyhow::{Context as _, Result, bail};

use super::{Codec, Event, Outcome, Request};

/// How long `WAIT` waits, in milliseconds.
const WAIT_MS: &[u8] = b"$4\r\n1000\r\n";

pub(super) struct Resp {
    /// For how many replicas a write waits.
    wait: u8,
    value_bytes: usize,
    awaited: Awaited,
}

/// What the next answer is of.
enum Awaited {
    Set,
    /// Of `WAIT`, after what came of the write.
    Wait(Outcome),
    Get,
}

impl Resp {
    pub(super) fn new(wait: u8, value_bytes: usize) -> Self {
        Self { wait, value_bytes, awaited: Awaited::Get }
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    out.extend(bytes.len().to_string().as_bytes());
    out.extend(b"\r\n");
    out.extend(bytes);
    out.extend(b"\r\n");
}

impl Codec for Resp {
    fn request(&mut self, request: Request, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        if matches!(request, Request::Get | Request::LocalGet) {
            out.extend(b"*2\r\n$3\r\nGET\r\n");
            put(out, key);
            self.awaited = Awaited::Get;
            return;
        }
        out.extend(b"*3\r\n$3\r\nSET\r\n");
        put(out, key);
        put(out, value);
        self.awaited = Awaited::Set;
        if self.wait > 0 {
            out.extend(b"*3\r\n$4\r\nWAIT\r\n$1\r\n");
            out.extend([b'0' + self.wait]);
            out.extend(b"\r\n");
            out.extend(WAIT_MS);
        }
    }

    fn receive(&mut self, input: &[u8], _: &mut Vec<u8>) -> Result<(usize, Option<Event>)> {
        let mut at = 0;
        loop {
            let Some(end) = input[at..].iter().position(|byte| *byte == b'\n') else { return Ok((at, None)) };
            let line = input[at..at + end].strip_suffix(b"\r").context("a line without its end")?;
            let (kind, rest) = line.split_first().context("an empty line")?;
            let text = std::str::from_utf8(rest).unwrap_or("?");
            let mut next = at + end + 1;
            let outcome = match (kind, &self.awaited) {
                (b'+', Awaited::Set) => Outcome::Done,
                (b'-', _) if rest.starts_with(b"UNKNOWN") => Outcome::Unknown(text.to_owned()),
                (b'-', _) => Outcome::Refused(text.to_owned()),
                (b':', Awaited::Wait(_)) if text.parse::<u8>()? >= self.wait => Outcome::Done,
                (b':', Awaited::Wait(_)) => Outcome::Unknown(format!("only {text} replicas have it")),
                (b'$', Awaited::Get) if text == "-1" => Outcome::Refused("no such key".to_owned()),
                (b'$', Awaited::Get) => {
                    let length: usize = text.parse()?;
                    next += length + 2;
                    if input.len() < next {
                        return Ok((at, None));
                    }
                    if length != self.value_bytes {
                        bail!("a value of {length} bytes");
                    }
                    Outcome::Done
                }
                _ => bail!("an unexpected answer: {}", String::from_utf8_lossy(line)),
            };
            let outcome = match std::mem::replace(&mut self.awaited, Awaited::Get) {
                Awaited::Set if self.wait > 0 => {
                    self.awaited = Awaited::Wait(outcome);
                    at = next;
                    continue;
                }
                Awaited::Wait(failed @ (Outcome::Refused(_) | Outcome::Unknown(_))) => failed,
                _ => outcome,
            };
            return Ok((next, Some(Event::Answered(outcome))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_answered_when_the_replicas_have_it() {
        let (mut resp, mut out) = (Resp::new(2, 3), Vec::new());
        resp.request(Request::Set, b"k", b"abc", &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nabc\r\n*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$4\r\n1000\r\n");
        assert_eq!(resp.receive(b"+OK\r\n:", &mut out).expect("it is RESP"), (5, None));
        let done = (4, Some(Event::Answered(Outcome::Done)));
        assert_eq!(resp.receive(b":2\r\n", &mut out).expect("it is RESP"), done);
    }

    #[test]
    fn a_value_comes_in_pieces() {
        let (mut resp, mut out) = (Resp::new(0, 3), Vec::new());
        resp.request(Request::Get, b"k", b"", &mut out);
        assert_eq!(resp.receive(b"$3\r\nab", &mut out).expect("it is RESP"), (0, None));
        let done = (9, Some(Event::Answered(Outcome::Done)));
        assert_eq!(resp.receive(b"$3\r\nabc\r\n", &mut out).expect("it is RESP"), done);
    }
}
