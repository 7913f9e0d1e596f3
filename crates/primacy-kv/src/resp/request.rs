//! Requests out of the bytes that a client sends, however these are cut into pieces.

use alloc::borrow::Cow;
use alloc::format;
use alloc::vec::Vec;
use core::ops::Range;

use super::inline;
use super::reply::{Reply, Text};
use crate::number::integer;

/// How large a request may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most arguments, the name of the command among them.
    pub arguments: usize,
    /// The longest argument, in bytes.
    pub bulk: usize,
    /// The longest request, in bytes as sent.
    pub request: usize,
    /// Whether the client has said who it is. It only changes the words of an error.
    pub is_authenticated: bool,
}

impl Limits {
    /// For a client that has a right to be here.
    pub const DEFAULT: Self = Self { arguments: 1 << 20, bulk: 8 << 20, request: 64 << 20, is_authenticated: true };
    /// For a client that has not said who it is: what `AUTH` and `HELLO` need.
    pub const UNAUTHENTICATED: Self =
        Self { arguments: 10, bulk: 16 << 10, request: 64 << 10, is_authenticated: false };
}

/// The longest line: a request that is typed, or a count or a length in one that is not.
const LINE_MAX: usize = 64 << 10;
/// A buffer that is empty keeps no more memory than this.
const KEPT_MAX: usize = 64 << 10;

/// What a client has sent is no request. Its connection is of no use any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Protocol error: {0}")]
pub struct ProtocolError(Text);

impl ProtocolError {
    /// What to tell the client before its connection is closed.
    pub fn reply(&self) -> Reply {
        Reply::Error(format!("ERR {self}").into())
    }
}

/// The arguments of one request, the name of the command first. There is at least one.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    bytes: &'a [u8],
    ranges: &'a [Range<usize>],
}

impl<'a> Request<'a> {
    /// Its arguments, in order.
    pub fn arguments(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        self.ranges.iter().map(move |range| &bytes[range.clone()])
    }
}

/// What comes next.
#[derive(Debug, Clone)]
enum State {
    /// A request.
    Start,
    /// The length of an argument. So many more are to come, this one included.
    Length { left: usize },
    /// An argument.
    Bulk { left: usize, length: usize },
    /// The request has been handed out.
    Taken,
    /// Nothing more.
    Failed(ProtocolError),
}

/// Takes a client's bytes and gives its requests.
///
/// Each byte is looked at once, and copied once. Memory grows with the bytes that have come, and not with the lengths
/// that they name.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
    buffer: Vec<u8>,
    /// Where the request begins that is being read. All other positions are counted from here.
    start: usize,
    /// How far it has been read.
    at: usize,
    /// How far the end of a line has been searched.
    searched: usize,
    state: State,
    ranges: Vec<Range<usize>>,
    /// The words of a request that was typed.
    typed: Vec<u8>,
}

