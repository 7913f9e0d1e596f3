//! Where a peer is, and what it is called.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use primacy_core::quorum::VOTERS_MAX;

use crate::loopback::is_loopback;

/// A peer's name and where it listens, written `NAME@HOST:PORT`, or `HOST:PORT` if it is called like its host.
///
/// Over TLS the peer's certificate must be for its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerAddress {
    name: String,
    host: String,
    port: u16,
}

/// Why this is not where peers are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is not written as it should be.
    #[error("'{0}' is not a peer: write NAME@HOST:PORT, or HOST:PORT")]
    Shape(String),
    /// There is no such port.
    #[error("'{0}' ends with no port: ports go from 1 to 65535")]
    Port(String),
    /// Two are called alike, or are in one place.
    #[error("'{0}' stands twice among the peers: each needs a name and an address of its own")]
    Twice(String),
    /// There are too few or too many.
    #[error("{0} peers cannot vote: name one to nine, three or five as a rule")]
    Count(usize),
}

impl PeerAddress {
    /// What the peer is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it listens: a name or an address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port that it listens at.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is on this machine, where nobody else can listen in.
    pub fn is_here(&self) -> bool {
        is_loopback(&self.host)
    }

    /// Host and port.
    pub fn place(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Reads a list with commas between.
    ///
    /// # Errors
    /// If one is not written as it should be, two are alike, or there are none or more than nine.
    pub fn list(text: &str) -> Result<Vec<Self>, AddressError> {
        let all: Vec<Self> = text.split(',').map(str::trim).map(str::parse).collect::<Result<_, _>>()?;
        Self::check(&all.iter().collect::<Vec<_>>())?;
        Ok(all)
    }

    /// Whether these can vote together: one to nine, each with a name and a place of its own.
    pub(crate) fn check(all: &[&Self]) -> Result<(), AddressError> {
        if !(1..=VOTERS_MAX).contains(&all.len()) {
            return Err(AddressError::Count(all.len()));
        }
        let (mut names, mut places) = (BTreeSet::new(), BTreeSet::new());
        for one in all {
            if !names.insert(&one.name) {
                return Err(AddressError::Twice(one.name.clone()));
            }
            if !places.insert(one.place()) {
                return Err(AddressError::Twice(one.place()));
            }
        }
        Ok(())
    }
}

impl FromStr for PeerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError::Shape(primacy_core::ids::escape(text));
        let (name, place) = text.split_once('@').map_or((None, text), |(name, place)| (Some(name), place));
        let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let no_port = || if is_number { AddressError::Port(primacy_core::ids::escape(text)) } else { wrong() };
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(no_port)?;
        let is_plain = |text: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
            (1..=255).contains(&text.len()) && text.chars().all(fits)
        };
        let name = name.unwrap_or(host);
        if !is_plain(host) || !is_plain(name) {
            return Err(wrong());
        }
        Ok(Self { name: name.to_owned(), host: host.to_owned(), port })
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name != self.host {
            write!(f, "{}@", self.name)?;
        }
        f.write_str(&self.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_places_are_read_and_written_alike() {
        for text in ["a@10.0.0.1:7000", "db-1.example:7000", "a@[::1]:7000", "[fe80::1%eth0]:1"] {
            let address: PeerAddress = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        let plain: PeerAddress = "db-1:7000".parse().expect("a host");
        assert_eq!((plain.name(), &*plain.place()), ("db-1", "db-1:7000"));
    }

    #[test]
    fn only_loopback_is_here() {
        for (text, is_here) in [
            ("a@127.0.0.1:7", true),
            ("a@127.9.9.9:7", true),
            ("a@[::1]:7", true),
            ("localhost:7", true),
            ("a@10.0.0.1:7", false),
            ("localhost.example:7", false),
            ("127.0.0.1@db:7", false),
        ] {
            assert_eq!(text.parse::<PeerAddress>().expect(text).is_here(), is_here, "{text}");
        }
    }

    #[test]
    fn what_is_no_peer_is_refused() {
        for text in ["", "a", "a:", ":7000", "a:0", "a:70000", "a b:7000", "@h:7000", "a@:7000", "a@h:7\u{1b}"] {
            assert!(text.parse::<PeerAddress>().is_err(), "{text}");
        }
        assert_eq!(PeerAddress::list("a:1,b:1").expect("two").len(), 2);
        assert_eq!(PeerAddress::list("a:1,a:2"), Err(AddressError::Twice("a".into())));
        assert_eq!(PeerAddress::list("a@h:1,b@h:1"), Err(AddressError::Twice("h:1".into())));
        assert_eq!(PeerAddress::list(&["h:1"; 10].join(",")), Err(AddressError::Count(10)));
        assert!(PeerAddress::list("").is_err());
    }
}
