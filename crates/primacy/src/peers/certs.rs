//! Makes the certificates of peers and their clients, for those who have no other way to.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::ring;
use rustls::pki_types::UnixTime;

use super::file::{make_folder, replace};
use super::tls::{Identity, NAME_RULE, TlsError, dns_name, roots, verifier};

/// What the authority's files are called, so that no peer can be.
pub(super) const AUTHORITY: &str = "ca";
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
    Making(#[from] rcgen::Error),
}

/// Makes a certificate and its key for each of these names, `NAME.pem` and `NAME.key`, in the place of those that are there.
/// They serve both ends of a connection, for so many days from now.
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

pub(super) fn make_at(folder: &Path, names: &[String], days: u32, now: UnixTime) -> Result<Vec<Identity>, CertsError> {
    if let Some(name) = names.iter().find(|name| *name == AUTHORITY || dns_name(name).is_none()) {
        return Err(CertsError::Name { name: name.clone() });
    }
    if !(1..=DAYS_MAX).contains(&days) {
        return Err(CertsError::Days { days });
    }
    make_folder(folder).map_err(|source| CertsError::Io { path: folder.to_path_buf(), source })?;
    let authority = authority(folder, now)?;
    names.iter().map(|name| sign(folder, name, &authority, days, now)).collect()
}

fn sign(
    folder: &Path,
    name: &str,
    authority: &Issuer<'_, KeyPair>,
    days: u32,
    now: UnixTime,
) -> Result<Identity, CertsError> {
    let files = Identity::within(folder, name);
    let mut wanted = lasting(CertificateParams::new([name.to_string()])?, name, days, now);
    wanted.is_ca = IsCa::ExplicitNoCa;
    wanted.use_authority_key_identifier_extension = true;
    wanted.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    wanted.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate()?;
    let certificate = wanted.signed_by(&key, authority)?;

    let refused = |why: String| CertsError::Authority { file: files.authority.clone(), why };
    let verifier =
        verifier(Arc::new(roots(&files.authority)?), &Arc::new(ring::default_provider())).map_err(refused)?;
    if verifier.verify_client_cert(certificate.der(), &[], now).is_err() {
        return Err(refused("it is not the certificate that was made here with the key beside it".into()));
    }
    write(&files.key, &key.serialize_pem())?;
    write(&files.certificate, &certificate.pem())?;
    Ok(files)
}

fn authority(folder: &Path, now: UnixTime) -> Result<Issuer<'static, KeyPair>, CertsError> {
    let Identity { key, authority, .. } = Identity::within(folder, AUTHORITY);
    let mut wanted = lasting(CertificateParams::default(), "primacy authority", DAYS_MAX, now);
    wanted.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    wanted.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let pair = match (authority.exists(), key.exists()) {
        (true, false) => return Err(CertsError::HalfAuthority { missing: key }),
        (false, true) => return Err(CertsError::HalfAuthority { missing: authority }),
        (true, true) => {
            let text = std::fs::read_to_string(&key);
            let text = text.map_err(|source| CertsError::Io { path: key.clone(), source })?;
            KeyPair::from_pem(&text).map_err(|error| CertsError::Authority { file: key, why: error.to_string() })?
        }
        (false, false) => {
            let pair = KeyPair::generate()?;
            write(&key, &pair.serialize_pem())?;
            write(&authority, &wanted.self_signed(&pair)?.pem())?;
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

    use super::super::tls::Tls;
    use super::*;

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
}
