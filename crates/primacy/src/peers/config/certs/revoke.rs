//! Revokes certificates: a list, signed by their authority, of those that nobody shall believe any more.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, UnixTime};
use rustls::{CertificateError, Error};

use super::{CertsError, DAYS_MAX, authority, is_whole, unmade, write};
use crate::peers::tls::{AUTHORITY, Identity, Revocations, Trust, dns_name};

/// The certificates that were made in a folder: a line for each, its serial number and its name.
const ISSUED: &str = "issued";

/// What [`revoke`] has done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RevocationResult {
    /// The list that everybody needs.
    pub list: PathBuf,
    /// What was asked for.
    pub certificates: Vec<RevokedCertificate>,
    /// How many certificates are on the list, these among them.
    pub total: usize,
}

/// A certificate on the list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RevokedCertificate {
    /// The name or the file that was given.
    pub given: String,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
    /// Whether it is on the list since now.
    pub is_new: bool,
}

/// A serial number without zeros in front.
type Serial = Vec<u8>;

fn serial(bytes: &[u8]) -> Serial {
    bytes.iter().copied().skip_while(|byte| *byte == 0).collect()
}

fn hex(serial: &[u8]) -> String {
    serial.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The serial number of a certificate.
fn serial_of(certificate: &CertificateDer<'_>) -> Option<Serial> {
    Some(serial(webpki::EndEntityCert::try_from(certificate).ok()?.serial()))
}

/// The folder's own notes, which one process at a time changes.
pub(crate) struct Issued {
    path: PathBuf,
    file: File,
    text: String,
}

impl Issued {
    /// Waits until no other process changes them.
    pub(crate) fn open(folder: &Path) -> Result<Self, CertsError> {
        let path = folder.join(format!("{AUTHORITY}.{ISSUED}"));
        let open = || {
            let mut options = OpenOptions::new();
            let mut file = options.read(true).append(true).create(true).mode(0o600).open(&path)?;
            file.lock()?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok((file, text))
        };
        let (file, text) = open().map_err(|source: io::Error| CertsError::Io { path: path.clone(), source })?;
        Ok(Self { path, file, text })
    }

    /// Notes a certificate, before anybody has it.
    pub(crate) fn note(&mut self, name: &str, certificate: &CertificateDer<'_>) -> Result<(), CertsError> {
        let serial = serial_of(certificate).unwrap_or_default();
        // The last line may have been cut off.
        let begin = if self.text.is_empty() || self.text.ends_with('\n') { "" } else { "\n" };
        let line = format!("{begin}{} {name}\n", hex(&serial));
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_all());
        written.map_err(|source| CertsError::Io { path: self.path.clone(), source })?;
        self.text += &line;
        Ok(())
    }

    /// All certificates that were made for this name.
    fn of(&self, name: &str) -> Vec<Serial> {
        let lines = self.text.lines().filter_map(|line| line.split_once(' '));
        let own = lines.filter(|(_, other)| *other == name);
        let bytes = |hex: &str| {
            let digits =
                hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
            digits.collect::<Option<Vec<u8>>>()
        };
        own.filter_map(|(hex, _)| bytes(hex)).map(|bytes| serial(&bytes)).collect()
    }
}

/// Revokes certificates of the authority in this folder: `ca.crl` names them, beside those that it named before.
///
/// Each is given by its name, and then all are meant that were made here for it until now, or by a file, which has a `/` in its
/// path. Done twice is done once.
///
/// # Errors
/// If no such certificate is known here, it is of another authority, or a file cannot be read or written. Nothing is revoked
/// then.
pub fn revoke(folder: &Path, certificates: &[String]) -> Result<RevocationResult, CertsError> {
    // Certificates are valid by the calendar. Nothing of an election depends on it.
    revoke_at(folder, certificates, UnixTime::now())
}

