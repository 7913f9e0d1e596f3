//! Where the database is: its URL.

use std::path::PathBuf;
use std::time::Duration;

use super::super::UrlError;
use super::super::percent::{decode as percent_decoded, encode};
use super::host::Host;
use super::secret::Password;
use crate::qualified::Schema;

/// What a `postgresql:` URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoreUrl {
    pub(super) hosts: Vec<Host>,
    pub(super) user: Option<String>,
    pub(super) password: Password,
    pub(super) database: Option<String>,
    pub(super) tls: Tls,
    pub(super) connect_timeout: Duration,
    pub(super) application: String,
    /// Whether to listen for notifications.
    pub(super) push: bool,
    /// Where the tables are, if that is said.
    pub(super) schema: Option<Schema>,
}

/// How connections are protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tls {
    /// What the URL says, if anything. Otherwise it depends on the host.
    pub(super) mode: Option<TlsMode>,
    /// Trusted instead of the system's authorities.
    pub(super) root_certificate: Option<PathBuf>,
    /// The client's own certificate and its key.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TlsMode {
    Disable,
    VerifyFull,
}

/// Long enough for a slow handshake; a call of a candidate is mostly abandoned before.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

const EXAMPLE: &str = "write for example postgresql://user@db.example:5432/database";

/// The parts of a URL while they are collected.
#[derive(Default)]
struct Parts {
    hosts: Option<String>,
    ports: Option<String>,
    user: Option<String>,
    password: Option<String>,
    passfile: Option<PathBuf>,
    database: Option<String>,
    tls_mode: Option<TlsMode>,
    root_certificate: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    connect_timeout: Option<Duration>,
    application: Option<String>,
    no_push: bool,
    schema: Option<Schema>,
}

/// Why a URL is refused. Never holds a value of it that could be a secret.
struct Refusal(String);

impl StoreUrl {
    /// Reads a whole URL.
    pub(super) fn parse(url: &str) -> Result<Self, UrlError> {
        parse(url).map_err(|Refusal(why)| UrlError::Invalid(format!("the postgresql: URL cannot be used: {why}")))
    }

    /// Without secrets, for people and logs.
    pub(super) fn shown(&self) -> String {
        self.url_of(&self.hosts)
    }

    /// As if these were the only hosts.
    pub(super) fn url_of(&self, hosts: &[Host]) -> String {
        let mut url = String::from("postgresql://");
        if let Some(user) = &self.user {
            url += &encode(user);
            url.push('@');
        }
        let named: Vec<_> = hosts.iter().map(Host::in_url).collect();
        url += &named.join(",");
        url.push('/');
        url += &encode(self.database.as_deref().unwrap_or_default());
        let mut options = Vec::new();
        match self.tls.mode {
            None if hosts.iter().all(Host::is_local) => {}
            None | Some(TlsMode::VerifyFull) => options.push("sslmode=verify-full".to_owned()),
            Some(TlsMode::Disable) => options.push("sslmode=disable".to_owned()),
        }
        if let Some(schema) = &self.schema {
            options.push(format!("schema={}", encode(schema.name())));
        }
        if !self.push {
            options.push("push=off".to_owned());
        }
        if !options.is_empty() {
            url.push('?');
            url += &options.join("&");
        }
        url
    }

    /// How this host is protected: verified unless the way there cannot leave this machine.
    pub(super) fn tls_mode(&self, host: &Host) -> TlsMode {
        self.tls.mode.unwrap_or(if host.is_local() { TlsMode::Disable } else { TlsMode::VerifyFull })
    }
}

fn parse(url: &str) -> Result<StoreUrl, Refusal> {
    let refuse = |why: &str| Err(Refusal(format!("{why}; {EXAMPLE}")));
    let Some(rest) = url.strip_prefix("postgresql:").or_else(|| url.strip_prefix("postgres:")) else {
        return refuse("it does not begin with postgresql:");
    };
    let Some(rest) = rest.strip_prefix("//") else {
        return refuse("after postgresql: comes //");
    };
    if rest.chars().any(char::is_control) {
        return refuse("it contains a control character");
    }
    if rest.contains('#') {
        return refuse("it contains a '#'; write %23");
    }
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, database) = rest.split_once('/').map_or((rest, None), |(rest, name)| (rest, Some(name)));
    let (login, hosts) = authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
    let mut parts = Parts { hosts: Some(hosts.to_owned()).filter(|hosts| !hosts.is_empty()), ..Parts::default() };
    if let Some(login) = login {
        let (user, password) = login.split_once(':').map_or((login, None), |(user, word)| (user, Some(word)));
        parts.user = Some(decode(user, "the user")?).filter(|user| !user.is_empty());
        parts.password = password.map(|word| decode(word, "the password")).transpose()?;
    }
    if let Some(name) = database.filter(|name| !name.is_empty()) {
        if name.contains('/') {
            return refuse("the name of the database contains a '/'; write %2F");
        }
        parts.database = Some(decode(name, "the database")?);
    }
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return refuse("an option has no '='");
        };
        parts.option(key, value)?;
    }
    parts.finish()
}

