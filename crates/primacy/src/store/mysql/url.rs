//! Where the database is, as a URL says it: hosts, user, database, TLS.

use std::env;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mysql_async::{Opts, OptsBuilder};
use primacy_core::ids::escape;

use super::super::percent::{decode, encode};
use super::super::{StoreError, UrlError};
use crate::loopback::is_loopback;

const DEFAULT_PORT: u16 = 3306;

/// A database on one or several hosts.
#[derive(Clone)]
pub(super) struct StoreUrl {
    hosts: Vec<Host>,
    user: String,
    password: Option<Secret>,
    database: String,
    tls: TlsChoice,
    /// The host to try first. Moved on before each attempt and back when it has succeeded, so that an attempt that its
    /// caller gave up is not made at the same host again.
    first: Arc<AtomicUsize>,
    pub(super) oddities: Oddities,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    Tcp { name: String, port: u16 },
    Socket(PathBuf),
}

#[derive(Clone, PartialEq, Eq)]
struct Secret(String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// What connections are like behind some poolers and in other programs. For tests: the steps must be right all the same.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct Oddities {
    /// The server counts the rows that an `UPDATE` found, not those that it changed.
    pub found_rows: bool,
    /// Run on each connection after the session's own settings.
    pub settings: Option<String>,
    /// How many seconds a poller waits for the leader's lock before the server looks at the row.
    pub lock_for: Option<u32>,
    /// Run before each change, unnoticed: as if a pooler lent another connection.
    pub before_change: Option<String>,
}

/// What the URL says of TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct TlsChoice {
    mode: Option<TlsMode>,
    root: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TlsMode {
    Disable,
    VerifyFull,
}

impl Host {
    pub(super) fn is_here(&self) -> bool {
        match self {
            Self::Socket(_) => true,
            Self::Tcp { name, .. } => is_loopback(name),
        }
    }

    fn parse(text: &str) -> Result<Self, UrlError> {
        let bad = || UrlError::Invalid(format!("'{}' is not a host and a port", escape(text)));
        let decoded = decode(text).ok_or_else(bad)?;
        if decoded.starts_with('/') {
            return Ok(Self::Socket(PathBuf::from(decoded)));
        }
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, port) = rest.split_once(']').ok_or_else(bad)?;
                address.parse::<Ipv6Addr>().map_err(|_| bad())?;
                (address, port)
            }
            None => text.split_at(text.find(':').unwrap_or(text.len())),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?,
            None if port.is_empty() => DEFAULT_PORT,
            None => return Err(bad()),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if name.is_empty() || !name.chars().all(plain) {
            return Err(bad());
        }
        Ok(Self::Tcp { name: name.to_owned(), port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { name, port } if name.contains(':') => write!(f, "[{name}]:{port}"),
            Self::Tcp { name, port } => write!(f, "{name}:{port}"),
            Self::Socket(path) => f.write_str(&encode(&path.to_string_lossy())),
        }
    }
}

