//! TLS for clients, from the files that the settings name.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::settings::Tls;

/// Why clients cannot be served with TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or is not what it should be.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The files do not go together.
    #[error("the certificate in {} cannot be used: {why}", certificate.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// Reads the files. They are read once: new ones count from the next start on.
pub(super) fn acceptor(tls: &Tls) -> Result<TlsAcceptor, TlsError> {
    let unusable = |why: String| TlsError::Unusable { certificate: tls.certificate.clone(), why };
    let certificates = certificates(&tls.certificate)?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| file(&tls.key, &error))?;
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_safe_default_protocol_versions().map_err(|error| unusable(error.to_string()))?;
    let config = match &tls.clients {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let refused = |why: String| TlsError::File { path: authority.clone(), why };
            let mut roots = RootCertStore::empty();
            for certificate in self::certificates(authority)? {
                roots.add(certificate).map_err(|error| refused(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(verifier.build().map_err(|error| refused(error.to_string()))?)
        }
    };
    let config = config.with_single_cert(certificates, key).map_err(|error| unusable(error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| file(path, &error))?;
    if certificates.is_empty() { Err(file(path, &pem::Error::NoItemsFound)) } else { Ok(certificates) }
}

fn file(path: &Path, error: &pem::Error) -> TlsError {
    let why = match error {
        pem::Error::Io(error) if error.kind() == io::ErrorKind::NotFound => "there is no such file".into(),
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "it has no certificate or key in PEM".into(),
        other => format!("it is no PEM: {other}"),
    };
    TlsError::File { path: path.into(), why }
}
