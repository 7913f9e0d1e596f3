//! What peers send each other: frames, each with one message.

use prost::{Message, Oneof};

use super::config::{ConfigReplyFrame, ConfigRequestFrame, EvidenceEntry};
use super::messages::{
    Cluster, EchoReply, ElectionRequest, Hello, Leave, Names, ProbeReply, Recall, RefusalFrame, Reply, Terms, Welcome,
};

/// One message. An answer has the number of the question; what nobody asked has 0.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Frame {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(
        oneof = "Body",
        tags = "2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 30"
    )]
    pub(crate) body: Option<Body>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Body {
    /// The first frame of the side that connects.
    #[prost(message, tag = "2")]
    Hello(Hello),
    /// The first frame of the voter.
    #[prost(message, tag = "3")]
    Welcome(Welcome),
    /// A question is not answered, and why.
    #[prost(message, tag = "4")]
    Refused(RefusalFrame),
    #[prost(message, tag = "5")]
    Ask(ElectionRequest),
    #[prost(message, tag = "6")]
    Answer(Reply),
    /// From now on hints of this election are wanted. Answered by a hint.
    #[prost(string, tag = "7")]
    Watch(String),
    /// Something may have changed in this election.
    #[prost(string, tag = "8")]
    Hint(String),
    /// The names of all elections are wanted.
    #[prost(bool, tag = "9")]
    List(bool),
    #[prost(message, tag = "10")]
    Listed(Names),
    /// An election's past is wanted.
    #[prost(message, tag = "11")]
    Recall(Recall),
    #[prost(message, tag = "12")]
    Recalled(Terms),
    /// These are the voters, says the one that has brought them together.
    #[prost(message, tag = "13")]
    Found(Cluster),
    /// How fast and how well this voter keeps things is wanted.
    #[prost(bool, tag = "14")]
    Probe(bool),
    #[prost(message, tag = "15")]
    Probed(ProbeReply),
    /// A candidate waits no more.
    #[prost(message, tag = "16")]
    Leave(Leave),
    #[prost(bool, tag = "17")]
    Left(bool),
    /// The voters are these by now. A question that counted with others was not even read.
    #[prost(message, tag = "18")]
    Moved(Cluster),
    /// Something about who votes.
    #[prost(message, tag = "19")]
    ConfigRequest(ConfigRequestFrame),
    #[prost(message, tag = "20")]
    ConfigReply(ConfigReplyFrame),
    /// Measures the round trip: answered at once, whatever the voter is about. Only for one whose welcome says so.
    #[prost(bool, tag = "21")]
    Echo(bool),
    #[prost(message, tag = "22")]
    Echoed(EchoReply),
    /// The names of the elections behind this one are wanted.
    #[prost(string, tag = "30")]
    ListAfter(String),
    /// There are voters with this number, says somebody. Answered by the number that the voter has; it believes nothing of it,
    /// and asks the other voters. Only for one whose welcome says that it gives evidence.
    #[prost(uint64, tag = "23")]
    Behind(u64),
    /// What this voter knows of the steps after this number is wanted. Likewise.
    #[prost(uint64, tag = "24")]
    Testify(u64),
    #[prost(message, tag = "25")]
    Testified(EvidenceEntry),
}
