//! What programs and the agent say to each other over its socket: a JSON object on each line. The manual's page on the agent's
//! socket says what each means.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use primacy::Token;
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::task::coop;

use crate::output::schema;

/// The version of the protocol.
pub(super) const PROTOCOL: u32 = 1;
/// The longest frame of a program.
pub(super) const FRAME_MOST: usize = 16 << 10;
/// The longest frame of an agent.
pub(super) const ANSWER_MOST: usize = 4 << 20;
/// What a program asks for, in the first frame of its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Request {
    /// To hold the leadership of an election.
    Hold(HoldRequest),
    /// To be told how an election stands.
    Observe { protocol: u32, election: String },
    /// To give an order.
    Order(OrderRequest),
    /// Who holds what.
    List { protocol: u32 },
}

impl Request {
    /// By which version of the protocol it is made.
    pub(super) const fn protocol(&self) -> u32 {
        match self {
            Self::Hold(HoldRequest { protocol, .. })
            | Self::Observe { protocol, .. }
            | Self::Order(OrderRequest { protocol, .. })
            | Self::List { protocol } => *protocol,
        }
    }
}

/// A program that wants to hold a leadership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HoldRequest {
    pub(super) protocol: u32,
    pub(super) election: String,
    /// What its boot clock says.
    pub(super) now_ns: u64,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) data: Option<String>,
    #[serde(default)]
    pub(super) proof: ProofKind,
}

/// How the agent may know that nothing works for a program any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProofKind {
    /// Not at all.
    #[default]
    None,
    /// The process that has connected is the only one, and is dead.
    Process,
    /// Its control group is empty.
    Cgroup,
}

/// An order of an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OrderRequest {
    pub(super) protocol: u32,
    pub(super) election: String,
    pub(super) order: String,
    #[serde(default)]
    pub(super) candidate: Option<String>,
    #[serde(default)]
    pub(super) token: Option<String>,
}

/// What a program says after its request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Said {
    /// It has read everything up to this frame.
    Read { n: u64 },
    /// Its work of this token has stopped.
    Stopped { token: TokenText },
}

/// A token as it is written: not every language reads all digits of a number in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenText(pub(super) Token);

impl Serialize for TokenText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.get())
    }
}

impl<'de> Deserialize<'de> for TokenText {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        token(&text).map(Self).ok_or_else(|| serde::de::Error::custom("it is no token"))
    }
}

/// The token with these digits.
pub(super) fn token(digits: &str) -> Option<Token> {
    digits.parse().ok().and_then(Token::new)
}

/// What the agent says.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Frame {
    Agent { protocol: u32, now_ns: u64 },
    Refused { code: RefusalCode, why: String },
    Waiting { n: u64, position: Option<u32>, leader: Option<LeaderFrame>, why: String },
    Elected { n: u64, token: TokenText, stop_ns: u64, deadline_ns: u64 },
    Extended { n: u64, token: TokenText, stop_ns: u64, deadline_ns: u64 },
    Draining { n: u64, token: TokenText, reason: String, why: String, by_ns: u64 },
    Lost { n: u64, token: TokenText, reason: String, why: String },
    Seen { n: u64, status: Box<schema::Status> },
    Ordered { outcome: serde_json::Value },
    Holds { name: String, version: &'static str, holds: Vec<HoldFrame> },
}

/// Why something is refused, for programs. The manual says which of these it is of use to try again after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RefusalCode {
    Malformed,
    Protocol,
    Clock,
    NotAllowed,
    NoSuchElection,
    Proof,
    Busy,
    Ending,
    Unavailable,
    Refused,
}

impl RefusalCode {
    #[cfg(test)]
    const ALL: [Self; 10] = [
        Self::Malformed,
        Self::Protocol,
        Self::Clock,
        Self::NotAllowed,
        Self::NoSuchElection,
        Self::Proof,
        Self::Busy,
        Self::Ending,
        Self::Unavailable,
        Self::Refused,
    ];
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LeaderFrame {
    pub(super) name: String,
    pub(super) token: TokenText,
}

/// One hold of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HoldFrame {
    pub(super) election: String,
    pub(super) name: String,
    pub(super) pid: Option<i32>,
    pub(super) uid: u32,
    pub(super) standing: Cow<'static, str>,
    pub(super) token: Option<TokenText>,
    pub(super) deadline_ns: Option<u64>,
    pub(super) proof: ProofKind,
}

/// Where an agent listens unless something else is said: in this user's runtime directory, or in that of the system.
pub(super) fn default_socket(is_root: bool) -> PathBuf {
    of_user().filter(|_| !is_root).unwrap_or_else(of_system)
}

/// Where a program looks for the agent unless something else is said: that of its user, if there is one.
pub(super) fn agent_of_host() -> PathBuf {
    of_user().filter(|socket| socket.exists()).unwrap_or_else(of_system)
}

fn of_user() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from)?;
    folder.is_absolute().then(|| folder.join("primacy/agent.sock"))
}

fn of_system() -> PathBuf {
    PathBuf::from("/run/primacy/agent.sock")
}

