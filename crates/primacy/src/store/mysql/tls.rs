//! TLS to the server: always verified, by the system's authorities or by those in a file.

use std::path::{Path, PathBuf};

use mysql_async::{ClientIdentity, SslOpts};

use super::super::StoreError;

/// With these authorities, or those of the system, and this certificate and key of the client's own. Read anew for each
/// connection, so that certificates that are replaced count from the next one.
pub(super) fn options(root: Option<&Path>, identity: Option<&(PathBuf, PathBuf)>) -> Result<SslOpts, StoreError> {
    // A program may have chosen another provider; then that one counts. Without any choice the driver would panic where
    // several are built in.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let _ = rustls::crypto::ring::default_provider().install_default(); // somebody else was faster
    }
    let roots = match root {
        Some(path) => vec![file(path)?.into()],
        None => {
            let found = rustls_native_certs::load_native_certs();
            if found.certs.is_empty() {
                return Err(StoreError::Unusable(
                    "this system has no certificate authorities; install ca-certificates, or name yours with \
                     sslrootcert=FILE"
                        .into(),
                ));
            }
            found.certs.iter().map(|certificate| certificate.to_vec().into()).collect()
        }
    };
    let identity = match identity {
        Some((certificate, key)) => Some(ClientIdentity::new(file(certificate)?.into(), file(key)?.into())),
        None => None,
    };
    let options = SslOpts::default().with_disable_built_in_roots(true).with_root_certs(roots);
    Ok(options.with_client_identity(identity))
}

fn file(path: &Path) -> Result<Vec<u8>, StoreError> {
    std::fs::read(path).map_err(|error| {
        StoreError::Unusable(format!("{} cannot be read: {error}", primacy_core::ids::escape(&path.to_string_lossy())))
    })
}
