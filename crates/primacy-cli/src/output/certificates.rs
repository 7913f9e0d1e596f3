//! What `primacy peer certs` and `revoke` print with `--json`.

use serde::Serialize;

/// `primacy peer certs --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Certificates {
    pub(crate) schema: u32,
    pub(crate) folder: String,
    pub(crate) days: u32,
    pub(crate) authority: Pair,
    pub(crate) made: Vec<Pair>,
}

/// A certificate and its key.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// `primacy peer revoke --json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Revocation {
    pub(crate) schema: u32,
    pub(crate) list: String,
    pub(crate) total: usize,
    pub(crate) revoked: Vec<RevokedCertificate>,
}

/// A certificate that nobody takes any more.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RevokedCertificate {
    pub(crate) given: String,
    pub(crate) serial: String,
    pub(crate) is_new: bool,
}
