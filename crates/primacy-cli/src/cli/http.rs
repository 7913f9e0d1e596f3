//! The options of the HTTP server.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use primacy::peers::tls::ServerFiles;

/// The variable that has the token of orders over HTTP.
pub(crate) const TOKEN_VARIABLE: &str = "PRIMACY_HTTP_TOKEN";

/// Where to tell who leads.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct HttpArgs {
    /// Tell who leads over HTTP on this address, such as 127.0.0.1:8008 or unix:PATH: for browsers, load balancers and scripts
    #[arg(long, value_name = "ADDR", hide_short_help = true)]
    pub(crate) http: Option<HttpAddress>,
    /// Serve --http over TLS, with this certificate and those between it and its authority's, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["http", "http_key"], conflicts_with = "http_insecure", hide_short_help = true)]
    http_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "http_cert", hide_short_help = true)]
    http_key: Option<PathBuf>,
    /// Let --http listen where other hosts can reach it, without encryption
    #[arg(long, requires = "http", hide_short_help = true)]
    pub(crate) http_insecure: bool,
    /// Take orders over HTTP from those who know the token in this file; PRIMACY_HTTP_TOKEN has it otherwise
    #[arg(long, value_name = "FILE", requires = "http", hide_short_help = true)]
    pub(crate) http_token_file: Option<PathBuf>,
}

impl HttpArgs {
    /// The files for TLS.
    pub(crate) fn tls(&self) -> Option<ServerFiles> {
        Some(ServerFiles::new(self.http_cert.clone()?, self.http_key.clone()?))
    }
}

/// An address of the HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HttpAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for HttpAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("give a path after unix:".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => {
                text.parse().map(Self::Tcp).map_err(|_| "give an address with a port, or unix: and a path".to_owned())
            }
        }
    }
}

impl fmt::Display for HttpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
