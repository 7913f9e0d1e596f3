//! Makes the certificates of peers and their clients, for those who have no other way to, and revokes them.

mod revoke;

use std::io;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::ring;
use rustls::pki_types::UnixTime;

use self::revoke::Issued;
#[cfg(test)]
pub(crate) use self::revoke::revoke_at;
pub use self::revoke::{RevocationResult, RevokedCertificate, revoke};
use crate::peers::disk::{make_folder, replace};
use crate::peers::tls::{AUTHORITY, Identity, NAME_RULE, Revocations, TlsError, Trust, dns_name};

/// How long an authority lasts, and the most that a certificate of it may.
const DAYS_MAX: u32 = 7_300;
/// By how much the clock of a peer may be behind that of the machine that makes its certificate.
const HEAD_START: Duration = Duration::from_secs(3_600);

/// Why certificates could not be made. Files that were made before the error are whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertsError {
    /// No peer can have this name. Nothing was made.
    #[error("{name:?} cannot name a peer: {NAME_RULE}; `{AUTHORITY}` is the authority")]
    Name {
        /// The name.
        name: String,
    },
    /// It would last no day, or longer than its authority. Nothing was made.
    #[error("a certificate cannot last {days} days; choose 1 to {DAYS_MAX}")]
    Days {
        /// How long it was to last.
        days: u32,
    },
    /// The authority has a certificate but no key here, or the other way round.
    #[error(
        "{} is missing, though the authority's other file is there: put it there, or name a new folder", missing.display()
    )]
    HalfAuthority {
        /// The file that is not there.
        missing: PathBuf,
    },
    /// There is no authority in the folder, and so nothing that it could revoke.
    #[error("there is no authority in {}: name the folder that 'primacy peer certs' has filled, with 'ca.pem' and 'ca.key'", folder.display())]
    NoAuthority {
        /// The folder.
        folder: PathBuf,
    },
    /// No certificate of this name has been made here. Nothing was revoked.
    #[error("no certificate of '{name}' is known in {}: give its file, with a '/' in its path", folder.display())]
    Unknown {
        /// The name.
        name: String,
        /// The folder.
        folder: PathBuf,
    },
    /// It is no certificate or list of this authority. Nothing was revoked.
    #[error("{}: {why}", file.display())]
    Foreign {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The authority in the folder has not been made here, or its two files are not of one pair.
    #[error("{}: {why}; with an authority of your own, sign with its own tools", file.display())]
    Authority {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The authority's certificate cannot be read.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A file could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// A key or a certificate could not be made.
    #[error("a certificate could not be made: {0}")]
    Making(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The crate that makes them is not part of what this one exports.
fn unmade(error: rcgen::Error) -> CertsError {
    CertsError::Making(Box::new(error))
}

/// Makes a certificate and its key for each of these names, `NAME.pem` and `NAME.key`, in the place of those that are there.
/// They serve both ends of a connection, for this many days from now.
///
/// The authority that signs them is `ca.pem`, which everybody needs, and `ca.key`, which only this function needs. It is made
/// if there is none.
///
/// # Errors
/// If a name or the number of days does not fit, the authority's files do not, or one cannot be written.
pub fn make(folder: &Path, names: &[String], days: u32) -> Result<Vec<Identity>, CertsError> {
    // Certificates are valid by the calendar. Nothing of an election depends on it.
    make_at(folder, names, days, UnixTime::now())
}

pub(crate) fn make_at(folder: &Path, names: &[String], days: u32, now: UnixTime) -> Result<Vec<Identity>, CertsError> {
    if let Some(name) = names.iter().find(|name| *name == AUTHORITY || dns_name(name).is_none()) {
        return Err(CertsError::Name { name: name.clone() });
    }
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(CertsError::Days { days });
    }
    make_folder(folder).map_err(|source| CertsError::Io { path: folder.to_path_buf(), source })?;
    let mut issued = Issued::open(folder)?;
    let authority = authority(folder, now)?;
    names.iter().map(|name| sign(folder, slice::from_ref(name), (&authority, &mut issued), days, now)).collect()
}

/// One certificate for several names, as other authorities sign them. Its files have the first name.
#[cfg(test)]
pub(crate) fn make_one(folder: &Path, names: &[String], now: UnixTime) -> Result<Identity, CertsError> {
    let mut issued = Issued::open(folder)?;
    sign(folder, names, (&authority(folder, now)?, &mut issued), 30, now)
}

fn sign(
    folder: &Path,
    names: &[String],
    (authority, issued): (&Issuer<'_, KeyPair>, &mut Issued),
    days: u32,
    now: UnixTime,
) -> Result<Identity, CertsError> {
    let name = &names[0];
    let files = Identity::within(folder, name);
    let mut wanted = lasting(CertificateParams::new(names).map_err(unmade)?, name, days, now);
    wanted.is_ca = IsCa::ExplicitNoCa;
    wanted.use_authority_key_identifier_extension = true;
    wanted.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    wanted.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().map_err(unmade)?;
    let certificate = wanted.signed_by(&key, authority).map_err(unmade)?;

    let refused = |why: String| CertsError::Authority { file: files.authority.clone(), why };
    let trust = Trust::read(&files.authority, &Revocations::Without, false, &Arc::new(ring::default_provider()))?;
    if trust.believes(certificate.der(), now).is_err() {
        return Err(refused("it is not the certificate that was made here with the key beside it".into()));
    }
    issued.note(name, certificate.der())?;
    write(&files.key, &key.serialize_pem())?;
    write(&files.certificate, &certificate.pem())?;
    Ok(files)
}

/// Whether there is an authority in this folder, rather than nothing of one.
fn is_whole(folder: &Path) -> Result<bool, CertsError> {
    let Identity { key, authority, .. } = Identity::within(folder, AUTHORITY);
    match (authority.exists(), key.exists()) {
        (true, false) => Err(CertsError::HalfAuthority { missing: key }),
        (false, true) => Err(CertsError::HalfAuthority { missing: authority }),
        (is_there, _) => Ok(is_there),
    }
}

fn authority(folder: &Path, now: UnixTime) -> Result<Issuer<'static, KeyPair>, CertsError> {
    let Identity { key, authority, .. } = Identity::within(folder, AUTHORITY);
    let mut wanted = lasting(CertificateParams::default(), "primacy authority", DAYS_MAX, now);
    wanted.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    wanted.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let pair = match is_whole(folder)? {
        true => {
            let text = std::fs::read_to_string(&key);
            let text = text.map_err(|source| CertsError::Io { path: key.clone(), source })?;
            KeyPair::from_pem(&text).map_err(|error| CertsError::Authority { file: key, why: error.to_string() })?
        }
        false => {
            let pair = KeyPair::generate().map_err(unmade)?;
            write(&key, &pair.serialize_pem())?;
            write(&authority, &wanted.self_signed(&pair).map_err(unmade)?.pem())?;
            pair
        }
    };
    Ok(Issuer::new(wanted, pair))
}

fn lasting(mut wanted: CertificateParams, name: &str, days: u32, now: UnixTime) -> CertificateParams {
    let now = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(now.as_secs());
    wanted.not_before = now - HEAD_START;
    wanted.not_after = now + Duration::from_secs(u64::from(days) * 86_400);
    wanted.distinguished_name = DistinguishedName::new();
    wanted.distinguished_name.push(DnType::CommonName, name);
    wanted
}

fn write(file: &Path, text: &str) -> Result<(), CertsError> {
    replace(file, text.as_bytes()).map_err(|source| CertsError::Io { path: file.to_path_buf(), source })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use rustls::pki_types::CertificateRevocationListDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::peers::tls::Tls;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_made_can_be_used_and_only_its_owner_can_read_the_keys() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let made = make(folder.path(), &names(&["peer-1", "a.b.example", "web"]), 30).expect("all names fit");
        assert_eq!(made.len(), 3);
        for identity in made {
            Tls::load(&identity).expect("it fits together");
            for key in [identity.key, folder.path().join("ca.key")] {
                let mode = fs::metadata(&key).expect("it is there").permissions().mode();
                assert_eq!(mode & 0o777, 0o600, "{}", key.display());
            }
        }
    }

    #[test]
    fn an_authority_that_is_there_signs_again() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let one = make(folder.path(), &names(&["peer-1"]), 30).expect("it fits");
        let authority = fs::read(&one[0].authority).expect("it is there");
        let certificate = fs::read(&one[0].certificate).expect("it is there");
        make(folder.path(), &names(&["peer-1", "peer-2"]), 30).expect("the authority is reused");
        assert_eq!(fs::read(&one[0].authority).expect("it is there"), authority);
        assert_ne!(fs::read(&one[0].certificate).expect("it is there"), certificate, "renewed");
        Tls::load(&one[0]).expect("the new key belongs to it");
    }

    #[test]
    fn names_that_no_certificate_may_have_and_endless_ones_are_refused_before_anything_is_made() {
        let above = tempfile::tempdir().expect("a folder for the test");
        let folder = above.path().join("certs");
        let long = "x".repeat(64);
        for name in
            ["", "ca", "Peer", "a b", "a/b", "../a", "-a", "a-", ".a", "a.", "a..b", "10.0.0.1", "a_b", "é", &long]
        {
            let refused = make(&folder, &names(&["peer-1", name]), 30);
            assert!(matches!(refused, Err(CertsError::Name { .. })), "{name:?}: {refused:?}");
        }
        for days in [0, DAYS_MAX + 1, u32::MAX] {
            let refused = make(&folder, &names(&["peer-1"]), days);
            assert!(matches!(refused, Err(CertsError::Days { .. })), "{days}: {refused:?}");
        }
        assert!(!folder.exists());
    }

    #[test]
    fn an_authority_that_is_not_whole_signs_nothing() {
        let (one, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        make(one.path(), &names(&["peer-1"]), 30).expect("it fits");
        make(other.path(), &names(&["peer-1"]), 30).expect("it fits");
        fs::copy(other.path().join("ca.key"), one.path().join("ca.key")).expect("ours");
        let refused = make(one.path(), &names(&["peer-2"]), 30);
        assert!(matches!(refused, Err(CertsError::Authority { .. })), "{refused:?}");
        assert!(!one.path().join("peer-2.pem").exists());
        fs::write(one.path().join("ca.key"), "nothing").expect("ours");
        let refused = make(one.path(), &names(&["peer-2"]), 30);
        assert!(matches!(refused, Err(CertsError::Authority { .. })), "{refused:?}");
        fs::remove_file(one.path().join("ca.key")).expect("ours");
        let refused = make(one.path(), &names(&["peer-2"]), 30);
        assert!(matches!(refused, Err(CertsError::HalfAuthority { .. })), "{refused:?}");
    }

    /// The serial numbers on the list in this folder.
    fn listed(folder: &Path) -> usize {
        let list = fs::read(folder.join("ca.crl")).expect("it is there");
        let list = CertificateRevocationListDer::from_pem_slice(&list).expect("PEM");
        webpki::BorrowedCertRevocationList::from_der(&list).expect("a list").into_iter().count()
    }

    #[test]
    fn all_that_was_made_for_a_name_is_revoked_and_what_was_revoked_stays_so() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = |name: &str| folder.path().join(name);
        make(folder.path(), &names(&["a", "b", "c"]), 30).expect("it fits");
        // The one that was stolen is not in the folder any more.
        fs::copy(path("a.pem"), path("stolen.pem")).expect("ours");
        fs::copy(path("a.key"), path("stolen.key")).expect("ours");
        make(folder.path(), &names(&["a"]), 30).expect("it is renewed");
        let revoked = revoke(folder.path(), &names(&["a"])).expect("it was made here");
        assert_eq!((revoked.total, revoked.certificates.len(), listed(folder.path())), (2, 2, 2));
        assert!(revoked.certificates.iter().all(|certificate| certificate.is_new));
        for name in ["a", "stolen"] {
            let refused = Tls::load(&Identity::within(folder.path(), name));
            assert!(matches!(refused, Err(TlsError::Revoked { .. })), "{name}: {refused:?}");
        }
        make(folder.path(), &names(&["a"]), 30).expect("a new one");
        let file = path("c.pem").display().to_string();
        let revoked = revoke(folder.path(), &names(&[&file, &file])).expect("it is of this authority");
        assert_eq!((revoked.total, revoked.certificates.len(), listed(folder.path())), (3, 1, 3));
        let again = revoke(folder.path(), &names(&["c"])).expect("it was made here");
        assert!(again.total == 3 && !again.certificates[0].is_new, "{again:?}");
        for name in ["a", "b"] {
            Tls::load(&Identity::within(folder.path(), name)).expect("it is good");
        }
    }

    #[test]
    fn certificates_of_earlier_releases_are_revoked_too() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        make(folder.path(), &names(&["a"]), 30).expect("it fits");
        // They noted nothing, and a crash may have cut off a line.
        fs::write(folder.path().join("ca.issued"), "0a0").expect("ours");
        make(folder.path(), &names(&["b"]), 30).expect("it fits");
        let revoked = revoke(folder.path(), &names(&["a", "b"])).expect("its file is there");
        assert_eq!(revoked.total, 2);
    }

    #[test]
    fn what_cannot_be_revoked_is_refused_and_nothing_is() {
        let (folder, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let refused = revoke(folder.path(), &names(&["a"]));
        assert!(matches!(refused, Err(CertsError::NoAuthority { .. })), "{refused:?}");
        assert!(!folder.path().join("ca.key").exists(), "none is made");
        make(folder.path(), &names(&["a"]), 30).expect("it fits");
        make(other.path(), &names(&["x"]), 30).expect("it fits");
        for wrong in ["b", "ca", "A"] {
            let refused = revoke(folder.path(), &names(&["a", wrong]));
            assert!(matches!(refused, Err(CertsError::Unknown { .. } | CertsError::Name { .. })), "{refused:?}");
        }
        for wrong in [other.path().join("x.pem"), folder.path().join("none.pem"), folder.path().join("a.key")] {
            let refused = revoke(folder.path(), &names(&["a", &wrong.display().to_string()]));
            assert!(matches!(refused, Err(CertsError::Foreign { .. })), "{refused:?}");
        }
        assert!(!folder.path().join("ca.crl").exists());
        fs::write(folder.path().join("ca.crl"), "nothing").expect("ours");
        let refused = revoke(folder.path(), &names(&["a"]));
        assert!(matches!(refused, Err(CertsError::Foreign { .. })), "{refused:?}");
        assert_eq!(fs::read(folder.path().join("ca.crl")).expect("it is there"), b"nothing");
    }
}
