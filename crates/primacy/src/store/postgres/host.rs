//! One of the hosts that a URL names.

use std::path::{Path, PathBuf};

use super::super::percent::{decode, encode};
use crate::loopback::is_loopback;

/// Where a server may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// A name or an address.
    Tcp { name: String, port: u16 },
    /// The folder of a unix socket.
    Socket { folder: PathBuf, port: u16 },
}

const PORT: u16 = 5432;

/// Where Debian and others put the socket.
const SOCKET_FOLDER: &str = "/var/run/postgresql";

impl Host {
    /// Reads `host[:port],host[:port]`, still percent-encoded, and ports that were given apart from it.
    pub(super) fn list(hosts: Option<&str>, ports: Option<&str>) -> Result<Vec<Self>, String> {
        let ports = ports.map(|ports| ports.split(',').map(port).collect::<Result<Vec<_>, _>>()).transpose()?;
        let Some(hosts) = hosts else {
            let port = ports.and_then(|ports| ports.first().copied()).unwrap_or(PORT);
            return Ok(vec![Self::default_host(port)]);
        };
        let entries = split(hosts);
        let default = |index: usize| match ports.as_deref() {
            None => Ok(PORT),
            Some([port]) => Ok(*port),
            Some(ports) if ports.len() == entries.len() => Ok(ports[index]),
            Some(_) => Err("there are not as many ports as hosts".to_owned()),
        };
        entries.iter().enumerate().map(|(index, entry)| Self::read(entry, default(index)?)).collect()
    }

    fn default_host(port: u16) -> Self {
        if Path::new(SOCKET_FOLDER).is_dir() {
            Self::Socket { folder: SOCKET_FOLDER.into(), port }
        } else {
            Self::Tcp { name: "localhost".into(), port }
        }
    }

    fn read(entry: &str, default: u16) -> Result<Self, String> {
        let (host, own_port) = match entry.strip_prefix('[') {
            Some(rest) => {
                let (address, after) = rest.split_once(']').ok_or("a '[' has no ']'")?;
                let after = match after.strip_prefix(':') {
                    Some(port) => Some(port),
                    None if after.is_empty() => None,
                    None => return Err("after ']' comes a port or nothing".into()),
                };
                (address, after)
            }
            None => entry.rsplit_once(':').map_or((entry, None), |(host, port)| (host, Some(port))),
        };
        let port = own_port.filter(|text| !text.is_empty()).map_or(Ok(default), port)?;
        let host = decode(host).ok_or("a host has a '%' that is not followed by the code of a character")?;
        if host.is_empty() {
            return Err("the name of a host is empty".into());
        }
        Ok(if host.starts_with('/') {
            Self::Socket { folder: host.into(), port }
        } else {
            Self::Tcp { name: host, port }
        })
    }

    /// Whether the way there cannot leave this machine.
    pub(super) fn is_local(&self) -> bool {
        match self {
            Self::Socket { .. } => true,
            Self::Tcp { name, .. } => is_loopback(name),
        }
    }

    pub(super) fn port(&self) -> u16 {
        match self {
            Self::Tcp { port, .. } | Self::Socket { port, .. } => *port,
        }
    }

    pub(super) fn in_url(&self) -> String {
        match self {
            Self::Tcp { name, port } if name.contains(':') => format!("[{name}]:{port}"),
            Self::Tcp { name, port } => format!("{}:{port}", encode(name)),
            Self::Socket { folder, port } => format!("{}:{port}", encode(&folder.to_string_lossy())),
        }
    }
}

/// Commas between brackets do not separate.
fn split(hosts: &str) -> Vec<&str> {
    let mut inside = false;
    hosts
        .split(|character: char| {
            inside = (inside || character == '[') && character != ']';
            character == ',' && !inside
        })
        .collect()
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().ok().filter(|port| *port > 0).ok_or_else(|| "a port is a number from 1 to 65535".to_owned())
}
