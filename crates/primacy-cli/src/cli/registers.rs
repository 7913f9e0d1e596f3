//! The options of `run` for the `registers` protocol, and what they come to together.

use std::time::Duration;

use clap::{Args, ValueEnum};
use primacy::select::{Classes, FailBack, Names, Patterns, Rank, Scores, Selector};
use primacy::{Label, Rounds, RoundsSettings};

use super::duration;
use crate::output::failure::Failure;

/// The round time that is used where none is chosen.
const DEFAULT_ROUND: Duration = Duration::from_secs(2);

/// By which protocol a candidate takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProtocolName {
    /// Candidates wait in the order in which they came, and know of nobody but the leader
    Lease,
    /// All know who is alive; the oldest or the best leads; rounds last as long as the slowest needs
    Registers,
}

/// What only the `registers` protocol understands.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options for --protocol registers")]
pub(crate) struct RegistersArgs {
    /// How long a round lasts at first, and at least: 50ms to 1h [default: 2s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    round: Option<Duration>,
    /// How many rounds one may miss before it counts as dead: 2 to 100 [default: 2]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    missed: Option<u32>,
    /// How long a round may become when members are late [default: ten times --round]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    round_most: Option<Duration>,
    /// Who leads first, in this order: labels, or patterns such as 'web-*', with commas
    #[arg(long, value_name = "NAMES")]
    prefer: Option<Patterns>,
    /// Who never leads, in the same way
    #[arg(long, value_name = "NAMES")]
    never: Option<Patterns>,
    /// How good this candidate is: more is better; with commas several, the first counts most
    #[arg(long, value_name = "SCORES", allow_hyphen_values = true)]
    score: Option<Scores>,
    /// How far apart scores must be to count, for each of them: WIDTH or WIDTH:MARGIN [default: any difference counts]
    #[arg(long, value_name = "CLASSES", value_delimiter = ',', allow_hyphen_values = true)]
    score_class: Vec<Classes>,
    /// A command for sh whose first line of output is the score; while it fails, the last score stays
    #[arg(long, value_name = "CMD")]
    score_command: Option<String>,
    /// How often to run it, and for how long at most [default: as long as a round]
    #[arg(long, value_name = "DUR", value_parser = interval, allow_hyphen_values = true)]
    score_every: Option<Duration>,
    /// After how long a leader makes way for a better one that is well, or never [default: 30s with --prefer or a
    /// score, else never]
    #[arg(long, value_name = "DUR", value_parser = fail_back, allow_hyphen_values = true)]
    fail_back: Option<FailBack>,
}

/// How a candidate takes part by the `registers` protocol, checked.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    /// How long rounds last.
    pub(crate) rounds: Rounds,
    /// When a leader makes way.
    pub(crate) fail_back: FailBack,
    /// How it stands at first.
    pub(crate) rank: Option<Rank>,
    /// Where its score comes from, if it changes.
    pub(crate) scoring: Option<Scoring>,
}

/// A score that a command says again and again.
#[derive(Clone, Debug)]
pub(crate) struct Scoring {
    /// Makes ranks of it.
    pub(crate) selector: Selector,
    /// For `sh -c`.
    pub(crate) command: String,
    /// How often, and for how long at most.
    pub(crate) every: Duration,
}

impl RegistersArgs {
    /// The first of these options that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.round.is_some(), "--round"),
            (self.missed.is_some(), "--missed"),
            (self.round_most.is_some(), "--round-most"),
            (self.prefer.is_some(), "--prefer"),
            (self.never.is_some(), "--never"),
            (self.score.is_some(), "--score"),
            (!self.score_class.is_empty(), "--score-class"),
            (self.score_command.is_some(), "--score-command"),
            (self.score_every.is_some(), "--score-every"),
            (self.fail_back.is_some(), "--fail-back"),
        ];
        given.into_iter().find_map(|(given, option)| given.then_some(option))
    }

    /// All of it together, for the candidate with this label.
    pub(crate) fn check(&self, label: &Label) -> Result<Registers, Failure> {
        let settings = RoundsSettings::new(self.round.unwrap_or(DEFAULT_ROUND));
        let missed = self.missed.unwrap_or(settings.missed);
        let rounds = Rounds::new(RoundsSettings { missed, most: self.round_most, ..settings })
            .map_err(|error| Failure::usage(error.to_string()))?;
        let (prefer, never) = (self.prefer.clone().unwrap_or_default(), self.never.clone().unwrap_or_default());
        let names = Names::new(prefer, never).map_err(|error| Failure::usage(format!("--prefer, --never: {error}")))?;
        let scores = self.score.clone().unwrap_or_default();
        if self.score_every.is_some() && self.score_command.is_none() {
            return Err(Failure::usage("--score-every says how often to run a --score-command; give that, too"));
        }
        if !self.score_class.is_empty() && self.score.is_none() && self.score_command.is_none() {
            return Err(Failure::usage("--score-class is about scores; give --score or --score-command, too"));
        }
        let usual = match self.score_command {
            Some(_) => FailBack::After(FailBack::USUAL),
            None => FailBack::usual(&names, &scores),
        };
        let classes = |error: &dyn std::fmt::Display| Failure::usage(format!("--score, --score-class: {error}"));
        let mut selector = Selector::new(names, self.score_class.clone()).map_err(|error| classes(&error))?;
        let rank = selector.rank(label, &scores).map_err(|error| classes(&error))?;
        let every = self.score_every.unwrap_or(rounds.round());
        Ok(Registers {
            rounds,
            fail_back: self.fail_back.unwrap_or(usual),
            rank,
            scoring: self.score_command.clone().map(|command| Scoring { selector, command, every }),
        })
    }
}

fn fail_back(text: &str) -> Result<FailBack, String> {
    match text {
        "never" => Ok(FailBack::Never),
        text => duration::parse(text).map(FailBack::After).map_err(|error| format!("{error}; or never")),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let every = duration::parse(text)?;
    if (Duration::from_millis(50)..=Duration::from_secs(3_600)).contains(&every) {
        Ok(every)
    } else {
        Err("choose 50ms to 1h".to_owned())
    }
}
