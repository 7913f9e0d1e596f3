//! Encrypted connections between peers that prove to each other who they are.
//!
//! Both sides present a certificate of the same authority, and the name in it is whom one talks to. Resumption is off: a
//! resumed connection would not look at certificates again, and peers keep their connections anyway.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, DnsName, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, InconsistentKeys, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// The files by which a peer proves who it is, and knows others. All are in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its certificate, then those between that and the authority's, if any.
    pub certificate: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
    /// The authority that has signed everybody's certificates. While a new one takes over, both.
    pub authority: PathBuf,
}

impl Identity {
    /// That of the peer with this name, in a folder that [`make`](super::certs::make) has filled.
    pub fn within(folder: &Path, name: &str) -> Self {
        let file = |name: &str, ending| folder.join(format!("{name}.{ending}"));
        Self { certificate: file(name, "pem"), key: file(name, "key"), authority: file(super::certs::AUTHORITY, "pem") }
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
#[derive(Clone, Debug)]
pub struct Tls {
    identity: Identity,
    sides: Arc<RwLock<Arc<Sides>>>,
}

impl Tls {
    /// Reads the files, and checks that others will accept what is in them.
    ///
    /// # Errors
    /// If one cannot be read, they do not belong together, or the certificate has expired, is not valid yet or names nobody.
    pub fn load(identity: &Identity) -> Result<Self, TlsError> {
        let sides = Sides::read(identity, UnixTime::now())?;
        Ok(Self { identity: identity.clone(), sides: shared(sides) })
    }

    /// Reads the files again, for connections that are made from now on.
    ///
    /// # Errors
    /// As for [`load`](Self::load); what was read before then stays in use.
    pub fn reload(&self) -> Result<(), TlsError> {
        let sides = Arc::new(Sides::read(&self.identity, UnixTime::now())?);
        *self.sides.write().unwrap_or_else(PoisonError::into_inner) = sides;
        Ok(())
    }

    /// Whom our certificate names first.
    pub fn name(&self) -> String {
        self.sides().name.clone()
    }

    /// Makes a connection secure that another side has opened. It has no deadline of its own.
    ///
    /// # Errors
    /// If the other side does not prove by a certificate that it is one of us.
    pub async fn accept<S>(&self, stream: S) -> Result<TlsStream<S>, TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let accepted = TlsAcceptor::from(self.sides().server.clone()).accept(stream).await;
        accepted.map(TlsStream::from).map_err(TlsError::of_handshake)
    }

    /// Makes a connection secure to the peer with this name. It has no deadline of its own.
    ///
    /// The other side looks at our certificate only after this has returned. If it refuses that, the next read fails, and
    /// [`refusal`] tells why.
    ///
    /// # Errors
    /// If the other side does not prove that it has this name.
    pub async fn connect<S>(&self, name: &str, stream: S) -> Result<TlsStream<S>, TlsError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let server = dns_name(name).ok_or_else(|| TlsError::Name { name: name.to_string() })?;
        let connector = TlsConnector::from(self.sides().client.clone());
        let connected = connector.connect(ServerName::DnsName(server), stream).await;
        connected.map(TlsStream::from).map_err(TlsError::of_handshake)
    }

    fn sides(&self) -> Arc<Sides> {
        self.sides.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whom the certificate of the other side names first, or `None` if that is nothing that a peer may be called.
pub fn peer_name<S>(connection: &TlsStream<S>) -> Option<String> {
    first_name(connection.get_ref().1.peer_certificates()?.first()?)
}

fn first_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    certificate.valid_dns_names().next().filter(|name| dns_name(name).is_some()).map(str::to_string)
}

fn shared(sides: Sides) -> Arc<RwLock<Arc<Sides>>> {
    Arc::new(RwLock::new(Arc::new(sides)))
}

/// One configuration for each role.
#[derive(Debug)]
struct Sides {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    /// Whom our certificate names first.
    name: String,
}

impl Sides {
    fn read(identity: &Identity, now: UnixTime) -> Result<Self, TlsError> {
        let Identity { certificate, key, authority } = identity;
        let refused = |why: &dyn ToString| TlsError::File { file: certificate.clone(), why: why.to_string() };
        // Named, since another crate of the program may have installed none, or another.
        let provider = Arc::new(ring::default_provider());
        let roots = Arc::new(roots(authority)?);
        let verifier = verifier(roots.clone(), &provider).map_err(|why| refused(&why))?;
        let own = own(certificate, key, &provider)?;
        let (first, between) = own.cert.split_first().ok_or_else(|| refused(&"there is no certificate in it"))?;
        if let Err(error) = verifier.verify_client_cert(first, between, now) {
            return Err(refused(&format!("{} (checked with {})", explain(&error, "it"), authority.display())));
        }
        let name =
            first_name(first).ok_or_else(|| refused(&format!("its first DNS name cannot name a peer: {NAME_RULE}")))?;

        let own = Arc::new(SingleCertAndKey::from(own));
        let server = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13]);
        let server = server.map_err(|error| refused(&error))?.with_client_cert_verifier(verifier);
        let mut server = server.with_cert_resolver(own.clone());
        server.send_tls13_tickets = 0;
        let client = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let client = client.map_err(|error| refused(&error))?.with_root_certificates(roots);
        let mut client = client.with_client_cert_resolver(own);
        client.resumption = Resumption::disabled();
        Ok(Self { server: Arc::new(server), client: Arc::new(client), name })
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
    let mode = |path: &Path| std::fs::metadata(path).map(|file| file.mode()).map_err(|error| error.to_string());
    if mode(key)? & (OTHERS | GROUP_WRITES) != 0 {
        return Err(format!("others may use this key and pass for its owner: chmod 600 {}", key.display()));
    }
    let folder = key.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if mode(folder)? & (OTHERS_WRITE | STICKY) == OTHERS_WRITE {
        return Err(format!("others may put another key in its place: chmod o-w {}", folder.display()));
    }
    Ok(())
}

