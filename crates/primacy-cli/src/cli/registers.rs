//! The options of `run` for the `registers` protocol.

use std::time::Duration;

use clap::{Args, ValueEnum};
use primacy::{Rounds, RoundsSettings};

use super::duration;
use crate::failure::Failure;

/// The round time that is used where none is chosen.
const DEFAULT_ROUND: Duration = Duration::from_secs(2);

/// By which protocol a candidate takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProtocolName {
    /// Candidates wait in line, and know of nobody but the leader
    Lease,
    /// All know who is alive; the oldest or the best leads; rounds last as long as the slowest needs
    Registers,
}

/// What only the `registers` protocol understands.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options for --protocol registers")]
pub(crate) struct RegistersArgs {
    /// How long a round lasts at first, and at least: 50ms to 1h. A silent loss is found after about --missed rounds; while
    /// members are late, rounds and with them that time grow, up to --round-most [default: 2s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true, hide_short_help = true)]
    round: Option<Duration>,
    /// How many rounds one may miss before it counts as dead: 2 to 100 [default: 2]
    #[arg(long, value_name = "N", allow_hyphen_values = true, hide_short_help = true)]
    missed: Option<u32>,
    /// How long a round may become when members are late: --missed of them are then the lease, and the longest wait for the
    /// next leader. A smaller limit finds losses sooner under load, and evicts the slow instead [default: ten times --round]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true, hide_short_help = true)]
    round_most: Option<Duration>,
}

impl RegistersArgs {
    /// The first of these options that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.round.is_some(), "--round"),
            (self.missed.is_some(), "--missed"),
            (self.round_most.is_some(), "--round-most"),
        ];
        given.into_iter().find_map(|(given, option)| given.then_some(option))
    }

    /// How long rounds last.
    pub(crate) fn rounds(&self) -> Result<Rounds, Failure> {
        let settings = RoundsSettings::new(self.round.unwrap_or(DEFAULT_ROUND));
        let missed = self.missed.unwrap_or(settings.missed);
        Rounds::new(RoundsSettings { missed, most: self.round_most, ..settings })
            .map_err(|error| Failure::usage(error.to_string()))
    }
}
