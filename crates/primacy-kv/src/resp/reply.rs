//! Replies, their bytes for a client in either version of RESP, and their bytes in a snapshot.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use crate::wire::{Malformed, Reader, put_bytes, put_number, put_signed};

/// Words of the program, or words that it has put together.
pub type Text = Cow<'static, str>;

/// A version of RESP. A client begins with 2, and asks for 3 by `HELLO 3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Protocol {
    /// RESP2.
    #[default]
    V2,
    /// RESP3.
    V3,
}

/// An answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A word.
    Simple(Text),
    /// An error: a code in capitals, and what it means here.
    Error(Text),
    /// A number.
    Integer(i64),
    /// Any bytes.
    Bulk(Arc<Vec<u8>>),
    /// Nothing, where there could be bytes.
    Null,
    /// Nothing, where there could be a list.
    NullArray,
    /// A list.
    Array(Vec<Reply>),
    /// A list without an order.
    Set(Vec<Reply>),
    /// Names and what they stand for. In RESP2 a list of both by turns.
    Map(Vec<(Reply, Reply)>),
    /// Text for people.
    Verbatim(Box<str>),
}

/// How deep lists are nested at most: `EXEC`, in it `MGET`, in it values.
const DEPTH_MAX: u8 = 4;

impl Reply {
    /// It is done.
    pub const OK: Self = Self::Simple(Cow::Borrowed("OK"));

    /// An error in the words of this program.
    pub const fn error(text: &'static str) -> Self {
        Self::Error(Cow::Borrowed(text))
    }

    /// Bytes.
    pub fn bulk(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(Arc::new(bytes.into()))
    }

    /// Bytes, or nothing.
    pub fn maybe(bytes: Option<impl Into<Vec<u8>>>) -> Self {
        bytes.map_or(Self::Null, Self::bulk)
    }

    /// A count.
    pub fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Yes as 1, no as 0.
    pub fn truth(is_so: bool) -> Self {
        Self::Integer(i64::from(is_so))
    }

    /// Appends what is sent to a client.
    pub fn encode(&self, protocol: Protocol, out: &mut Vec<u8>) {
        let is_new = protocol == Protocol::V3;
        match self {
            Self::Simple(text) => line(out, b'+', text),
            Self::Error(text) => line(out, b'-', text),
            Self::Integer(number) => number_line(out, b':', number),
            Self::Bulk(bytes) => bulk(out, b'$', &[bytes]),
            Self::Null if is_new => out.extend_from_slice(b"_\r\n"),
            Self::NullArray if is_new => out.extend_from_slice(b"_\r\n"),
            Self::Null => out.extend_from_slice(b"$-1\r\n"),
            Self::NullArray => out.extend_from_slice(b"*-1\r\n"),
            Self::Array(replies) => list(out, b'*', replies, protocol),
            Self::Set(replies) => list(out, if is_new { b'~' } else { b'*' }, replies, protocol),
            Self::Map(pairs) => {
                header(out, if is_new { b'%' } else { b'*' }, if is_new { pairs.len() } else { 2 * pairs.len() });
                for (name, value) in pairs {
                    name.encode(protocol, out);
                    value.encode(protocol, out);
                }
            }
            Self::Verbatim(text) if is_new => bulk(out, b'=', &[b"txt:", text.as_bytes()]),
            Self::Verbatim(text) => bulk(out, b'$', &[text.as_bytes()]),
        }
    }

    /// How many bytes of memory it takes, about. All replicas have to count alike, since what a table keeps and does depends on it: so no
    /// number here is a compiler's.
    pub fn size(&self) -> usize {
        const ITSELF: usize = 32;
        let inside = match self {
            Self::Simple(text) | Self::Error(text) => text.len(),
            Self::Integer(_) | Self::Null | Self::NullArray => 0,
            Self::Bulk(bytes) => bytes.len(),
            Self::Array(replies) | Self::Set(replies) => replies.iter().map(Self::size).sum(),
            Self::Map(pairs) => pairs.iter().map(|(name, value)| name.size() + value.size()).sum(),
            Self::Verbatim(text) => text.len(),
        };
        ITSELF + inside
    }

