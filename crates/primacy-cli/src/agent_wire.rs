//! What programs and the agent say to each other over its socket: a JSON object on each line. The manual's page on the agent's
//! socket says what each means.

mod place;
mod token;
mod unread;

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use primacy::Label;
use primacy::store::{EndReason, Why};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::task::coop;

use crate::output::schema;
pub(crate) use place::{agent_of_host, default_socket};
pub(crate) use token::{TokenText, token};
pub(crate) use unread::{elected_token, unread_tokens};

/// The version of the protocol.
pub(crate) const PROTOCOL: u32 = 1;
/// The longest frame of a program.
pub(crate) const FRAME_MOST: usize = 16 << 10;
/// The longest frame of an agent.
pub(crate) const ANSWER_MOST: usize = 4 << 20;
/// What a program asks for, in the first frame of its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Request {
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
    pub(crate) const fn protocol(&self) -> u32 {
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
pub(crate) struct HoldRequest {
    pub(crate) protocol: u32,
    pub(crate) election: String,
    /// What its boot clock says.
    pub(crate) now_ns: u64,
    #[serde(default)]
    pub(crate) name: Option<String>,
    #[serde(default)]
    pub(crate) data: Option<String>,
    #[serde(default)]
    pub(crate) proof: ProofKind,
}

/// How the agent may know that nothing works for a program any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProofKind {
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
pub(crate) struct OrderRequest {
    pub(crate) protocol: u32,
    pub(crate) election: String,
    pub(crate) order: String,
    #[serde(default)]
    pub(crate) candidate: Option<String>,
    #[serde(default)]
    pub(crate) token: Option<String>,
}

/// What a program says after its request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Said {
    /// It has read everything up to this frame.
    Read { n: u64 },
    /// Its work of this token has stopped.
    Stopped { token: TokenText },
}

/// What the agent says.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Frame {
    Agent {
        protocol: u32,
        now_ns: u64,
    },
    Refused {
        code: RefusalCode,
        why: String,
    },
    Waiting(WaitingFrame),
    Elected(ElectedFrame),
    Extended {
        n: u64,
        token: TokenText,
        stop_ns: u64,
        deadline_ns: u64,
    },
    Draining {
        n: u64,
        token: TokenText,
        #[serde(flatten)]
        end: EndFrame,
        by_ns: u64,
    },
    Lost {
        n: u64,
        token: TokenText,
        #[serde(flatten)]
        end: EndFrame,
    },
    Seen {
        n: u64,
        status: Box<schema::Status>,
    },
    Ordered {
        outcome: serde_json::Value,
    },
    Holds {
        name: String,
        version: &'static str,
        holds: Vec<HoldFrame>,
    },
}

/// What a program that holds a leadership is told, as it reads it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Heard {
    Waiting(WaitingFrame),
    Elected(ElectedFrame),
    Extended {
        token: TokenText,
        stop_ns: u64,
        deadline_ns: u64,
    },
    Draining {
        token: TokenText,
        #[serde(flatten)]
        end: EndFrame,
        by_ns: u64,
    },
    Lost {
        token: TokenText,
        #[serde(flatten)]
        end: EndFrame,
    },
    Refused {
        code: RefusalCode,
        why: String,
    },
    /// The first frame.
    Agent {
        protocol: u32,
    },
    /// One that this version does not know.
    #[serde(other)]
    Other,
}

impl Heard {
    /// What this line says, and its number, if it is to be answered.
    ///
    /// # Errors
    /// If it makes no sense.
    pub(crate) fn read(line: &[u8]) -> serde_json::Result<(Self, Option<u64>)> {
        #[derive(Deserialize)]
        struct Numbered {
            n: Option<u64>,
        }
        let Numbered { n } = serde_json::from_slice(line)?;
        Ok((serde_json::from_slice(line)?, n))
    }
}

/// A program waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WaitingFrame {
    pub(crate) n: u64,
    pub(crate) position: Option<u32>,
    pub(crate) leader: Option<LeaderFrame>,
    pub(crate) why: String,
    /// The same for programs, if there is a word for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<WaitState>,
    /// Who goes first, if an operator has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) successor: Option<String>,
    /// What is wrong with the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) trouble: Option<String>,
}

