//! Orders that come over HTTP or over an agent's socket: what they say, and what is done about them.

use std::fmt;

use primacy::{Label, Token};

use super::handover;
use super::operator_order::OperatorOrder;
use super::pause::{self, Switch};
use crate::cli::OrderArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::reach::Reach;

/// An order that did not come by the command line. It never takes a lease from a leader that has not stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemoteOrder {
    /// That one is to lead.
    Promote(Label, Option<Token>),
    /// Another is to lead.
    Depose(Option<Token>),
    /// Nobody new is to lead.
    Pause,
    /// As before.
    Resume,
}

impl fmt::Display for RemoteOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = match self {
            Self::Promote(candidate, token) => {
                write!(f, "promote {candidate}")?;
                token
            }
            Self::Depose(token) => {
                f.write_str("depose")?;
                token
            }
            Self::Pause => return f.write_str("pause"),
            Self::Resume => return f.write_str("resume"),
        };
        token.map_or(Ok(()), |token| write!(f, ", if the last token is {token}"))
    }
}

impl RemoteOrder {
    /// The order that this word means.
    ///
    /// # Errors
    /// Why it is none.
    pub(crate) fn read(word: &str, candidate: Option<String>, token: Option<Token>) -> Result<Self, String> {
        match (word, candidate, token) {
            ("promote", Some(candidate), token) => {
                let label = Label::new(candidate).map_err(|error| format!("candidate: {error}"))?;
                Ok(Self::Promote(label, token))
            }
            ("promote", None, _) => Err("say who is to lead: {\"candidate\": \"LABEL\"}".to_owned()),
            ("depose", None, token) => Ok(Self::Depose(token)),
            ("pause", None, None) => Ok(Self::Pause),
            ("resume", None, None) => Ok(Self::Resume),
            ("depose" | "pause" | "resume", ..) => Err(format!("{word} takes no such field")),
            _ => Err("the orders are promote, depose, pause and resume".to_owned()),
        }
    }

    /// Gives the order. Returns what `primacy promote --no-wait --json` and the others print. It does not wait for the outcome.
    ///
    /// # Errors
    /// As of these commands.
    pub(crate) async fn give(self, reach: &mut Reach) -> Result<Vec<u8>, Failure> {
        let (mut output, printed) = Output::collected();
        let args = |token| OrderArgs { now: false, token, force: false, no_wait: true };
        match self {
            Self::Promote(successor, token) => {
                handover::run(OperatorOrder::Promote(successor), &args(token), reach, &mut output).await?
            }
            Self::Depose(token) => handover::run(OperatorOrder::Depose, &args(token), reach, &mut output).await?,
            Self::Pause => pause::run(Switch::Pause, reach, &mut output).await?,
            Self::Resume => pause::run(Switch::Resume, reach, &mut output).await?,
        };
        Ok(printed.take())
    }
}
