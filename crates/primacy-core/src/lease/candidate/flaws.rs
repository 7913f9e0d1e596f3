//! Planted bugs, for proving that the checkers find them.

#[cfg(feature = "flaws")]
use super::super::{Effect, Record, Version};
use super::{CallError, Candidate, Context, InFlight};
#[cfg(feature = "flaws")]
use super::{Kind, State};

/// Known bugs of other elections, to be planted into this one. Each must be found by the simulator or the model check.
#[cfg(feature = "flaws")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flaw {
    /// Counts the lease from the reply, not from the request (R1; HAZARDS 1).
    LeaseFromReply,
    /// Believes for the whole lease and for the stretch too: a margin that is too short.
    NoMargin,
    /// Takes an unknown outcome for success (R7; HAZARDS 33).
    UnknownIsSuccess,
    /// Counts looks instead of time, so that immediate retries age the holder (R3; HAZARDS 7, 8).
    RetryAges,
    /// Releases before the work has stopped (R9; HAZARDS 34).
    ReleaseBeforeDrained,
    /// Takes over by the age that the store's clock tells (R4; HAZARDS 4, 13).
    WallClockExpiry,
    /// Waits for its own lease length instead of the holder's (R2; HAZARDS 9).
    OwnLeaseLength,
    /// An error extends the leadership (R7; HAZARDS 21).
    ErrorExtends,
    /// Believes a store that went back in time (R6).
    BelievesRegress,
    /// Leads again although its work of the last leadership still runs.
    SkipsDrained,
    /// Asks for a shorter lease while it still believes in a longer one.
    ShortensEarly,
    /// Looks or renews at each hint, however many come.
    HeedsEveryHint,
}

/// The switches of the planted bugs; without the feature they are constants.
impl Candidate {
    #[cfg(feature = "flaws")]
    pub(super) fn failed_with_flaw(&mut self, in_flight: &InFlight, error: CallError, cx: &mut Context<'_>) {
        match (self.config.flaw, in_flight.kind) {
            (Some(Flaw::ErrorExtends), Kind::Renew) => {
                if let State::Leading(tenure) = &mut self.state {
                    tenure.until = tenure.until + self.config.timing.renew_every();
                    cx.effects.push(Effect::Extend { until: tenure.until, version: tenure.version });
                }
            }
            (Some(Flaw::UnknownIsSuccess), Kind::Acquire) if error == CallError::Unknown => {
                let Some(record) = self.seen.as_ref().and_then(|seen| seen.sighting.record.clone()) else { return };
                let version = Version { token: record.version.token.next(0), beat: 1 };
                self.acquired(in_flight.sent_at, Record { version, ..record }, cx);
            }
            _ => {}
        }
    }

    #[cfg(not(feature = "flaws"))]
    pub(super) fn failed_with_flaw(&self, _: &InFlight, _: CallError, _: &Context<'_>) {}

    pub(super) fn flawed_lease_from_reply(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.config.flaw == Some(Flaw::LeaseFromReply);
        #[cfg(not(feature = "flaws"))]
        false
    }

    pub(super) fn flawed_shortens_early(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.config.flaw == Some(Flaw::ShortensEarly);
        #[cfg(not(feature = "flaws"))]
        false
    }

    pub(super) fn flawed_believes_regress(&self) -> bool {
        #[cfg(feature = "flaws")]
        return self.config.flaw == Some(Flaw::BelievesRegress);
        #[cfg(not(feature = "flaws"))]
        false
    }
}
