//! Which certificates are believed: those that an authority of ours has signed and has not revoked, in their time.
//!
//! This is the only place that decides it, for a handshake and for a connection that stands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{CertificateError, Error, RootCertStore};

use super::{TlsError, pem_problem};

/// Where the lists are of the certificates that were revoked before their end. All are in PEM, one of each authority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Revocations {
    /// There are none: a certificate is believed until it expires.
    #[default]
    Without,
    /// In this file, from when on there is one.
    IfPresent(PathBuf),
    /// In this file, which must be there.
    Required(PathBuf),
}

impl Revocations {
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Without => None,
            Self::IfPresent(file) | Self::Required(file) => Some(file),
        }
    }

    /// The lists. `is_known`: whether there were some before, which must not get lost.
    fn read(&self, is_known: bool) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
        let Some(file) = self.file() else { return Ok(Vec::new()) };
        if matches!(self, Self::IfPresent(_)) && !file.exists() {
            return if is_known {
                Err(refused(file, "it is gone, and what it revoked stays revoked: bring it back"))
            } else {
                Ok(Vec::new())
            };
        }
        let problem = |error| refused(file, &pem_problem(error, "list of revoked certificates"));
        let lists = CertificateRevocationListDer::pem_file_iter(file);
        let lists: Vec<_> = lists.and_then(Iterator::collect).map_err(problem)?;
        let none = "there is no list of revoked certificates in it: 'primacy peer revoke' makes one";
        if lists.is_empty() { Err(refused(file, none)) } else { Ok(lists) }
    }
}

fn refused(file: &Path, why: &str) -> TlsError {
    TlsError::File { file: file.to_path_buf(), why: why.to_owned() }
}

/// Of whom a certificate has to be.
#[derive(Clone, Debug)]
pub(super) enum ExpectedPeer {
    /// Of anybody: the name in it says who that is.
    Anybody,
    /// Of the peer with this name.
    Server(ServerName<'static>),
}

/// What decides about certificates.
#[derive(Clone, Debug)]
pub(in super::super) struct Trust {
    pub(super) clients: Arc<dyn ClientCertVerifier>,
    pub(super) servers: Arc<WebPkiServerVerifier>,
    /// The first, but it also refuses by a list that should have been replaced by now. `None` without lists.
    strict: Option<Arc<dyn ClientCertVerifier>>,
}

impl Trust {
    /// Those who trust the authorities in this file.
    pub(in super::super) fn read(
        authority: &Path,
        revocations: &Revocations,
        is_known: bool,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        let roots = Arc::new(roots(authority)?);
        let lists = revocations.read(is_known)?;
        if let Some(file) = revocations.file().filter(|_| !lists.is_empty()) {
            check_lists(&lists, &roots).map_err(|why| refused(file, &format!("{why} ({})", authority.display())))?;
        }
        let failed = |error: &dyn ToString| refused(revocations.file().unwrap_or(authority), &error.to_string());
        // A list counts although its time is over: whom it names stays out, and those that it does not name can go on
        // electing. Were all refused then, a list that nobody has renewed would end every election.
        let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let clients = clients.with_crls(lists.clone());
        let strict = (!lists.is_empty()).then(|| clients.clone().enforce_revocation_expiration().build());
        let strict = strict.transpose().map_err(|error| failed(&error))?;
        let clients = clients.build().map_err(|error| failed(&error))?;
        let servers = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).with_crls(lists);
        Ok(Self { clients, servers: servers.build().map_err(|error| failed(&error))?, strict })
    }

    /// Whether there are lists of revoked certificates.
    pub(super) const fn has_lists(&self) -> bool {
        self.strict.is_some()
    }

    /// Whether this chain of certificates, its own first, is believed to be of them at this time.
    pub(super) fn check(
        &self,
        chain: &[CertificateDer<'_>],
        expected: &ExpectedPeer,
        now: UnixTime,
    ) -> Result<(), Error> {
        let (first, between) = chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        match expected {
            ExpectedPeer::Anybody => self.clients.verify_client_cert(first, between, now).map(drop),
            ExpectedPeer::Server(name) => self.servers.verify_server_cert(first, between, name, &[], now).map(drop),
        }
    }

    /// Whether this certificate is one of anybody's that we believe now.
    pub(in super::super) fn believes(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        self.check(std::slice::from_ref(certificate), &ExpectedPeer::Anybody, now)
    }

    /// Whether a list that decides about this chain should have been replaced by now.
    pub(super) fn is_list_old(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        let Some((strict, (first, between))) = self.strict.as_ref().zip(chain.split_first()) else { return false };
        let answer = strict.verify_client_cert(first, between, now);
        let Err(Error::InvalidCertificate(error)) = answer else { return false };
        matches!(error, CertificateError::ExpiredRevocationList | CertificateError::ExpiredRevocationListContext { .. })
    }

    /// From when until when all certificates in this chain are valid.
    ///
    /// The rule itself is asked, which says what is too early or too late: nothing else here reads a certificate's dates.
    pub(super) fn span(&self, chain: &[CertificateDer<'_>], expected: &ExpectedPeer) -> (UnixTime, UnixTime) {
        let (mut from, mut until) = (UnixTime::since_unix_epoch(Duration::ZERO), END);
        while let Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) =
            self.check(chain, expected, from)
            && not_before > from
        {
            from = not_before;
        }
        while let Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) =
            self.check(chain, expected, until)
            && not_after < until
        {
            until = not_after;
        }
        (from, until)
    }
}

/// The last second of the year 9999, which no certificate can outlast.
const END: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(253_402_300_799));

/// Whether there is one list of each authority, and of which is told by its name. Where one is missing, all certificates of
/// that authority would be refused: so it is said before, and not by the end of an election.
fn check_lists(lists: &[CertificateRevocationListDer<'_>], roots: &RootCertStore) -> Result<(), String> {
    let mut issuers = BTreeSet::new();
    for list in lists {
        let parsed = webpki::OwnedCertRevocationList::from_der(list);
        let parsed = parsed.map_err(|error| format!("it is no list of revoked certificates: {error}"))?;
        if !issuers.insert(webpki::CertRevocationList::from(parsed).issuer().to_vec()) {
            return Err("it holds two lists of one authority: leave the newer one in it".to_owned());
        }
    }
    let authorities: BTreeSet<_> = roots.roots.iter().map(|root| root.subject.as_ref().to_vec()).collect();
    if authorities.len() < roots.roots.len() {
        return Err(
            "two authorities of one name are trusted, and a list does not tell of which it is: leave one".into()
        );
    }
    if authorities.is_subset(&issuers) {
        Ok(())
    } else {
        Err("a list of each authority that is trusted must be in it, and one is missing: 'primacy peer revoke' makes \
             one, and lists of several authorities are put one behind the other"
            .to_owned())
    }
}

/// The authorities in this file. Their own dates are not looked at: the owner of the file trusts them.
pub(super) fn roots(authority: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in super::certificates(authority)? {
        roots.add(certificate).map_err(|error| refused(authority, &error.to_string()))?;
    }
    Ok(roots)
}
