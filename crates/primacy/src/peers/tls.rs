//! Encrypted connections between peers that prove to each other who they are.
//!
//! Both sides present a certificate of the same authority, and the name in it is whom one talks to. Resumption is off: a
//! resumed connection would not look at certificates again, and peers keep their connections anyway. A connection that stands
//! is looked at again from time to time: it ends when a new one would be refused.

mod connection;
mod server;
mod trust;
mod upkeep;
mod why;

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, Once, PoisonError, RwLock};
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::time_provider::{DefaultTimeProvider, TimeProvider};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, InconsistentKeys, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tracing::warn;

pub use self::connection::Connection;
pub use self::server::{ServerFiles, ServerTls};
use self::trust::ExpectedPeer;
pub use self::trust::Revocations;
pub(super) use self::trust::Trust;
use self::upkeep::FileVersion;
pub(super) use self::upkeep::Health;
pub use self::why::refusal;
use self::why::{NEW, explain, span};

/// How often the certificates of a connection are looked at again, and how often their files.
///
/// So a connection ends within 10 s of the expiry of a certificate, of a changed list of revocations, or of a changed file of
/// authorities: the file is read within one of these, and each connection is looked at within another.
pub const LOOK: Duration = Duration::from_secs(5);

/// What the authority's files are called, so that no peer can be.
pub(super) const AUTHORITY: &str = "ca";

/// The files by which a peer proves who it is, and knows others. All are in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// Its certificate, then those between that and the authority's, if any.
    pub certificate: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
    /// The authority that has signed everybody's certificates. While a new one takes over, both.
    pub authority: PathBuf,
    /// What the authority has revoked.
    pub revocations: Revocations,
}

impl Identity {
    /// These files, without a list of revocations.
    pub fn new(certificate: PathBuf, key: PathBuf, authority: PathBuf) -> Self {
        Self { certificate, key, authority, revocations: Revocations::default() }
    }

    /// That of the peer with this name, in a folder that [`make`](crate::peers::certs::make) has filled.
    pub fn within(folder: &Path, name: &str) -> Self {
        let file = |name: &str, ending| folder.join(format!("{name}.{ending}"));
        let authority = |ending| file(AUTHORITY, ending);
        Self {
            certificate: file(name, "pem"),
            key: file(name, "key"),
            authority: authority("pem"),
            revocations: Revocations::IfPresent(authority("crl")),
        }
    }
}

/// Why there is no connection, or no way to make one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file is not there, or not what it should be.
    #[error("{}: {why}", file.display())]
    File {
        /// Which.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Certificate and key belong to different pairs.
    #[error("the key {} does not belong to the certificate {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The certificate.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// No peer can have this name.
    #[error("{name:?} cannot name a peer: {NAME_RULE}")]
    Name {
        /// The name.
        name: String,
    },
    /// Our own certificate has been revoked: nobody takes it any more.
    #[error("{} has been revoked: {NEW}", certificate.display())]
    Revoked {
        /// The certificate.
        certificate: PathBuf,
    },
    /// A connection that stood has ended, since a new one would be refused.
    #[error("the connection ends: {why}")]
    Ended {
        /// Why that is, for people.
        why: String,
    },
    /// The other side was not reached, is not who it should be, or does not take us for who we should be.
    #[error("no secure connection: {why}")]
    Handshake {
        /// What is wrong, for people.
        why: String,
        /// What happened.
        source: io::Error,
    },
}

/// What a peer may be called.
pub(super) const NAME_RULE: &str =
    "give 1 to 63 of the characters a to z, 0 to 9, '-' and '.', as in the name of a host";

/// The name as certificates have it, if it is one.
pub(super) fn dns_name(name: &str) -> Option<DnsName<'static>> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let is_right = name.len() <= 63 && !name.ends_with('.') && name.bytes().all(fits);
    DnsName::try_from(name.to_string()).ok().filter(|_| is_right)
}

