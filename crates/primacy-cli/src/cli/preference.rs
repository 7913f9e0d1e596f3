//! The options of `run` about who leads first, and what they come to together.

use std::time::Duration;

use clap::Args;
use primacy::select::{Classes, FailBack, Metric, Names, Patterns, Rank, Scores, Selector, Turn};
use primacy::{Label, MeasuredPreference, MeasuredPreferenceError};

use super::duration;
use crate::failure::Failure;

/// Who leads first. A preference decides who asks first, and never who leads.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options about who leads first")]
pub(crate) struct PreferenceArgs {
    /// Who leads first: labels, or patterns such as 'web-*'
    ///
    /// In this order, separated by commas.
    #[arg(long, value_name = "NAMES")]
    prefer: Option<Patterns>,
    /// Who never leads, in the same way
    #[arg(long, value_name = "NAMES", hide_short_help = true)]
    never: Option<Patterns>,
    /// How good this candidate is: more is better
    ///
    /// Several are separated by commas, and the first counts most.
    #[arg(long, value_name = "SCORES", allow_hyphen_values = true)]
    score: Option<Scores>,
    /// How far apart scores must be to count, for each of them: WIDTH or WIDTH:MARGIN; measured latencies are scores in
    /// microseconds [default: any difference counts; 2000:2000 for measured latencies]
    #[arg(long, value_name = "CLASSES", value_delimiter = ',', allow_hyphen_values = true, hide_short_help = true)]
    score_class: Vec<Classes>,
    /// A command for sh whose first line of output is the score
    ///
    /// While it fails, the last score stays.
    #[arg(long, value_name = "CMD")]
    score_command: Option<String>,
    /// Measure the score, for --store peers://...: consensus, latency, worst-case or request; with commas several, the first
    /// counts most
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["score", "score_command"], hide_short_help = true)]
    score_oracle: Vec<Metric>,
    /// How often to run the command, and for how long at most, or to measure [default: a third of the lease, or a round; to
    /// measure 1s]
    #[arg(long, value_name = "DUR", value_parser = interval, allow_hyphen_values = true, hide_short_help = true)]
    score_every: Option<Duration>,
    /// After how long a leader makes way for a better one that is well, or never [default: 30s with --prefer or a
    /// score, else never]
    #[arg(long, value_name = "DUR", value_parser = fail_back, allow_hyphen_values = true, hide_short_help = true)]
    fail_back: Option<FailBack>,
    /// Who is first among equals: arrival, identity, ring (the next after the last leader), roulette or roulette:WEIGHT (by
    /// a draw) [default: arrival]
    #[arg(long, value_name = "ORDER", hide_short_help = true)]
    turn: Option<Turn>,
}

/// What is preferred about a candidate, checked.
#[derive(Clone, Debug)]
pub(crate) struct Preference {
    /// How it stands at first; `None`: it never leads.
    pub(crate) rank: Option<Rank>,
    /// When a leader makes way.
    pub(crate) fail_back: FailBack,
    /// Who is first among equals, if that was chosen.
    pub(crate) turn: Option<Turn>,
    /// Where its score comes from, if it changes.
    pub(crate) scoring: Option<Scoring>,
    /// By what it measures, if it stands by that.
    pub(crate) measured: Option<MeasuredPreference>,
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

impl PreferenceArgs {
    /// The first of these options that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.prefer.is_some(), "--prefer"),
            (self.never.is_some(), "--never"),
            (self.score.is_some(), "--score"),
            (!self.score_class.is_empty(), "--score-class"),
            (self.score_command.is_some(), "--score-command"),
            (!self.score_oracle.is_empty(), "--score-oracle"),
            (self.score_every.is_some(), "--score-every"),
            (self.fail_back.is_some(), "--fail-back"),
            (self.turn.is_some(), "--turn"),
        ];
        given.into_iter().find_map(|(given, option)| given.then_some(option))
    }

    /// All of it together, for the candidate with this label; `every` is how often its score is asked for by default.
    pub(crate) fn check(&self, label: &Label, every: Duration) -> Result<Preference, Failure> {
        let (prefer, never) = (self.prefer.clone().unwrap_or_default(), self.never.clone().unwrap_or_default());
        let names = Names::new(prefer, never).map_err(|error| Failure::usage(format!("--prefer, --never: {error}")))?;
        let scores = self.score.clone().unwrap_or_default();
        let measures = !self.score_oracle.is_empty();
        if self.score_every.is_some() && self.score_command.is_none() && !measures {
            return Err(Failure::usage(
                "--score-every says how often to run a --score-command, or what --score-oracle names; give that, too",
            ));
        }
        if !self.score_class.is_empty() && self.score.is_none() && self.score_command.is_none() && !measures {
            return Err(Failure::usage(
                "--score-class is about scores; give --score or --score-command, or --score-oracle, too",
            ));
        }
        let usual = match self.score_command {
            None if !measures => FailBack::usual(&names, &scores),
            _ => FailBack::After(FailBack::USUAL),
        };
        if measures {
            return Ok(Preference {
                rank: None,
                fail_back: self.fail_back.unwrap_or(usual),
                turn: self.turn,
                scoring: None,
                measured: Some(self.measured(names)?),
            });
        }
        let classes = |error: &dyn std::fmt::Display| Failure::usage(format!("--score, --score-class: {error}"));
        let mut selector = Selector::new(names, self.score_class.clone()).map_err(|error| classes(&error))?;
        let rank = selector.rank(label, &scores).map_err(|error| classes(&error))?;
        let every = self.score_every.unwrap_or(every);
        Ok(Preference {
            rank,
            fail_back: self.fail_back.unwrap_or(usual),
            turn: self.turn,
            scoring: self.score_command.clone().map(|command| Scoring { selector, command, every }),
            measured: None,
        })
    }

    fn measured(&self, names: Names) -> Result<MeasuredPreference, Failure> {
        let measured = MeasuredPreference::new(self.score_oracle.clone(), names, self.score_class.clone());
        let measured = measured.map_err(|error| {
            let instead = match error {
                MeasuredPreferenceError::History => "; have --score-command print it",
                MeasuredPreferenceError::Rotating => ", by --turn ring",
                MeasuredPreferenceError::NoClass => ", by --score-class",
                _ => "",
            };
            Failure::usage(format!("--score-oracle: {error}{instead}"))
        })?;
        Ok(measured.measured_every(self.score_every.unwrap_or(MeasuredPreference::EVERY)))
    }
}

fn fail_back(text: &str) -> Result<FailBack, String> {
    match text {
        "never" => Ok(FailBack::Never),
        text => duration::parse(text).map(FailBack::After).map_err(|error| format!("{error}; or never")),
    }
}

pub(super) fn interval(text: &str) -> Result<Duration, String> {
    let every = duration::parse(text)?;
    if (Duration::from_millis(50)..=Duration::from_secs(3_600)).contains(&every) {
        Ok(every)
    } else {
        Err("choose 50ms to 1h".to_owned())
    }
}