/// A program leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ElectedFrame {
    pub(crate) n: u64,
    pub(crate) token: TokenText,
    pub(crate) stop_ns: u64,
    pub(crate) deadline_ns: u64,
    /// The lease, rounded up, and the grace.
    pub(crate) lease_ms: u64,
    pub(crate) grace_ms: u64,
}

/// Why a leadership ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndFrame {
    pub(crate) reason: String,
    pub(crate) why: String,
    /// Who is to lead, or has the lease, if that is the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<String>,
    /// With which token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to_token: Option<TokenText>,
}

impl From<&EndReason> for EndFrame {
    fn from(reason: &EndReason) -> Self {
        let (to, to_token) = match reason {
            EndReason::Promoted { successor } => (Some(successor.as_str().to_owned()), None),
            EndReason::Lost { to, token } => (Some(to.as_str().to_owned()), Some(TokenText(*token))),
            _ => (None, None),
        };
        Self { reason: reason.word().to_owned(), why: reason.to_string(), to, to_token }
    }
}

impl EndFrame {
    /// The reason, as far as it is known here.
    pub(crate) fn known(self) -> Option<EndReason> {
        let simple = [
            EndReason::Finished,
            EndReason::Withdrawn,
            EndReason::Resigned,
            EndReason::Deposed,
            EndReason::Expired,
            EndReason::Removed,
            EndReason::StoreRegressed,
            EndReason::Suspended,
            EndReason::Died,
        ];
        let to = self.to.and_then(|to| Label::new(to).ok());
        match (self.reason.as_str(), to, self.to_token) {
            ("promoted", Some(successor), _) => Some(EndReason::Promoted { successor }),
            ("lost", Some(to), Some(TokenText(token))) => Some(EndReason::Lost { to, token }),
            (word, ..) => simple.into_iter().find(|reason| reason.word() == word),
        }
    }
}

/// What a program waits for, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WaitState {
    NotLooked,
    Unreachable,
    Held,
    Paused,
    Reserved,
    CoolingDown,
    RecordLost,
    StoreRegressed,
    Abstains,
    Asking,
    /// One that this version does not know.
    #[serde(other)]
    Other,
}

impl WaitState {
    pub(crate) const fn of(why: &Why) -> Option<Self> {
        Some(match why {
            Why::NotLooked => Self::NotLooked,
            Why::Unreachable => Self::Unreachable,
            Why::Held { .. } => Self::Held,
            Why::Paused => Self::Paused,
            Why::Reserved { .. } => Self::Reserved,
            Why::CoolingDown => Self::CoolingDown,
            Why::RecordLost => Self::RecordLost,
            Why::StoreRegressed => Self::StoreRegressed,
            Why::Abstains => Self::Abstains,
            Why::Asking => Self::Asking,
            _ => return None,
        })
    }
}

/// Why something is refused, for programs. The manual says which of these it is of use to try again after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RefusalCode {
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
    /// One that this version does not know.
    #[serde(other)]
    Other,
}

impl RefusalCode {
    /// Whether it is of use to try again, although nobody has changed anything.
    pub(crate) const fn may_pass(self) -> bool {
        matches!(self, Self::Busy | Self::Ending | Self::Unavailable)
    }

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaderFrame {
    pub(crate) name: String,
    pub(crate) token: TokenText,
}

/// One hold of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HoldFrame {
    pub(crate) election: String,
    pub(crate) name: String,
    pub(crate) pid: Option<i32>,
    pub(crate) uid: u32,
    pub(crate) standing: Cow<'static, str>,
    pub(crate) token: Option<TokenText>,
    pub(crate) deadline_ns: Option<u64>,
    pub(crate) proof: ProofKind,
}

/// A connection with frames.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: UnixStream,
    /// What has come of a line that has not ended yet, and how much of that has no end of a line.
    inbox: Vec<u8>,
    searched: usize,
}

impl Channel {
    pub(crate) const fn new(stream: UnixStream) -> Self {
        Self { stream, inbox: Vec::new(), searched: 0 }
    }