/// What a peer needs to talk to others. Clones share it: one reload changes all.
///
/// From the first connection on a thread looks every [`LOOK`] whether a file has changed, and reads all of them again then.
#[derive(Clone, Debug)]
pub struct Tls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    identity: Identity,
    /// The calendar, by which certificates are valid. Nothing else of an election depends on it.
    wall: Arc<dyn TimeProvider>,
    interval: Duration,
    configs: RwLock<Arc<TlsConfigs>>,
    /// The versions of the files that were read, or `None` if they could not be used.
    file_versions: Mutex<Option<[FileVersion; 4]>>,
    upkeep: Once,
    /// When it is dropped, the thread ends that looks after the files.
    stop: Mutex<Option<Sender<()>>>,
}

impl Tls {
    /// Reads the files, and checks that others will accept what is in them.
    ///
    /// # Errors
    /// If one cannot be read, they do not belong together, or the certificate has expired, was revoked, is not valid yet or
    /// names nobody.
    pub fn load(identity: &Identity) -> Result<Self, TlsError> {
        Self::load_with(identity, Arc::new(DefaultTimeProvider), LOOK)
    }

    fn load_with(identity: &Identity, wall: Arc<dyn TimeProvider>, interval: Duration) -> Result<Self, TlsError> {
        let file_versions = upkeep::file_versions(identity);
        let configs = TlsConfigs::read(identity, &wall, None)?;
        configs.check_own(identity, &wall)?;
        Ok(Self(Arc::new(Shared {
            identity: identity.clone(),
            wall,
            interval,
            configs: RwLock::new(Arc::new(configs)),
            file_versions: Mutex::new(Some(file_versions)),
            upkeep: Once::new(),
            stop: Mutex::new(None),
        })))
    }

    /// Reads the files again, at once. Connections that stand are measured by them too when they are looked at next.
    ///
    /// # Errors
    /// As for [`load`](Self::load); what was read before then stays in use. Only a list that revokes our own certificate counts
    /// all the same.
    pub fn reload(&self) -> Result<(), TlsError> {
        let Shared { identity, wall, file_versions, .. } = &*self.0;
        let found = upkeep::file_versions(identity);
        let remember = |found| *file_versions.lock().unwrap_or_else(PoisonError::into_inner) = found;
        remember(None);
        let configs = TlsConfigs::read(identity, wall, Some(&self.configs()))?;
        let checked = configs.check_own(identity, wall);
        if matches!(checked, Ok(()) | Err(TlsError::Revoked { .. })) {
            *self.0.configs.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(configs);
        }
        checked?;
        remember(Some(found));
        Ok(())
    }

    /// How our own files stand.
    pub(super) fn health(&self) -> Health {
        let now = self.0.wall.current_time().unwrap_or_else(UnixTime::now);
        self.configs().health(&self.0.identity, now)
    }

    /// Begins to look after the files, if nobody does.
    fn look_after_files(&self) {
        self.0.upkeep.call_once(|| {
            // A warden connects for the first time when its runner is gone, months after it read them.
            upkeep::look(self, &mut None);
            let (stop, gone) = channel();
            *self.0.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
            let shared = Arc::downgrade(&self.0);
            let thread = std::thread::Builder::new().name("certificates".into());
            if let Err(error) = thread.spawn(move || upkeep::keep(&shared, &gone)) {
                warn!(%error, "no thread can be had to look whether certificates change: start this anew when they do");
            }
        });
    }

    /// Whom our certificate names first.
    pub fn name(&self) -> String {
        self.configs().name.clone()
    }