/// A connection with frames.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    /// What has come of a line that has not ended yet, and how much of that has no end of a line.
    inbox: Vec<u8>,
    searched: usize,
}

impl Channel {
    pub(super) const fn new(stream: UnixStream) -> Self {
        Self { stream, inbox: Vec::new(), searched: 0 }
    }

    pub(super) const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The next line without its end; `None` when the connection has ended. Cancel-safe.
    ///
    /// # Errors
    /// If the connection fails, or a line is too long.
    pub(super) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.next_within(FRAME_MOST).await
    }

    /// The same, of which a line may have this many bytes.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(super) async fn next_within(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
        // However much comes, others have their turns.
        coop::consume_budget().await;
        loop {
            if let Some(length) = self.inbox[self.searched..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.inbox.drain(..=self.searched + length).collect();
                self.searched = 0;
                line.pop();
                return Ok(Some(line));
            }
            self.searched = self.inbox.len();
            if self.inbox.len() >= most {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
            }
            self.stream.ready(Interest::READABLE).await?;
            let mut chunk = [0; 4_096];
            match self.stream.try_read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(count) => self.inbox.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a frame that may be long, for this long at most.
    ///
    /// # Errors
    /// If the other end does not read all of it, or the connection has ended.
    pub(super) async fn send(&self, frame: &Frame, patience: Duration) -> io::Result<()> {
        let line = serde_json::to_vec(frame).map_err(io::Error::other)?;
        tokio::time::timeout(patience, self.write(line)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Sends a line.
    ///
    /// # Errors
    /// If the connection has ended.
    pub(super) async fn write(&self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        let mut sent = 0;
        while sent < line.len() {
            self.stream.ready(Interest::WRITABLE).await?;
            match self.stream.try_write(&line[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a frame, and does not wait: who reads nothing for long gets no more.
    ///
    /// # Errors
    /// If it does not fit into what the other end leaves unread, or the connection has ended. Part of it may have been sent.
    pub(super) fn tell(&self, frame: &Frame) -> io::Result<()> {
        let mut line = serde_json::to_vec(frame).map_err(io::Error::other)?;
        line.push(b'\n');
        match self.stream.try_write(&line) {
            Ok(count) if count == line.len() => Ok(()),
            Ok(_) => Err(io::Error::new(io::ErrorKind::WouldBlock, "it does not read")),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_as_the_manual_prints_them() {
        let manual = include_str!("../../../../docs/manual/agent-protocol.md");
        let token = TokenText(token("42").expect("small"));
        let leader =
            Some(LeaderFrame { name: "web-2".to_owned(), token: TokenText(super::token("41").expect("small")) });
        let why = || "...".to_owned();
        for frame in [
            Frame::Agent { protocol: PROTOCOL, now_ns: 81_234_000_000 },
            Frame::Waiting { n: 1, position: Some(2), leader, why: why() },
            Frame::Elected { n: 2, token, stop_ns: 86_000_000_000, deadline_ns: 91_000_000_000 },
            Frame::Extended { n: 3, token, stop_ns: 89_000_000_000, deadline_ns: 94_000_000_000 },
            Frame::Draining { n: 4, token, reason: "deposed".to_owned(), why: why(), by_ns: 93_000_000_000 },
            Frame::Lost { n: 5, token, reason: "expired".to_owned(), why: why() },
        ] {
            let written = serde_json::to_string(&frame).expect("it can be written");
            let printed = written.replace("\":", "\": ").replace(",\"", ", \"");
            assert!(manual.contains(&printed), "{printed}");
        }
        for request in [
            r#"{"type": "observe", "protocol": 1, "election": "billing"}"#,
            r#"{"type": "order", "protocol": 1, "election": "billing", "order": "promote", "candidate": "web-2", "token": "42"}"#,
            r#"{"type": "list", "protocol": 1}"#,
        ] {
            assert!(manual.contains(request), "{request}");
            let read: Request = serde_json::from_str(request).expect("it can be read");
            assert_eq!(read.protocol(), PROTOCOL);
        }
        let said = r#"{"type": "stopped", "token": "42"}"#;
        assert!(manual.contains(said), "{said}");
        assert_eq!(serde_json::from_str::<Said>(said).expect("it can be read"), Said::Stopped { token });
    }

    #[test]
    fn each_code_of_a_refusal_is_in_the_manual() {
        let manual = include_str!("../../../../docs/manual/agent-protocol.md");
        for code in RefusalCode::ALL {
            let word = serde_json::to_string(&code).expect("it can be written");
            assert!(manual.contains(&format!("| `{}` |", word.trim_matches('"'))), "{word}");
        }
    }

    #[test]
    fn a_token_is_digits_of_one() {
        for wrong in ["", "-1", "1.0", "0x1", "18446744073709551616", "x", "9223372036854775808"] {
            assert!(serde_json::from_value::<TokenText>(wrong.into()).is_err(), "{wrong}");
        }
        assert!(serde_json::from_value::<TokenText>(7.into()).is_err(), "a number is none");
    }
}