    pub(crate) const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The next line without its end; `None` when the connection has ended. Cancel-safe.
    ///
    /// # Errors
    /// If the connection fails, or a line is too long.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        self.next_within(FRAME_MOST).await
    }

    /// The same, of which a line may have this many bytes.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub(crate) async fn next_within(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
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

    /// The tokens of leaderships that were told and not looked at. Nothing more is read from it.
    pub(crate) fn into_unread_tokens(mut self) -> (UnixStream, Vec<TokenText>) {
        let tokens = unread_tokens(std::mem::take(&mut self.inbox), &self.stream);
        (self.stream, tokens)
    }

    /// Sends a frame that may be long, for this long at most.
    ///
    /// # Errors
    /// If the other end does not read all of it, or the connection has ended.
    pub(crate) async fn send(&self, frame: &Frame, patience: Duration) -> io::Result<()> {
        let line = serde_json::to_vec(frame).map_err(io::Error::other)?;
        tokio::time::timeout(patience, self.write(line)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Sends a line.
    ///
    /// # Errors
    /// If the connection has ended.
    pub(crate) async fn write(&self, mut line: Vec<u8>) -> io::Result<()> {
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
    pub(crate) fn tell(&self, frame: &Frame) -> io::Result<()> {
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
        let manual = include_str!("../../../docs/manual/agent-protocol.md");
        let token = TokenText(token("42").expect("small"));
        let leader =
            Some(LeaderFrame { name: "web-2".to_owned(), token: TokenText(super::token("41").expect("small")) });
        let why = || "...".to_owned();
        for frame in [
            Frame::Agent { protocol: PROTOCOL, now_ns: 81_234_000_000 },
            Frame::Waiting(WaitingFrame {
                n: 1,
                position: Some(2),
                leader,
                why: why(),
                state: Some(WaitState::Held),
                successor: None,
                trouble: None,
            }),
            Frame::Elected(ElectedFrame {
                n: 2,
                token,
                stop_ns: 85_750_000_000,
                deadline_ns: 91_000_000_000,
                lease_ms: 10_000,
                grace_ms: 5_000,
            }),
            Frame::Extended { n: 3, token, stop_ns: 88_750_000_000, deadline_ns: 94_000_000_000 },
            Frame::Draining {
                n: 4,
                token,
                end: EndFrame { why: why(), ..(&EndReason::Deposed).into() },
                by_ns: 93_000_000_000,
            },
            Frame::Lost { n: 5, token, end: EndFrame { why: why(), ..(&EndReason::Expired).into() } },
        ] {
            let written = serde_json::to_string(&frame).expect("it can be written");
            let printed = written.replace("\":", "\": ").replace(",\"", ", \"");
            assert!(manual.contains(&printed), "{printed}");
            let (heard, n) = Heard::read(written.as_bytes()).expect("a program can read it");
            assert_eq!(n.is_none(), matches!(heard, Heard::Agent { .. }), "{printed}");
            assert_ne!(heard, Heard::Other, "{printed}");
        }
        let later = Heard::read(br#"{"type": "eclipsed", "n": 7, "by": "the moon"}"#).expect("it is ignored");
        assert_eq!(later, (Heard::Other, Some(7)));
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
    fn why_a_leadership_ends_is_read_as_it_was_told() {
        let label = |text: &str| Label::new(text).expect("short");
        for reason in [
            EndReason::Deposed,
            EndReason::Suspended,
            EndReason::Promoted { successor: label("web-2") },
            EndReason::Lost { to: label("web-3"), token: token("43").expect("small") },
        ] {
            let written = serde_json::to_string(&EndFrame::from(&reason)).expect("it can be written");
            let read: EndFrame = serde_json::from_str(&written).expect("it can be read");
            assert_eq!(read.known(), Some(reason));
        }
        let later = r#"{"reason":"eclipsed","why":"..."}"#;
        assert_eq!(serde_json::from_str::<EndFrame>(later).expect("it can be read").known(), None);
    }

    #[test]
    fn each_code_of_a_refusal_is_in_the_manual() {
        let manual = include_str!("../../../docs/manual/agent-protocol.md");
        for code in RefusalCode::ALL {
            let word = serde_json::to_string(&code).expect("it can be written");
            assert!(manual.contains(&format!("| `{}` |", word.trim_matches('"'))), "{word}");
        }
    }
}
