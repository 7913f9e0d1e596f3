//! Encrypted connections to a server that proves who it is.

#[cfg(not(feature = "postgres-tls"))]
pub(super) use absent::Authorities;
#[cfg(feature = "postgres-tls")]
pub(super) use present::Authorities;

#[cfg(feature = "postgres-tls")]
mod present {
    use std::path::Path;
    use std::sync::Arc;

    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ClientConfig, RootCertStore};
    use tokio_postgres_rustls::MakeRustlsConnect;

    use super::super::url::Tls;

    /// Whom to trust, and who we are. The files are read for each connection, since certificates are renewed.
    pub(in super::super) struct Authorities;

    impl Authorities {
        pub(in super::super) fn connector(tls: &Tls) -> Result<MakeRustlsConnect, String> {
            let mut roots = RootCertStore::empty();
            for certificate in trusted(tls.root_certificate.as_deref())? {
                // The system may keep some that this library does not understand.
                let added = roots.add(certificate);
                if let (Err(error), Some(file)) = (added, &tls.root_certificate) {
                    return Err(format!("sslrootcert {}: {error}", file.display()));
                }
            }
            if roots.is_empty() {
                return Err("no certificate authority is known to this system; name one with sslrootcert=FILE".into());
            }
            // Named, since another crate of the program may have installed none, or another.
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .map_err(|error| error.to_string())?
                .with_root_certificates(roots);
            let config = match &tls.identity {
                None => builder.with_no_client_auth(),
                Some((certificate, key)) => {
                    let chain = certificates(certificate, "sslcert")?;
                    let key = PrivateKeyDer::from_pem_file(key)
                        .map_err(|error| format!("sslkey {}: {error}", key.display()))?;
                    builder.with_client_auth_cert(chain, key).map_err(|error| format!("sslcert and sslkey: {error}"))?
                }
            };
            Ok(MakeRustlsConnect::new(config))
        }
    }

    fn trusted(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, String> {
        match file {
            Some(file) => certificates(file, "sslrootcert"),
            None => Ok(rustls_native_certs::load_native_certs().certs),
        }
    }

    fn certificates(file: &Path, option: &str) -> Result<Vec<CertificateDer<'static>>, String> {
        let refuse = |why: &dyn std::fmt::Display| format!("{option} {}: {why}", file.display());
        let read = CertificateDer::pem_file_iter(file).map_err(|error| refuse(&error))?;
        let read = read.collect::<Result<Vec<_>, _>>().map_err(|error| refuse(&error))?;
        if read.is_empty() { Err(refuse(&"there is no certificate in it")) } else { Ok(read) }
    }
}

#[cfg(not(feature = "postgres-tls"))]
mod absent {
    use tokio_postgres::NoTls;

    use super::super::url::Tls;

    /// Nobody is trusted.
    pub(in super::super) struct Authorities;

    impl Authorities {
        pub(in super::super) fn connector(_: &Tls) -> Result<NoTls, String> {
            Err("this build of primacy has no TLS".into())
        }
    }
}
