//! TLS for servers whose clients are no peers: browsers, load balancers, clients of the key-value store.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Once, PoisonError, RwLock, Weak};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

use super::trust::roots;
use super::upkeep::{FileVersion, file_version};
use super::{LOOK, TlsError, own};

/// The files by which a server proves to its clients who it is, and knows them. All are in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFiles {
    /// Its certificate, then those between that and the authority's, if any.
    pub certificate: PathBuf,
    /// The key of that certificate, which only its owner and a group may read.
    pub key: PathBuf,
    /// The authority that has signed the certificates of clients. Without it, clients need none.
    pub clients: Option<PathBuf>,
}

impl ServerFiles {
    /// These files, and any client.
    pub const fn new(certificate: PathBuf, key: PathBuf) -> Self {
        Self { certificate, key, clients: None }
    }

    /// With `clients`, the authority that has signed their certificates.
    #[must_use]
    pub fn with_clients(self, clients: Option<PathBuf>) -> Self {
        Self { clients, ..self }
    }

    fn versions(&self) -> Versions {
        [Some(&*self.certificate), Some(&*self.key), self.clients.as_deref()]
            .map(|file: Option<&Path>| file_version(file?))
    }

    fn read(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let refused = |error: rustls::Error| TlsError::File { file: self.certificate.clone(), why: error.to_string() };
        let provider = Arc::new(ring::default_provider());
        let own = own(&self.certificate, &self.key, &provider)?;
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_safe_default_protocol_versions().map_err(refused)?;
        let config = match &self.clients {
            None => config.with_no_client_auth(),
            Some(authority) => {
                let roots = Arc::new(roots(authority)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                let unusable = |error: rustls::server::VerifierBuilderError| TlsError::File {
                    file: authority.clone(),
                    why: error.to_string(),
                };
                config.with_client_cert_verifier(verifier.map_err(unusable)?)
            }
        };
        Ok(Arc::new(config.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)))))
    }
}

type Versions = [FileVersion; 3];

/// Takes connections over TLS, 1.2 or later. Clones share it.
///
/// From the first connection on a thread looks every [`LOOK`] whether a file has changed, and reads all of them again then, for the
/// connections that come. If they cannot be used, what was read before stays in use.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    files: ServerFiles,
    config: RwLock<Arc<ServerConfig>>,
    /// The versions of the files that were read.
    versions: Mutex<Versions>,
    upkeep: Once,
    /// When it is dropped, the thread ends that looks after the files.
    stop: Mutex<Option<Sender<()>>>,
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be read, others may use the key, or they do not belong together.
    pub fn load(files: ServerFiles) -> Result<Self, TlsError> {
        let versions = Mutex::new(files.versions());
        let config = RwLock::new(files.read()?);
        Ok(Self(Arc::new(Shared { files, config, versions, upkeep: Once::new(), stop: Mutex::default() })))
    }

    /// Makes a connection secure that a client has opened. It has no deadline of its own.
    pub fn accept<S>(
        &self,
        stream: S,
    ) -> impl Future<Output = io::Result<impl AsyncRead + AsyncWrite + Unpin + use<S>>> + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        self.look_after_files();
        let config = self.0.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        TlsAcceptor::from(config).accept(stream)
    }

    /// Reads the files again if one of them has changed since they were read.
    fn look(&self, complaint: &mut Option<String>) {
        let Shared { files, config, versions, .. } = &*self.0;
        let found = files.versions();
        if *versions.lock().unwrap_or_else(PoisonError::into_inner) == found {
            return;
        }
        match files.read() {
            Ok(new) => {
                *config.write().unwrap_or_else(PoisonError::into_inner) = new;
                *versions.lock().unwrap_or_else(PoisonError::into_inner) = found;
                info!("the certificate {} has changed and was read again", files.certificate.display());
                *complaint = None;
            }
            // It may be half written, or there are too many open files: it is tried again.
            Err(error) => {
                let text = error.to_string();
                if complaint.as_ref() != Some(&text) {
                    warn!("the certificate for clients stays as it was: {text}");
                }
                *complaint = Some(text);
            }
        }
    }

    fn look_after_files(&self) {
        self.0.upkeep.call_once(|| {
            // The first client may come long after they were read.
            self.look(&mut None);
            let (stop, gone) = channel();
            *self.0.stop.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
            let shared = Arc::downgrade(&self.0);
            let thread = std::thread::Builder::new().name("certificates".into());
            if let Err(error) = thread.spawn(move || keep(&shared, &gone)) {
                warn!(%error, "no thread can be had to look whether certificates change: start this anew when they do");
            }
        });
    }
}

/// Looks after the files until nobody uses them any more.
fn keep(shared: &Weak<Shared>, gone: &Receiver<()>) {
    let mut complaint = None;
    while let Some(shared) = shared.upgrade() {
        ServerTls(shared).look(&mut complaint);
        if gone.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn write(folder: &Path) -> ServerFiles {
        let files = ServerFiles::new(folder.join("a.pem"), folder.join("a.key"));
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(["localhost".to_owned()]).expect("a name").self_signed(&key);
        fs::write(&files.certificate, certificate.expect("signed").pem()).expect("written");
        // A new file, as who renews certificates leaves it.
        let _ = fs::remove_file(&files.key);
        fs::write(&files.key, key.serialize_pem()).expect("written");
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).expect("its rights");
        files
    }

    fn current(tls: &ServerTls) -> Arc<ServerConfig> {
        tls.0.config.read().expect("nobody panicked").clone()
    }

    #[test]
    fn files_that_change_count_and_such_as_do_not_go_together_do_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let tls = ServerTls::load(write(folder.path())).expect("they can be used");
        let first = current(&tls);
        tls.look(&mut None);
        assert!(Arc::ptr_eq(&first, &current(&tls)), "nothing has changed");
        let files = write(folder.path());
        tls.look(&mut None);
        let second = current(&tls);
        assert!(!Arc::ptr_eq(&first, &second), "they are new");

        fs::write(&files.key, KeyPair::generate().expect("a key").serialize_pem()).expect("written");
        tls.look(&mut None);
        assert!(Arc::ptr_eq(&second, &current(&tls)), "another key is not this certificate's");
        assert!(matches!(ServerTls::load(files.clone()), Err(TlsError::KeyMismatch { .. })));
        // What cannot be read now is tried again, whether it changes or not.
        let right = write(folder.path());
        let aside = folder.path().join("aside");
        fs::rename(&right.key, &aside).expect("it is there");
        tls.look(&mut None);
        assert!(Arc::ptr_eq(&second, &current(&tls)), "there is no key");
        fs::rename(&aside, &right.key).expect("it is there");
        tls.look(&mut None);
        let second = current(&tls);
        let open = write(folder.path());
        fs::set_permissions(&open.key, fs::Permissions::from_mode(0o644)).expect("its rights");
        tls.look(&mut None);
        assert!(Arc::ptr_eq(&second, &current(&tls)), "others may use this key");
        assert!(matches!(ServerTls::load(open), Err(TlsError::File { why, .. }) if why.contains("chmod 600")));
    }
}
