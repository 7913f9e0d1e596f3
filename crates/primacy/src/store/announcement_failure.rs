//! How each store tells that a waiting candidate could not be announced: it still looks and may lead, but nobody sees it wait.

use tracing::{debug, warn};

use super::StoreError;
use crate::ElectionName;

/// Whether a failure has been told of since the last announcement that succeeded.
#[derive(Debug, Default)]
pub(super) struct AnnouncementFailure {
    is_told: bool,
}

impl AnnouncementFailure {
    /// An announcement succeeded.
    pub(super) fn end(&mut self) {
        self.is_told = false;
    }

    /// An announcement failed. What passes by itself, such as a lock of another, is told to those who debug only.
    pub(super) fn tell(&mut self, election: &ElectionName, error: &StoreError) {
        if !self.is_told && matches!(error, StoreError::Unusable(_)) {
            self.is_told = true;
            warn!(%election, %error, "the candidate could not be announced, so `status` does not show it");
        } else {
            debug!(%election, %error, "the candidate could not be announced");
        }
    }
}