impl StoreUrl {
    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        let invalid = |why: &str| UrlError::Invalid(format!("{why}; write mysql://USER:PASSWORD@HOST:PORT/DATABASE"));
        let rest = url
            .strip_prefix("mysql://")
            .or_else(|| url.strip_prefix("mariadb://"))
            .ok_or_else(|| invalid("the URL of a MySQL database begins with mysql://"))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').ok_or_else(|| invalid("the URL names no database"))?;
        let (who, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match who.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (who, None),
        };
        let named = |text: &str, what: &str| {
            let text = decode(text).ok_or_else(|| invalid(&format!("the {what} in the URL is not percent-encoded")))?;
            if text.chars().any(char::is_control) { Err(invalid(&format!("strange {what}"))) } else { Ok(text) }
        };
        let database = named(database, "database")?;
        if database.is_empty() || database.len() > 256 {
            return Err(invalid("the URL names no database"));
        }
        let user = match named(user, "user")? {
            user if user.is_empty() => env::var("USER").map_err(|_| invalid("the URL names no user"))?,
            user => user,
        };
        // No message ever shows it.
        let password = match password {
            Some(password) => Some(decode(password).ok_or_else(|| invalid("the password is not percent-encoded"))?),
            None => env::var("MYSQL_PWD").ok(),
        };
        let Options { tls, socket } = Options::parse(options)?;
        let hosts = match socket {
            // Other programs take the host of such a URL for nothing too.
            Some(path) => vec![Host::Socket(path)],
            None => hosts.split(',').map(Host::parse).collect::<Result<_, _>>()?,
        };
        let parsed = Self {
            hosts,
            user,
            password: password.map(Secret),
            database,
            tls,
            first: Arc::default(),
            oddities: Oddities::default(),
        };
        parsed.refuse_tls_that_is_not_built_in()?;
        Ok(parsed)
    }

    fn refuse_tls_that_is_not_built_in(&self) -> Result<(), UrlError> {
        match self.hosts.iter().find(|host| self.encrypts(host)) {
            Some(host) if !cfg!(feature = "mysql-tls") => Err(UrlError::Invalid(format!(
                "{host} is to be reached by TLS, and this build has none: build with the feature mysql-tls, or add \
                 ?sslmode=disable if the network between is yours"
            ))),
            _ => Ok(()),
        }
    }

    /// Whether a host is reached by TLS. Other hosts than this are unless the URL says otherwise.
    fn encrypts(&self, host: &Host) -> bool {
        match (self.tls.mode, host) {
            (_, Host::Socket(_)) | (Some(TlsMode::Disable), _) => false,
            (Some(TlsMode::VerifyFull), _) => true,
            (None, host) => !host.is_here() || self.tls.root.is_some() || self.tls.identity.is_some(),
        }
    }

    pub(super) const fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// The URL without the password.
    pub(super) fn shown(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(Host::to_string).collect();
        format!("mysql://{}@{}/{}", encode(&self.user), hosts.join(","), encode(&self.database))
    }

    /// The hosts, beginning with the one that is best tried first.
    pub(super) fn turns(&self) -> impl Iterator<Item = (usize, &Host)> {
        let first = self.first.load(Ordering::Relaxed);
        (0..self.hosts.len()).map(move |turn| {
            let index = (first + turn) % self.hosts.len();
            (index, &self.hosts[index])
        })
    }

    pub(super) fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    /// Before a host is tried: the next attempt begins with another, unless this one turns out to be good.
    pub(super) fn doubt(&self, index: usize) {
        self.first.store((index + 1) % self.hosts.len(), Ordering::Relaxed);
    }

    pub(super) fn trust(&self, index: usize) {
        self.first.store(index, Ordering::Relaxed);
    }

    /// How the driver reaches a host.
    pub(super) fn opts(&self, host: &Host) -> Result<Opts, StoreError> {
        /// The longest row of an answer. Also a server that was taken over cannot make a candidate take more.
        const LONGEST_ANSWER: usize = 1 << 20;
        let builder = OptsBuilder::default()
            .user(Some(&self.user))
            .pass(self.password.as_ref().map(|secret| &secret.0))
            .db_name(Some(&self.database))
            // Otherwise a server names a socket to connect to instead.
            .prefer_socket(false)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(Duration::from_secs(15)))
            .stmt_cache_size(0)
            // Given, so that the driver does not ask for them.
            .max_allowed_packet(Some(LONGEST_ANSWER))
            .wait_timeout(Some(28_800))
            .client_found_rows(self.oddities.found_rows)
            .connect_attribute("program_name", "primacy");
        let builder = match host {
            Host::Socket(path) => builder.socket(Some(path.to_string_lossy())),
            Host::Tcp { name, port } => builder.ip_or_hostname(name).tcp_port(*port),
        };
        if !self.encrypts(host) {
            return Ok(builder.into());
        }
        #[cfg(feature = "mysql-tls")]
        return Ok(builder.ssl_opts(super::tls::options(self.tls.root.as_deref(), self.tls.identity.as_ref())?).into());
        #[cfg(not(feature = "mysql-tls"))]
        Err(StoreError::Unusable(format!("{host}: this build of primacy has no TLS")))
    }
}

/// What follows the `?`.
#[derive(Default)]
struct Options {
    tls: TlsChoice,
    socket: Option<PathBuf>,
}

impl Options {
    fn parse(text: &str) -> Result<Self, UrlError> {
        let mut options = Self::default();
        let (mut certificate, mut key) = (None, None);
        for option in text.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = decode(value).ok_or_else(|| UrlError::Invalid("an option is not percent-encoded".into()))?;
            match name {
                "sslmode" | "ssl-mode" => options.tls.mode = Some(TlsMode::parse(&value)?),
                "sslrootcert" => options.tls.root = Some(value.into()),
                "sslcert" => certificate = Some(PathBuf::from(value)),
                "sslkey" => key = Some(PathBuf::from(value)),
                "socket" => options.socket = Some(value.into()),
                _ => {
                    return Err(UrlError::Invalid(format!(
                        "unknown option '{}'; there are sslmode, sslrootcert, sslcert, sslkey and socket",
                        escape(name)
                    )));
                }
            }
        }
        options.tls.identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err(UrlError::Invalid("sslcert and sslkey belong together; give both".into())),
        };
        let files = options.tls.root.is_some() || options.tls.identity.is_some();
        if files && options.tls.mode == Some(TlsMode::Disable) {
            return Err(UrlError::Invalid("sslmode=disable uses no certificates; leave one or the others out".into()));
        }
        Ok(options)
    }
}

