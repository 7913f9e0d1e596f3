//! ZooKeeper's own protocol: frames with a length before them, numbers with the highest byte first.
//!
//! A linearizable read is a `sync` and a `getData` behind it, sent together.

use anyhow::{Context as _, Result, ensure};

use super::{Codec, Event, Outcome, Request};

/// The numbers of requests.
const CREATE: i32 = 1;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const SYNC: i32 = 9;
const CLOSE: i32 = -11;

/// How long a session lasts, in milliseconds.
const SESSION_MS: i32 = 30_000;
/// An error that says that the node is there already.
const NODE_EXISTS: i32 = -110;
/// Errors after which a request may have been carried out: the connection was lost, it took too long.
const UNKNOWN: [i32; 2] = [-4, -7];

#[derive(Default)]
pub(super) struct ZooKeeper {
    value_bytes: usize,
    is_greeted: bool,
    /// The number of the last request.
    number: i32,
    is_read: bool,
}

impl ZooKeeper {
    pub(super) fn new(value_bytes: usize) -> Self {
        Self { value_bytes, ..Self::default() }
    }

    /// A request with its length before it.
    fn frame(&mut self, kind: i32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        self.number = self.number.wrapping_add(1) & i32::MAX;
        let number = self.number;
        framed(out, |out| {
            put(out, number);
            put(out, kind);
            body(out);
        });
    }
}

fn framed(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; 4]);
    body(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn put(out: &mut Vec<u8>, number: i32) {
    out.extend(number.to_be_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

/// The path of a key.
fn put_path(out: &mut Vec<u8>, key: &[u8]) {
    out.extend((key.len() as u32 + 1).to_be_bytes());
    out.push(b'/');
    out.extend(key);
}

fn number(bytes: &[u8], at: usize) -> Result<i32> {
    let bytes = bytes.get(at..at + 4).context("a short frame")?;
    Ok(i32::from_be_bytes(bytes.try_into()?))
}

impl Codec for ZooKeeper {
    fn greeting(&mut self, out: &mut Vec<u8>) -> bool {
        framed(out, |out| {
            put(out, 0); // Version.
            out.extend([0; 8]); // The last transaction that was seen.
            put(out, SESSION_MS);
            out.extend([0; 8]); // A new session.
            put_bytes(out, &[0; 16]); // Its password.
            out.push(0); // Not read-only.
        });
        true
    }

    fn request(&mut self, request: Request, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.is_read = matches!(request, Request::Get | Request::LocalGet);
        match request {
            Request::Make => self.frame(CREATE, out, |out| {
                put_path(out, key);
                put_bytes(out, value);
                put(out, 1); // One rule about rights: all, for anyone.
                put(out, 31);
                put_bytes(out, b"world");
                put_bytes(out, b"anyone");
                put(out, 0); // It stays.
            }),
            Request::Set => self.frame(SET_DATA, out, |out| {
                put_path(out, key);
                put_bytes(out, value);
                put(out, -1); // Any version.
            }),
            Request::Get | Request::LocalGet => {
                if request == Request::Get {
                    self.frame(SYNC, out, |out| put_path(out, key));
                }
                self.frame(GET_DATA, out, |out| {
                    put_path(out, key);
                    out.push(0); // Not watched.
                });
            }
        }
    }

    fn receive(&mut self, input: &[u8], _: &mut Vec<u8>) -> Result<(usize, Option<Event>)> {
        let mut at = 0;
        while let Some(length) = input.get(at..at + 4) {
            let length = u32::from_be_bytes(length.try_into()?) as usize;
            let Some(frame) = input.get(at + 4..at + 4 + length) else { break };
            at += 4 + length;
            if !self.is_greeted {
                self.is_greeted = true;
                ensure!(number(frame, 4)? > 0, "the session is refused");
                return Ok((at, Some(Event::Greeted)));
            }
            // Of pings and of `sync`, what nobody waits for.
            if number(frame, 0)? != self.number {
                continue;
            }
            let outcome = match number(frame, 12)? {
                0 if self.is_read => {
                    ensure!(number(frame, 16)? as usize == self.value_bytes, "a value of another length");
                    Outcome::Done
                }
                0 | NODE_EXISTS => Outcome::Done,
                error if UNKNOWN.contains(&error) => Outcome::Unknown(format!("error {error}")),
                error => Outcome::Refused(format!("error {error}")),
            };
            return Ok((at, Some(Event::Answered(outcome))));
        }
        Ok((at, None))
    }

    fn farewell(&mut self, out: &mut Vec<u8>) {
        self.frame(CLOSE, out, |_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_answered_by_its_second_answer() {
        let (mut zookeeper, mut out) = (ZooKeeper::new(3), Vec::new());
        assert!(zookeeper.greeting(&mut out), "a session is made first");
        let mut greeted = Vec::new();
        framed(&mut greeted, |out| [0, SESSION_MS, 0, 1].into_iter().for_each(|number| put(out, number)));
        let told = zookeeper.receive(&greeted, &mut out).expect("it is ZooKeeper's");
        assert_eq!(told, (greeted.len(), Some(Event::Greeted)));
        zookeeper.request(Request::Get, b"k", b"", &mut out);
        let mut answers = Vec::new();
        framed(&mut answers, |out| [1, 0, 0, 0].into_iter().for_each(|number| put(out, number)));
        assert_eq!(zookeeper.receive(&answers, &mut out).expect("it is ZooKeeper's").1, None);
        framed(&mut answers, |out| {
            [2, 0, 0, 0].into_iter().for_each(|number| put(out, number));
            put_bytes(out, b"abc");
        });
        let told = zookeeper.receive(&answers, &mut out).expect("it is ZooKeeper's");
        assert_eq!(told, (answers.len(), Some(Event::Answered(Outcome::Done))));
    }
}