/// The authorities in this file. Their own dates are not looked at: whoever has the file trusts them.
pub(super) fn roots(authority: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authority)? {
        let refused = |error: rustls::Error| TlsError::File { file: authority.to_path_buf(), why: error.to_string() };
        roots.add(certificate).map_err(refused)?;
    }
    Ok(roots)
}

/// What decides whether a certificate is one of ours.
pub(super) fn verifier(
    roots: Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, String> {
    WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build().map_err(|error| error.to_string())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let refused = |why| TlsError::File { file: file.to_path_buf(), why };
    let problem = |error| refused(pem_problem(error, "certificate"));
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(problem)?;
    if read.is_empty() { Err(refused("there is no certificate in it".into())) } else { Ok(read) }
}

fn pem_problem(error: rustls::pki_types::pem::Error, wanted: &str) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::Io(error) => error.to_string(),
        Error::NoItemsFound => format!("there is no {wanted} in it"),
        error => format!("it is no PEM file: {error}"),
    }
}

impl TlsError {
    fn of_handshake(source: io::Error) -> Self {
        Self::Handshake { why: refusal(&source).unwrap_or_else(|| source.to_string()), source }
    }
}

/// Why the two sides of a connection did not accept each other, if that is what this error is about.
pub fn refusal(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(explain(error, "the other side's certificate"))
}

/// What to do about most certificates.
const NEW: &str = "make one by 'primacy peer certs'";

/// `whose`: which certificate it is about, if it is about one that we have looked at.
fn explain(error: &rustls::Error, whose: &str) -> String {
    use rustls::AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::ExpiredContext { time, not_after } => {
                format!("{whose} expired {} ago: {NEW}", span(*not_after, *time))
            }
            CertificateError::NotValidYetContext { time, not_before } => {
                format!("{whose} is not valid for another {}; are the clocks right?", span(*time, *not_before))
            }
            // The second if the authority has the name of ours, but another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!("{whose} is not signed by our authority: {NEW} with that one's 'ca.pem' and 'ca.key'")
            }
            why => format!("{whose} is not accepted: {why}"),
        },
        rustls::Error::NoCertificatesPresented => format!("the other side has shown no certificate: {NEW}"),
        rustls::Error::InvalidMessage(_) => {
            "the other side does not speak TLS: give it certificates (--certs FOLDER, or ?certs=FOLDER in the store's URL)"
                .into()
        }
        rustls::Error::AlertReceived(Alert::CertificateExpired) => {
            format!("the other side says that our certificate has expired or is not valid yet: {NEW}")
        }
        rustls::Error::AlertReceived(Alert::UnknownCA | Alert::DecryptError) => {
            "the other side says that our certificate is not signed by its authority".into()
        }
        rustls::Error::AlertReceived(Alert::CertificateRequired) => {
            "the other side asks for a certificate, and we have shown none".into()
        }
        rustls::Error::AlertReceived(Alert::BadCertificate) => {
            "the other side does not take our certificate: if it looks for a peer of another name here, mend the addresses \
             that it was told of"
                .into()
        }
        error => error.to_string(),
    }
}

/// The time from one point to another, in the unit that people would use.
fn span(from: UnixTime, to: UnixTime) -> String {
    let seconds = to.as_secs().saturating_sub(from.as_secs());
    match seconds {
        0..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