    /// Appends what is kept of it, or sent to another node.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let tagged = |out: &mut Vec<u8>, tag: u8, bytes: &[u8]| {
            out.push(tag);
            put_bytes(out, bytes);
        };
        let many = |out: &mut Vec<u8>, tag: u8, replies: &[Self]| {
            out.push(tag);
            put_number(out, replies.len() as u64);
            replies.iter().for_each(|reply| reply.put(out));
        };
        match self {
            Self::Simple(text) => tagged(out, 0, text.as_bytes()),
            Self::Error(text) => tagged(out, 1, text.as_bytes()),
            Self::Integer(number) => {
                out.push(2);
                put_signed(out, *number);
            }
            Self::Bulk(bytes) => tagged(out, 3, bytes),
            Self::Null => out.push(4),
            Self::NullArray => out.push(5),
            Self::Array(replies) => many(out, 6, replies),
            Self::Set(replies) => many(out, 7, replies),
            Self::Map(pairs) => {
                out.push(8);
                put_number(out, pairs.len() as u64);
                for (name, value) in pairs {
                    name.put(out);
                    value.put(out);
                }
            }
            Self::Verbatim(text) => tagged(out, 9, text.as_bytes()),
        }
    }

    /// Reads back what [`Reply::put`] wrote.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::read_within(reader, DEPTH_MAX)
    }

    fn read_within(reader: &mut Reader<'_>, depth: u8) -> Result<Self, Malformed> {
        let text = |reader: &mut Reader<'_>| {
            let text = core::str::from_utf8(reader.bytes(usize::MAX)?);
            text.map(String::from).map_err(|_| Malformed("a text is not UTF-8"))
        };
        let deeper = || depth.checked_sub(1).ok_or(Malformed("lists are nested too deep"));
        Ok(match reader.byte()? {
            0 => Self::Simple(text(reader)?.into()),
            1 => Self::Error(text(reader)?.into()),
            2 => Self::Integer(reader.signed()?),
            3 => Self::bulk(reader.bytes(usize::MAX)?),
            4 => Self::Null,
            5 => Self::NullArray,
            6 => {
                let depth = deeper()?;
                Self::Array(reader.list(|reader| Self::read_within(reader, depth))?)
            }
            7 => {
                let depth = deeper()?;
                Self::Set(reader.list(|reader| Self::read_within(reader, depth))?)
            }
            8 => {
                let depth = deeper()?;
                let pair = |reader: &mut Reader<'_>| {
                    Ok((Self::read_within(reader, depth)?, Self::read_within(reader, depth)?))
                };
                Self::Map(reader.list(pair)?)
            }
            9 => Self::Verbatim(text(reader)?.into()),
            _ => return Err(Malformed("an unknown kind of reply")),
        })
    }
}

/// A line of text. Ends of lines in it would be read as more replies.
fn line(out: &mut Vec<u8>, kind: u8, text: &str) {
    out.push(kind);
    out.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

fn number_line(out: &mut Vec<u8>, kind: u8, number: impl fmt::Display) {
    out.push(kind);
    // Writing to memory cannot fail.
    let _ = write!(Bytes(out), "{number}\r\n");
}

/// Text is written at the end of bytes.
struct Bytes<'a>(&'a mut Vec<u8>);

impl fmt::Write for Bytes<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

fn header(out: &mut Vec<u8>, kind: u8, count: usize) {
    number_line(out, kind, count);
}

fn bulk(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    header(out, kind, parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(b"\r\n");
}

fn list(out: &mut Vec<u8>, kind: u8, replies: &[Reply], protocol: Protocol) {
    header(out, kind, replies.len());
    replies.iter().for_each(|reply| reply.encode(protocol, out));
}