impl Parts {
    fn option(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        // Hosts are split before they are decoded, since a folder may contain a comma.
        let decoded = || decode(value, key);
        match key {
            "host" => self.hosts = Some(value.to_owned()),
            "port" => self.ports = Some(decoded()?),
            "user" => self.user = Some(decoded()?),
            "password" => self.password = Some(decoded()?),
            "passfile" => self.passfile = Some(decoded()?.into()),
            "dbname" => self.database = Some(decoded()?),
            "sslmode" => self.tls_mode = Some(tls_mode(&decoded()?)?),
            "sslrootcert" if value == "system" => self.root_certificate = None,
            "sslrootcert" => self.root_certificate = Some(decoded()?.into()),
            "sslcert" => self.certificate = Some(decoded()?.into()),
            "sslkey" => self.key = Some(decoded()?.into()),
            "application_name" => self.application = Some(decoded()?),
            "connect_timeout" => {
                let seconds = decoded()?.parse().ok().filter(|seconds| (1..=600).contains(seconds));
                let seconds = seconds.ok_or_else(|| Refusal("connect_timeout is 1 to 600 seconds".into()))?;
                self.connect_timeout = Some(Duration::from_secs(seconds));
            }
            "target_session_attrs" => match value {
                "read-write" | "primary" => {}
                _ => {
                    let why =
                        "target_session_attrs can only be read-write, since a standby knows no leader for certain";
                    return Err(Refusal(why.into()));
                }
            },
            "schema" => {
                let name = decoded()?;
                self.schema = Some(Schema::new(&name).map_err(|why| Refusal(why.into()))?);
            }
            "push" => match value {
                "on" => self.no_push = false,
                "off" => self.no_push = true,
                _ => return Err(Refusal("push is on or off".into())),
            },
            _ => {
                return Err(Refusal(format!(
                    "there is no option '{}'; known are host, port, user, password, passfile, dbname, sslmode, \
                     sslrootcert, sslcert, sslkey, connect_timeout, application_name, target_session_attrs, schema and \
                     push",
                    primacy_core::ids::escape(key)
                )));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<StoreUrl, Refusal> {
        let identity = match (self.certificate, self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            _ => return Err(Refusal("sslcert and sslkey go together".into())),
        };
        let hosts = Host::list(self.hosts.as_deref(), self.ports.as_deref()).map_err(Refusal)?;
        let parsed = StoreUrl {
            hosts,
            user: self.user,
            password: Password::new(self.password, self.passfile),
            database: self.database,
            tls: Tls { mode: self.tls_mode, root_certificate: self.root_certificate, identity },
            connect_timeout: self.connect_timeout.unwrap_or(CONNECT_TIMEOUT),
            application: self.application.unwrap_or_else(|| "primacy".into()),
            push: !self.no_push,
            schema: self.schema,
        };
        let needs_tls = |host: &Host| parsed.tls_mode(host) == TlsMode::VerifyFull;
        if !cfg!(feature = "postgres-tls") && parsed.hosts.iter().any(needs_tls) {
            return Err(Refusal(
                "this build of primacy has no TLS; build it with the feature postgres-tls, or state with \
                 ?sslmode=disable that nobody can listen or interfere on the way"
                    .into(),
            ));
        }
        let socket = |host: &Host| matches!(host, Host::Socket { .. }) && needs_tls(host);
        if parsed.hosts.iter().any(socket) {
            return Err(Refusal("there is no TLS over a unix socket; leave sslmode out".into()));
        }
        Ok(parsed)
    }
}

fn tls_mode(value: &str) -> Result<TlsMode, Refusal> {
    match value {
        "disable" => Ok(TlsMode::Disable),
        // Managed databases hand out the weaker ones. Whom they would encrypt to is checked here all the same.
        "verify-full" | "verify-ca" | "require" => Ok(TlsMode::VerifyFull),
        "allow" | "prefer" => Err(Refusal(format!(
            "sslmode={value} would go on without encryption wherever someone interferes; write sslmode=require \
             (encrypted, the server's certificate and name checked), or sslmode=disable if the network is yours"
        ))),
        _ => Err(Refusal("sslmode is require, verify-ca or verify-full, which mean the same, or disable".into())),
    }
}

/// `what` is named in the message, its value is not.
fn decode(text: &str, what: &str) -> Result<String, Refusal> {
    percent_decoded(text)
        .ok_or_else(|| Refusal(format!("{what} has a '%' that is not followed by the code of a character; write %25")))
}

#[cfg(all(test, not(feature = "postgres-tls")))]
mod tests_without_tls {
    use super::*;

    #[test]
    fn other_hosts_are_refused_where_they_cannot_be_verified() {
        let message = StoreUrl::parse("postgresql://u:hunter2@db.example/d").expect_err("no TLS").to_string();
        assert!(message.contains("postgres-tls") && !message.contains("hunter2"), "{message}");
        assert!(StoreUrl::parse("postgresql://u@db.example/d?sslmode=disable").is_ok());
        assert!(StoreUrl::parse("postgresql://u@localhost/d").is_ok());
    }
}

#[cfg(all(test, feature = "postgres-tls"))]
mod tests {
    use super::*;

    fn parsed(url: &str) -> StoreUrl {
        StoreUrl::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    fn shown(url: &str) -> String {
        parsed(url).shown()
    }

    #[test]
    fn urls_mean_what_they_say() {
        assert_eq!(shown("postgres://h"), "postgresql://h:5432/?sslmode=verify-full");
        assert_eq!(shown("postgresql://u:p@127.0.0.1:1/d"), "postgresql://u@127.0.0.1:1/d");
        assert_eq!(
            shown("postgresql://a%40b:p%3Aq@h1:1,h2,[2001:db8::1]:3/d%2Fe?sslmode=disable"),
            "postgresql://a%40b@h1:1,h2:5432,[2001:db8::1]:3/d%2Fe?sslmode=disable"
        );
        assert_eq!(shown("postgresql://u@%2Frun%2Fpg:6000/d"), "postgresql://u@%2Frun%2Fpg:6000/d");
        assert_eq!(shown("postgresql:///d?host=/run/pg&port=7&user=u&password=x"), "postgresql://u@%2Frun%2Fpg:7/d");
        assert_eq!(
            shown("postgresql://h/d?push=off&sslmode=disable"),
            "postgresql://h:5432/d?sslmode=disable&push=off"
        );
        assert_eq!(
            shown("postgresql://h/d?sslmode=require&schema=my%20jobs"),
            "postgresql://h:5432/d?sslmode=verify-full&schema=my%20jobs"
        );
        let parsed = parsed("postgresql://u:p%3Aq%2F%40@h1,h2:9/d?connect_timeout=3&application_name=x%20y");
        assert_eq!(parsed.password, Password::new(Some("p:q/@".into()), None));
        assert_eq!((parsed.connect_timeout, parsed.application.as_str()), (Duration::from_secs(3), "x y"));
    }

    #[test]
    fn what_is_shown_reads_back_as_the_same_place() {
        for url in ["postgresql://u:p@h1:1,h2/d", "postgresql://%2Frun/", "postgresql://[::1]/d?push=off"] {
            let once = shown(url);
            assert_eq!(shown(&once), once);
        }
    }

    #[test]
    fn only_the_way_to_this_machine_is_trusted_without_tls() {
        for (url, mode) in [
            ("postgresql://localhost/d", TlsMode::Disable),
            ("postgresql://127.1.2.3/d", TlsMode::Disable),
            ("postgresql://[::1]/d", TlsMode::Disable),
            ("postgresql://%2Frun/d", TlsMode::Disable),
            ("postgresql://10.0.0.1/d", TlsMode::VerifyFull),
            ("postgresql://localhost.example/d", TlsMode::VerifyFull),
            ("postgresql://h/d?sslmode=disable", TlsMode::Disable),
            ("postgresql://localhost/d?sslmode=verify-full", TlsMode::VerifyFull),
            ("postgresql://localhost/d?sslmode=require", TlsMode::VerifyFull),
            ("postgresql://h/d?sslmode=verify-ca", TlsMode::VerifyFull),
        ] {
            let parsed = parsed(url);
            assert_eq!(parsed.tls_mode(&parsed.hosts[0]), mode, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused_without_the_password() {
        for (url, why) in [
            ("postgresql:h/d", "//"),
            ("postgresql://u:hunter2@h:x/d", "port"),
            ("postgresql://u:hunter2@h:0/d", "port"),
            ("postgresql://u:hunter2@h:99999/d", "port"),
            ("postgresql://u:hunter2%zz@h/d", "password"),
            ("postgresql://u:hunter2@h/d/e", "%2F"),
            ("postgresql://u:hunter2@h/d#x", "%23"),
            ("postgresql://u:hunter2@h,,h2/d", "host"),
            ("postgresql://u:hunter2@[::1/d", "]"),
            ("postgresql://u:hunter2@h/d?sslmode=prefer", "sslmode=require"),
            ("postgresql://u:hunter2@h/d?sslmode=allow", "sslmode=require"),
            ("postgresql://u:hunter2@h/d?schema=pg_temp", "schema"),
            ("postgresql://u:hunter2@h/d?schema=a%22b", "schema"),
            ("postgresql://u:hunter2@h/d?sslmode=x", "sslmode"),
            ("postgresql://u:hunter2@h/d?sslcert=/x", "sslkey"),
            ("postgresql://u:hunter2@h/d?target_session_attrs=any", "standby"),
            ("postgresql://u:hunter2@h/d?connect_timeout=0", "connect_timeout"),
            ("postgresql://u:hunter2@h/d?options=-cx", "options"),
            ("postgresql://u:hunter2@h/d?password", "="),
            ("postgresql://u:hunter2@h1,h2/d?port=1,2,3", "port"),
            ("postgresql://u:hunter2@%2Frun/d?sslmode=verify-full", "unix socket"),
            ("postgresql://u:hunter2@h/d\n", "control"),
        ] {
            let message = StoreUrl::parse(url).expect_err(url).to_string();
            assert!(message.contains(why), "{url}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
            assert!(!message.contains('\n'), "{message:?}");
        }
    }
}