impl TlsMode {
    /// A connection that may turn out to be unencrypted, or to go to somebody else, is nobody's wish.
    fn parse(text: &str) -> Result<Self, UrlError> {
        match text.to_ascii_lowercase().replace('_', "-").as_str() {
            // Managed databases hand out the weaker ones. Whom they would encrypt to is checked here all the same.
            "verify-full" | "verify-identity" | "verify-ca" | "require" | "required" => Ok(Self::VerifyFull),
            "disable" | "disabled" => Ok(Self::Disable),
            _ => Err(UrlError::Invalid(format!(
                "sslmode={} may go on without encryption or leave open who answers; write sslmode=require (encrypted, \
                 the server's certificate and name checked), or sslmode=disable if the network is yours",
                escape(text)
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> StoreUrl {
        StoreUrl::parse(url).expect(url)
    }

    fn refused(url: &str) -> String {
        match StoreUrl::parse(url) {
            Ok(parsed) => panic!("{url} is taken for {}", parsed.shown()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_url_names_hosts_user_and_database() {
        let there = parsed("mariadb://us%40er:p%2Fw@db1,[::1]:3307,localhost:13/prim%20acy?sslmode=disable");
        let tcp = |name: &str, port| Host::Tcp { name: name.into(), port };
        assert_eq!(there.hosts, [tcp("db1", 3306), tcp("::1", 3307), tcp("localhost", 13)]);
        assert_eq!((there.user.as_str(), there.database.as_str()), ("us@er", "prim acy"));
        assert_eq!(there.password, Some(Secret("p/w".into())));
        assert_eq!(there.shown(), "mysql://us%40er@db1:3306,[::1]:3307,localhost:13/prim%20acy");
        let socket = Host::Socket("/run/my sqld.sock".into());
        assert_eq!(parsed("mysql://u@/d?socket=/run/my%20sqld.sock").hosts, std::slice::from_ref(&socket));
        assert_eq!(parsed("mysql://u@%2Frun%2Fmy%20sqld.sock/d").hosts, [socket]);
    }

    #[test]
    fn a_wrong_url_is_refused_without_its_password() {
        for url in [
            "postgres://u:hidden@h/d",
            "mysql://u:hidden@127.0.0.1",
            "mysql://u:hidden@127.0.0.1/",
            "mysql://u:hid%zzden@127.0.0.1/d",
            "mysql://u:hidden@127.0.0.1:0/d",
            "mysql://u:hidden@127.0.0.1:99999/d",
            "mysql://u:hidden@127.0.0.1:x/d",
            "mysql://u:hidden@[::1/d",
            "mysql://u:hidden@a b/d",
            "mysql://u:hidden@/d",
            "mysql://u:hidden@a,/d?sslmode=disable",
            "mysql://u:hidden@127.0.0.1/d?sslmode=prefer",
            "mysql://u:hidden@127.0.0.1/d?sslmode=",
            "mysql://u:hidden@127.0.0.1/d?ssl=1",
            "mysql://u:hidden@127.0.0.1/d?sslcert=/c",
            "mysql://u:hidden@127.0.0.1/d?sslmode=disable&sslrootcert=/c",
            "mysql://u%00:hidden@127.0.0.1/d",
        ] {
            let message = refused(url);
            assert!(!message.contains("hidden") && !message.contains('\n'), "{url}: {message}");
        }
    }

    #[test]
    fn only_this_host_is_reached_without_tls_by_default() {
        let tls = |url: &str| match StoreUrl::parse(url) {
            Ok(parsed) => parsed.hosts.iter().any(|host| parsed.encrypts(host)),
            Err(error) => error.to_string().contains("TLS"),
        };
        assert!(tls("mysql://u@db.example/d"));
        assert!(tls("mysql://u@127.0.0.1,10.0.0.1/d"));
        assert!(tls("mysql://u@127.0.0.1/d?sslmode=verify-full"));
        for mode in ["sslmode=require", "ssl-mode=REQUIRED", "ssl-mode=VERIFY_CA", "ssl-mode=VERIFY_IDENTITY"] {
            assert!(tls(&format!("mysql://u@127.0.0.1/d?{mode}")), "{mode}");
        }
        assert!(!tls("mysql://u@db.example/d?ssl-mode=DISABLED"));
        assert!(refused("mysql://u@db.example/d?ssl-mode=PREFERRED").contains("sslmode=require"));
        assert!(tls("mysql://u@127.0.0.1/d?sslrootcert=/ca.pem"));
        assert!(!tls("mysql://u@db.example/d?sslmode=disable"));
        for here in ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "%2Frun%2Fs.sock"] {
            assert!(!tls(&format!("mysql://u@{here}/d")), "{here}");
        }
    }

    #[test]
    fn an_attempt_that_is_given_up_is_not_made_at_the_same_host_again() {
        let parsed = parsed("mysql://u@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3/d");
        let order = || parsed.turns().map(|(index, _)| index).collect::<Vec<_>>();
        assert_eq!(order(), [0, 1, 2]);
        parsed.doubt(0);
        assert_eq!(order(), [1, 2, 0]);
        parsed.trust(1);
        assert_eq!(order(), [1, 2, 0]);
        parsed.doubt(2);
        assert_eq!(order(), [0, 1, 2]);
    }
}