    /// Makes a connection secure that another side has opened. It has no deadline of its own.
    ///
    /// # Errors
    /// If the other side does not prove by a certificate that it is one of us.
    pub async fn accept<S>(&self, stream: S) -> Result<Connection<S>, TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.look_after_files();
        let configs = self.configs();
        let accepted =
            TlsAcceptor::from(configs.server.clone()).accept(stream).await.map_err(TlsError::of_handshake)?;
        Ok(Connection::new(accepted.into(), self, configs, ExpectedPeer::Anybody))
    }

    /// Makes a connection secure to the peer with this name. It has no deadline of its own.
    ///
    /// The other side looks at our certificate only after this has returned. If it refuses that, the next read fails, and
    /// [`refusal`] tells why.
    ///
    /// # Errors
    /// If the other side does not prove that it has this name: it is the first in its certificate, and no pattern.
    pub async fn connect<S>(&self, name: &str, stream: S) -> Result<Connection<S>, TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.look_after_files();
        let server = dns_name(name).ok_or_else(|| TlsError::Name { name: name.to_string() })?;
        let server = ServerName::DnsName(server);
        let configs = self.configs();
        let connected = TlsConnector::from(configs.client.clone()).connect(server.clone(), stream).await;
        let connected = connected.map_err(TlsError::of_handshake)?;
        let connected = Connection::new(connected.into(), self, configs, ExpectedPeer::Server(server));
        // TLS is content with any name in the certificate, and with a wildcard. A role comes from the first name alone, and a
        // candidate's certificate that also fits a voter must not pass for that voter.
        match connected.peer_name() {
            Some(first) if first == name => Ok(connected),
            first => Err(TlsError::of_another(name, first)),
        }
    }

    fn configs(&self) -> Arc<TlsConfigs> {
        self.0.configs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn first_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    certificate.valid_dns_names().next().filter(|name| dns_name(name).is_some()).map(str::to_string)
}

/// One configuration for each role, with what they decide by.
#[derive(Debug)]
struct TlsConfigs {
    /// Which of all that were read.
    number: u64,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    trust: Trust,
    own: Arc<CertifiedKey>,
    /// When our certificates are valid, first and last.
    from: UnixTime,
    until: UnixTime,
    /// Whom our certificate names first.
    name: String,
}

impl TlsConfigs {
    /// `before`: those that were in use until now.
    fn read(identity: &Identity, wall: &Arc<dyn TimeProvider>, before: Option<&Self>) -> Result<Self, TlsError> {
        let Identity { certificate, key, authority, revocations } = identity;
        let refused = |why: &dyn ToString| TlsError::File { file: certificate.clone(), why: why.to_string() };
        // Named, since another crate of the program may have installed none, or another.
        let provider = Arc::new(ring::default_provider());
        let had_lists = before.is_some_and(|before| before.trust.has_lists());
        let trust = Trust::read(authority, revocations, had_lists, &provider)?;
        let own = Arc::new(own(certificate, key, &provider)?);
        let first = own.cert.first().ok_or_else(|| refused(&"there is no certificate in it"))?;
        // That of an authority has no name, and more than that is wrong with it.
        let name = first_name(first).unwrap_or_default();
        let (from, until) = trust.span(&own.cert, &ExpectedPeer::Anybody);

        let resolver = Arc::new(SingleCertAndKey::from(CertifiedKey::clone(&own)));
        let server = ServerConfig::builder_with_details(provider.clone(), wall.clone());
        let server = server.with_protocol_versions(&[&TLS13]).map_err(|error| refused(&error))?;
        let server = server.with_client_cert_verifier(trust.clients.clone());
        let mut server = server.with_cert_resolver(resolver.clone());
        server.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_details(provider, wall.clone());
        let client = client.with_protocol_versions(&[&TLS13]).map_err(|error| refused(&error))?;
        let mut client = client.with_webpki_verifier(trust.servers.clone()).with_client_cert_resolver(resolver);
        client.resumption = Resumption::disabled();
        let number = before.map_or(0, |before| before.number + 1);
        Ok(Self { number, server: Arc::new(server), client: Arc::new(client), trust, own, from, until, name })
    }