pub(crate) fn revoke_at(folder: &Path, certificates: &[String], now: UnixTime) -> Result<RevocationResult, CertsError> {
    if !is_whole(folder)? {
        return Err(CertsError::NoAuthority { folder: folder.to_path_buf() });
    }
    let issued = Issued::open(folder)?;
    let authority = authority(folder, now)?;
    let file = Identity::within(folder, AUTHORITY).authority;
    let trust = Trust::read(&file, &Revocations::Without, false, &Arc::new(ring::default_provider()))?;
    let list = folder.join(format!("{AUTHORITY}.crl"));
    let mut known = read(&list)?;
    let mut done: Vec<RevokedCertificate> = Vec::new();
    for given in certificates {
        for serial in meant(folder, given, &issued, &trust, now)? {
            let is_new = !known.iter().any(|(other, _)| *other == serial);
            if is_new {
                known.push((serial.clone(), now));
            }
            let serial = hex(&serial);
            if !done.iter().any(|done| done.serial == serial) {
                done.push(RevokedCertificate { given: given.clone(), serial, is_new });
            }
        }
    }
    let date = |at: UnixTime| rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(at.as_secs());
    let revoked = |(serial, at): &(Serial, UnixTime)| RevokedCertParams {
        serial_number: SerialNumber::from_slice(serial),
        revocation_time: date(*at),
        reason_code: None,
        invalidity_date: None,
    };
    let wanted = CertificateRevocationListParams {
        this_update: date(now),
        // It is replaced when more is revoked, and not by a date.
        next_update: date(now) + Duration::from_secs(u64::from(DAYS_MAX) * 86_400),
        crl_number: SerialNumber::from(now.as_secs()),
        issuing_distribution_point: None,
        revoked_certs: known.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    write(&list, &wanted.signed_by(&authority).and_then(|list| list.pem()).map_err(unmade)?)?;
    Ok(RevocationResult { list, certificates: done, total: known.len() })
}

/// The serial numbers of the certificates that are meant.
fn meant(folder: &Path, given: &str, issued: &Issued, trust: &Trust, now: UnixTime) -> Result<Vec<Serial>, CertsError> {
    let is_file = given.contains('/');
    if !is_file && (given == AUTHORITY || dns_name(given).is_none()) {
        return Err(CertsError::Name { name: given.to_owned() });
    }
    let mut all = if is_file { Vec::new() } else { issued.of(given) };
    let file = if is_file { PathBuf::from(given) } else { Identity::within(folder, given).certificate };
    // One that an earlier release has made stands in no notes.
    if is_file || file.exists() {
        let refused = |why: String| CertsError::Foreign { file: file.clone(), why };
        let certificate = CertificateDer::from_pem_file(&file);
        let certificate =
            certificate.map_err(|error| refused(format!("no certificate can be read from it: {error}")))?;
        let is_ours = match trust.believes(&certificate, now) {
            Ok(()) => true,
            Err(Error::InvalidCertificate(error)) => {
                matches!(error, CertificateError::ExpiredContext { .. } | CertificateError::NotValidYetContext { .. })
            }
            Err(_) => false,
        };
        let serial = serial_of(&certificate).filter(|_| is_ours);
        let serial =
            serial.ok_or_else(|| refused(format!("the authority in {} has not signed it", folder.display())))?;
        if !all.contains(&serial) {
            all.push(serial);
        }
    }
    if all.is_empty() {
        Err(CertsError::Unknown { name: given.to_owned(), folder: folder.to_path_buf() })
    } else {
        Ok(all)
    }
}

/// What a list that is there names, and since when.
fn read(list: &Path) -> Result<Vec<(Serial, UnixTime)>, CertsError> {
    if !list.exists() {
        return Ok(Vec::new());
    }
    let refused = |why: String| CertsError::Foreign {
        file: list.to_path_buf(),
        why: format!("{why}; move it away if it is none of this authority"),
    };
    let der = CertificateRevocationListDer::from_pem_file(list);
    let der = der.map_err(|error| refused(format!("no list of revoked certificates can be read from it: {error}")))?;
    let parsed = webpki::BorrowedCertRevocationList::from_der(&der).map_err(|error| refused(error.to_string()))?;
    let entries = parsed.into_iter().map(|entry| {
        let entry = entry.map_err(|error| refused(error.to_string()))?;
        Ok((serial(entry.serial_number), entry.revocation_date))
    });
    entries.collect()
}