impl Decoder {
    /// A decoder that has seen nothing.
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            buffer: Vec::new(),
            start: 0,
            at: 0,
            searched: 0,
            state: State::Start,
            ranges: Vec::new(),
            typed: Vec::new(),
        }
    }

    /// Sets other limits, for what is read from now on.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// How many bytes wait here, of requests that are not complete and of complete ones that were not taken.
    pub const fn buffered(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Takes bytes that have come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.forget_taken();
        if self.start == self.buffer.len() {
            self.buffer.clear();
            self.buffer.shrink_to(KEPT_MAX);
            self.start = 0;
        } else if self.start >= self.buffer.len() / 2 {
            // No byte is moved more often than others have been taken.
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next request, if all of it has come.
    pub fn request(&mut self) -> Result<Option<Request<'_>>, ProtocolError> {
        self.forget_taken();
        match self.read() {
            Ok(None) => Ok(None),
            Ok(Some(source)) => {
                self.state = State::Taken;
                let bytes = match source {
                    Source::Buffer => &self.buffer[self.start..],
                    Source::Typed => &self.typed[..],
                };
                Ok(Some(Request { bytes, ranges: &self.ranges }))
            }
            Err(error) => {
                self.state = State::Failed(error.clone());
                Err(error)
            }
        }
    }

    fn forget_taken(&mut self) {
        if matches!(self.state, State::Taken) {
            self.begin();
        }
    }

    /// Goes on behind what has been read.
    fn begin(&mut self) {
        self.start += self.at;
        (self.at, self.searched) = (0, 0);
        self.state = State::Start;
        self.ranges.clear();
        self.typed.clear();
    }

    fn read(&mut self) -> Result<Option<Source>, ProtocolError> {
        loop {
            match self.state {
                State::Start | State::Taken => match self.buffer.get(self.start) {
                    None => return Ok(None),
                    Some(b'*') => {
                        let Some(line) = self.line("too big mbulk count string")? else { return Ok(None) };
                        match self.count(line)? {
                            0 => self.begin(),
                            left => self.state = State::Length { left },
                        }
                    }
                    Some(_) => {
                        let Some(line) = self.line("too big inline request")? else { return Ok(None) };
                        let line = &self.buffer[self.start..][line];
                        inline::split(line, &mut self.typed, &mut self.ranges)
                            .map_err(|_| error("unbalanced quotes in request"))?;
                        if !self.ranges.is_empty() {
                            return Ok(Some(Source::Typed));
                        }
                        self.begin();
                    }
                },
                State::Length { left } => {
                    let Some(line) = self.line("too big bulk count string")? else { return Ok(None) };
                    self.state = State::Bulk { left, length: self.length(line)? };
                }
                State::Bulk { left, length } => {
                    let from = self.at;
                    let Some(end) = self.buffer[self.start + from..].get(length..length + 2) else { return Ok(None) };
                    if end != b"\r\n" {
                        return Err(error("expected CRLF behind an argument"));
                    }
                    self.ranges.push(from..from + length);
                    self.at = from + length + 2;
                    match left - 1 {
                        0 => return Ok(Some(Source::Buffer)),
                        left => self.state = State::Length { left },
                    }
                }
                State::Failed(ref error) => return Err(error.clone()),
            }
        }
    }

    /// The next line without its end, if all of it has come.
    fn line(&mut self, too_long: &'static str) -> Result<Option<Range<usize>>, ProtocolError> {
        let bytes = &self.buffer[self.start..];
        let from = self.at.max(self.searched);
        match bytes[from..].iter().position(|byte| *byte == b'\n') {
            Some(length) if from + length - self.at <= LINE_MAX => {
                let (from, to) = (self.at, from + length);
                self.at = to + 1;
                let has_return = to > from && bytes[to - 1] == b'\r';
                Ok(Some(from..to - usize::from(has_return)))
            }
            None if bytes.len() - self.at <= LINE_MAX => {
                self.searched = bytes.len();
                Ok(None)
            }
            _ => Err(error(too_long)),
        }
    }

    /// How many arguments a line announces.
    fn count(&self, line: Range<usize>) -> Result<usize, ProtocolError> {
        let count = integer(&self.buffer[self.start..][line][1..]).ok_or(error("invalid multibulk length"))?;
        let count = usize::try_from(count).unwrap_or(0);
        if count > self.limits.arguments {
            let unauthenticated = "unauthenticated multibulk length";
            return Err(error(if self.limits.is_authenticated { "invalid multibulk length" } else { unauthenticated }));
        }
        Ok(count)
    }

    /// How long an argument a line announces.
    fn length(&self, line: Range<usize>) -> Result<usize, ProtocolError> {
        let line = &self.buffer[self.start..][line];
        let length = match line {
            [b'$', length @ ..] => length,
            _ => {
                let got = char::from(line.first().copied().unwrap_or(b'\r'));
                return Err(ProtocolError(format!("expected '$', got '{got}'").into()));
            }
        };
        let length = integer(length).and_then(|length| usize::try_from(length).ok());
        let length = length.ok_or(error("invalid bulk length"))?;
        if length > self.limits.bulk {
            let unauthenticated = "unauthenticated bulk length";
            return Err(error(if self.limits.is_authenticated { "invalid bulk length" } else { unauthenticated }));
        }
        if self.at + length + 2 > self.limits.request {
            return Err(error("too big request"));
        }
        Ok(length)
    }
}

/// Where the arguments are that were read.
enum Source {
    Buffer,
    Typed,
}

const fn error(what: &'static str) -> ProtocolError {
    ProtocolError(Cow::Borrowed(what))
}
