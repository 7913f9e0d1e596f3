//! What goes over a connection between two nodes: frames with a group's number, and what a node says about itself. No I/O.

use std::io;

use primacy_core::log::ReplicaId;

use super::fields::{replica, text};
use super::founding::Founding;
use crate::wire::{Malformed, Reader, put_bytes, put_number};

/// The protocol of connections for what is small, and for chunks of snapshots. Each connection carries messages of the node that has
/// opened it; the other one only greets.
pub(super) const PROTOCOLS: [&str; 2] = ["primacy-kv/1", "primacy-kv-bulk/1"];
const VERSION: u8 = 1;
/// The group of frames that belong to none.
const NO_GROUP: u16 = u16::MAX;
const HEAD: usize = 6;
/// The longest frame: more than a message of a log has at most.
pub(super) const FRAME_MAX: usize = 64 << 20;

/// Appends a frame of a group, whose bytes are put by `put`.
pub(super) fn put_frame(out: &mut Vec<u8>, group: Option<u16>, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; 4]);
    out.extend(group.unwrap_or(NO_GROUP).to_le_bytes());
    put(out);
    let length = (out.len() - start - HEAD) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// A frame that has come as a whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) group: Option<u16>,
    pub(super) body: &'a [u8],
    /// How long it is with its head.
    pub(super) length: usize,
}

/// The first frame of these bytes, if it has come as a whole.
///
/// # Errors
/// If it is too long.
pub(super) fn first_frame(bytes: &[u8]) -> io::Result<Option<Frame<'_>>> {
    let Some(head) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
    let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if length > FRAME_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame is too long"));
    }
    let group = u16::from_le_bytes([head[4], head[5]]);
    let body = bytes.get(HEAD..HEAD + length);
    Ok(body.map(|body| Frame { group: (group != NO_GROUP).then_some(group), body, length: HEAD + length }))
}

/// What a node says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) node: ReplicaId,
    pub(super) name: String,
    pub(super) starts: u64,
    /// All nodes, as it was told.
    pub(super) names: Vec<String>,
    /// Where its clients are served.
    pub(super) serves: String,
    pub(super) founding: Option<Founding>,
}

/// What belongs to no group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Control {
    Hello(Hello),
    /// The node takes no other decider's founding.
    Pledge,
    Founding(Founding),
    /// Who leads a group is to have the one replica take the place of the other.
    Replace {
        remove: ReplicaId,
        add: ReplicaId,
    },
}

mod tag {
    pub(super) const HELLO: u8 = 0;
    pub(super) const PLEDGE: u8 = 1;
    pub(super) const FOUNDING: u8 = 2;
    pub(super) const REPLACE: u8 = 3;
}

fn put_replica(out: &mut Vec<u8>, id: ReplicaId) {
    out.extend(id.to_bits().to_le_bytes());
}

impl Control {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        match self {
            Self::Hello(hello) => {
                out.push(tag::HELLO);
                put_replica(out, hello.node);
                put_bytes(out, hello.name.as_bytes());
                put_number(out, hello.starts);
                put_number(out, hello.names.len() as u64);
                hello.names.iter().for_each(|name| put_bytes(out, name.as_bytes()));
                put_bytes(out, hello.serves.as_bytes());
                out.push(u8::from(hello.founding.is_some()));
                if let Some(founding) = &hello.founding {
                    founding.put(out);
                }
            }
            Self::Pledge => out.push(tag::PLEDGE),
            Self::Founding(founding) => {
                out.push(tag::FOUNDING);
                founding.put(out);
            }
            Self::Replace { remove, add } => {
                out.push(tag::REPLACE);
                put_replica(out, *remove);
                put_replica(out, *add);
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != VERSION {
            return Err(Malformed("a node of another version"));
        }
        let control = match reader.byte()? {
            tag::HELLO => Self::Hello(Hello {
                node: replica(&mut reader)?,
                name: text(&mut reader)?,
                starts: reader.number()?,
                names: reader.list(text)?,
                serves: text(&mut reader)?,
                founding: if reader.flag()? { Some(Founding::read(&mut reader)?) } else { None },
            }),
            tag::PLEDGE => Self::Pledge,
            tag::FOUNDING => Self::Founding(Founding::read(&mut reader)?),
            tag::REPLACE => Self::Replace { remove: replica(&mut reader)?, add: replica(&mut reader)? },
            _ => return Err(Malformed("an unknown word of a node")),
        };
        reader.end()?;
        Ok(control)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn controls() -> Vec<Control> {
        let id = ReplicaId::from_bits;
        let founding =
            Founding { id: 5, seed: [1; 16], groups: 16, members: vec![("a".into(), id(1)), ("b".into(), id(2))] };
        let hello = Hello {
            node: id(7),
            name: "a".into(),
            starts: 300,
            names: vec!["a".into(), "b".into()],
            serves: "127.0.0.1:6379".into(),
            founding: None,
        };
        vec![
            Control::Hello(Hello { founding: Some(founding.clone()), ..hello.clone() }),
            Control::Hello(hello),
            Control::Pledge,
            Control::Founding(founding),
            Control::Replace { remove: id(1), add: id(2) },
        ]
    }

    #[test]
    fn what_is_said_is_read_back_and_a_part_of_it_is_refused() {
        for control in controls() {
            let mut bytes = Vec::new();
            control.encode(&mut bytes);
            assert_eq!(Control::decode(&bytes), Ok(control));
            for end in 0..bytes.len() {
                assert!(Control::decode(&bytes[..end]).is_err());
            }
        }
    }

    #[test]
    fn frames_follow_each_other() {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, Some(3), |out| out.extend(b"abc"));
        put_frame(&mut bytes, None, |_| {});
        let Frame { group, body, length } = first_frame(&bytes).expect("short").expect("whole");
        assert_eq!((group, body), (Some(3), &b"abc"[..]));
        let next = Frame { group: None, body: &[], length: HEAD };
        assert_eq!(first_frame(&bytes[length..]).expect("short"), Some(next));
        assert_eq!(first_frame(&bytes[..length - 1]).expect("short"), None);
        assert!(first_frame(&[0xff; 8]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Control::decode(&bytes);
            let _ = first_frame(&bytes);
        }
    }
}
