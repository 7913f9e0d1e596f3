//! The options of the HTTP server.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// The variable that has the token of orders over HTTP.
pub(crate) const TOKEN_VARIABLE: &str = "PRIMACY_HTTP_TOKEN";

/// Where to tell who leads.
#[derive(Args, Clone, Debug)]
pub(crate) struct HttpArgs {
    /// Tell who leads over HTTP on this address, such as 127.0.0.1:8008, for load balancers and scripts
    #[arg(long, value_name = "ADDR", hide_short_help = true)]
    pub(crate) http: Option<SocketAddr>,
    /// Let --http listen where other hosts can reach it, without encryption
    #[arg(long, requires = "http", hide_short_help = true)]
    pub(crate) http_insecure: bool,
    /// Take orders over HTTP from those who know the token in this file; PRIMACY_HTTP_TOKEN has it otherwise
    #[arg(long, value_name = "FILE", requires = "http", hide_short_help = true)]
    pub(crate) http_token_file: Option<PathBuf>,
}