    /// Whether others will take our certificate, if they decide as we do.
    fn check_own(&self, identity: &Identity, wall: &Arc<dyn TimeProvider>) -> Result<(), TlsError> {
        let Identity { certificate, authority, revocations, .. } = identity;
        let refused = |why: String| TlsError::File { file: certificate.clone(), why };
        let now = wall.current_time().ok_or_else(|| refused("the clock cannot be read to check it".into()))?;
        if let Err(error) = self.trust.check(&self.own.cert, &ExpectedPeer::Anybody, now) {
            return Err(match (&error, revocations.file()) {
                (rustls::Error::InvalidCertificate(CertificateError::Revoked), _) => {
                    TlsError::Revoked { certificate: certificate.clone() }
                }
                (
                    rustls::Error::InvalidCertificate(CertificateError::UnknownRevocationStatus)
                    | rustls::Error::InvalidCertRevocationList(_),
                    Some(list),
                ) => {
                    let why = format!(
                        "the authority that has signed {} has not signed this list: bring the one that 'primacy peer revoke' \
                         wrote beside that authority's 'ca.key', or that its own tools make",
                        certificate.display()
                    );
                    TlsError::File { file: list.to_path_buf(), why }
                }
                _ => refused(format!("{} (checked with {})", explain(&error, "it"), authority.display())),
            });
        }
        if self.name.is_empty() {
            return Err(refused(format!("its first DNS name cannot name a peer: {NAME_RULE}")));
        }
        Ok(())
    }
}

fn own(certificate: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let in_file = |file: &Path, why: String| TlsError::File { file: file.to_path_buf(), why };
    let chain = certificates(certificate)?;
    check_secret(key).map_err(|why| in_file(key, why))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| in_file(key, pem_problem(error, "private key")))?;
    CertifiedKey::from_der(chain, private, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            TlsError::KeyMismatch { certificate: certificate.to_path_buf(), key: key.to_path_buf() }
        }
        rustls::Error::InvalidCertificate(_) => in_file(certificate, explain(&error, "it")),
        error => in_file(key, error.to_string()),
    })
}

/// Why this key is no secret, if it is none: others may read or replace it.
fn check_secret(key: &Path) -> Result<(), String> {
    const OTHERS: u32 = 0o007;
    const GROUP_WRITES: u32 = 0o020;
    const OTHERS_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let mode = |path: &Path| std::fs::metadata(path).map(|file| file.mode()).map_err(|error| io_problem(&error));
    if mode(key)? & (OTHERS | GROUP_WRITES) != 0 {
        return Err(format!("others may use this key and pass for its owner: chmod 600 {}", key.display()));
    }
    let folder = key.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if mode(folder)? & (OTHERS_WRITE | STICKY) == OTHERS_WRITE {
        return Err(format!("others may put another key in its place: chmod o-w {}", folder.display()));
    }
    Ok(())
}

pub(super) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let refused = |why| TlsError::File { file: file.to_path_buf(), why };
    let problem = |error| refused(pem_problem(error, "certificate"));
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(problem)?;
    if read.is_empty() { Err(refused("there is no certificate in it".into())) } else { Ok(read) }
}

fn pem_problem(error: rustls::pki_types::pem::Error, wanted: &str) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::Io(error) => io_problem(&error),
        Error::NoItemsFound => format!("there is no {wanted} in it"),
        // The library's own words have lists of bytes.
        Error::MissingSectionEnd { .. } => "it is no whole PEM file: an END line is missing".to_owned(),
        Error::IllegalSectionStart { .. } => "it is no PEM file: a BEGIN line in it is not whole".to_owned(),
        Error::Base64Decode(_) => "it is no PEM file: what stands between BEGIN and END is no base64".to_owned(),
        error => format!("it is no PEM file: {error}"),
    }
}

fn io_problem(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "No such file".to_owned(),
        _ => error.to_string(),
    }
}

impl TlsError {
    fn of_handshake(source: io::Error) -> Self {
        Self::Handshake { why: refusal(&source).unwrap_or_else(|| source.to_string()), source }
    }

    /// The certificate is valid for the name that was asked for, but is that of somebody else.
    fn of_another(name: &str, first: Option<String>) -> Self {
        let first = first.map_or_else(|| "that of no peer".to_owned(), |first| format!("'{first}'"));
        let why = format!(
            "the first DNS name in the other side's certificate is {first}, and '{name}' was asked for: give '{name}' a \
             certificate with that name first"
        );
        Self::Handshake { source: io::Error::new(io::ErrorKind::InvalidData, why.clone()), why }
    }
}

#[cfg(test)]
mod tests;
