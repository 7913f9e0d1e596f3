//! Reads certificates anew when their files change, and says before they expire that they will.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{PoisonError, Weak};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use tracing::{error, info, warn};

use super::{Identity, NEW, Shared, Tls, TlsConfigs, TlsError, span};
use crate::{Instant, clock};

/// How often the same is told again while nothing changes.
const AGAIN: Duration = Duration::from_secs(12 * 3_600);

/// A certificate that expires within this time is an error, or within a quarter of its life if that is less.
const SOON_MOST: u64 = 3 * 86_400;

/// What tells one version of a file from another: a change of rights counts too.
pub(super) type FileVersion = Option<(u64, u64, u64, i64, i64)>;

/// That of this file; `None` if it is not there.
pub(super) fn file_version(file: &Path) -> FileVersion {
    let version = |file: Metadata| (file.dev(), file.ino(), file.size(), file.ctime(), file.ctime_nsec());
    std::fs::metadata(file).ok().map(version)
}

/// Those of all files that are read.
pub(super) fn file_versions(identity: &Identity) -> [FileVersion; 4] {
    let files =
        [Some(&*identity.certificate), Some(&*identity.key), Some(&*identity.authority), identity.revocations.file()];
    files.map(|file| file_version(file?))
}

/// How the files stand that prove who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Health {
    /// They are good for this time.
    Good(Duration),
    /// A list of revocations is out of date.
    ListIsOld(String),
    /// Our certificate expires before long.
    EndsSoon(String),
    /// It has expired.
    Ended(String),
}

impl TlsConfigs {
    pub(super) fn health(&self, identity: &Identity, now: UnixTime) -> Health {
        let rest = self.until.as_secs().saturating_sub(now.as_secs());
        let life = self.until.as_secs().saturating_sub(self.from.as_secs());
        let file = identity.certificate.display();
        let then = "nobody takes it then, and what is led with it is lost";
        if now > self.until {
            return Health::Ended(format!("{file} has expired: {NEW}"));
        }
        if rest <= SOON_MOST.min(life / 4) {
            return Health::EndsSoon(format!("{file} expires in {}: {then}; {NEW}", span(now, self.until)));
        }
        if let Some(list) = identity.revocations.file().filter(|_| self.trust.is_list_old(&self.own.cert, now)) {
            let list = list.display();
            return Health::ListIsOld(format!(
                "{list} should have been replaced by now: whom it names stays out, but nobody who was revoked since. Bring \
                 a new one"
            ));
        }
        Health::Good(Duration::from_secs(rest))
    }
}

/// Looks after the files until nobody uses them any more. In a thread of its own: a file system that hangs must not delay a
/// lease.
pub(super) fn keep(shared: &Weak<Shared>, gone: &Receiver<()>) {
    let (mut complaint, mut told) = (None, None);
    while let Some(shared) = shared.upgrade() {
        let tls = Tls(shared);
        look(&tls, &mut complaint);
        warn_of_end(&tls, &mut told);
        let interval = tls.0.interval;
        drop(tls);
        if gone.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Reads the files again if one of them has changed.
pub(super) fn look(tls: &Tls, complaint: &mut Option<String>) {
    let known = *tls.0.file_versions.lock().unwrap_or_else(PoisonError::into_inner);
    if known == Some(file_versions(&tls.0.identity)) {
        return;
    }
    match tls.reload() {
        Ok(()) => {
            info!("the certificates have changed and were read again");
            *complaint = None;
        }
        Err(error) => {
            let text = error.to_string();
            if complaint.as_ref() != Some(&text) {
                match error {
                    TlsError::Revoked { .. } => error!("{text}"),
                    _ => warn!("the certificates stay as they were: {text}"),
                }
            }
            *complaint = Some(text);
        }
    }
}

fn warn_of_end(tls: &Tls, told: &mut Option<(Health, Instant)>) {
    let health = tls.health();
    let is_same = |known: &Health| std::mem::discriminant(known) == std::mem::discriminant(&health);
    let now = clock::now();
    if told.as_ref().is_some_and(|(known, at)| is_same(known) && now.since(*at) < AGAIN) {
        return;
    }
    match &health {
        Health::Good(_) => {}
        Health::ListIsOld(text) => warn!("{text}"),
        Health::EndsSoon(text) | Health::Ended(text) => error!("{text}"),
    }
    *told = Some((health, now));
}
