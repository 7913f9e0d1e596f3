//! The options of `primacy agent`, and what `primacy run` cannot have through one.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use primacy::{Label, Timing};

use super::http::HttpArgs;
use super::registers::ProtocolName;
use super::{RunArgs, duration, examples};
use crate::failure::Failure;

/// The variable that has the path of the socket.
pub(crate) const SOCKET_VARIABLE: &str = "PRIMACY_AGENT";

/// `primacy agent`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AgentArgs {
    /// What it does in which elections, and who may hold and order them [default: any election, for all who reach the socket]
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// Where programs reach it [default: primacy/agent.sock in this user's runtime directory, or in /run]
    #[arg(long, value_name = "PATH", env = SOCKET_VARIABLE, global = true)]
    pub(crate) socket: Option<PathBuf>,
    /// What people call its candidates, unless their programs say it [default: the host's name]
    #[arg(long, env = "PRIMACY_NAME", value_name = "LABEL")]
    pub(crate) name: Option<Label>,
    /// How long a grant lasts unless it is renewed, without --config [default: 10s]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true, conflicts_with = "config")]
    lease: Option<Duration>,
    /// How long a program may take to stop its work, without --config [default: 5s, at most half of the lease]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true, conflicts_with = "config")]
    grace: Option<Duration>,
    #[command(flatten)]
    pub(crate) http: HttpArgs,
    #[command(subcommand)]
    pub(crate) command: Option<AgentCommand>,
}

/// What belongs to an agent beside being one.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Show which programs wait and lead through the agent of this host
    #[command(after_help = examples::AGENT_LIST)]
    List,
    /// Say whether a configuration is right, and do nothing
    #[command(after_help = examples::AGENT_CHECK)]
    Check,
}

impl AgentArgs {
    /// The timing of its candidates, without a configuration.
    pub(crate) fn timing(&self) -> Result<Timing, Failure> {
        super::timing(self.lease.unwrap_or(Timing::DEFAULT_LEASE), self.grace, None)
    }
}

impl RunArgs {
    /// Refuses what cannot be had through an agent.
    pub(crate) fn check_agent(&self) -> Result<(), Failure> {
        if self.agent.is_none() {
            return Ok(());
        }
        let of_agent = [
            (self.lease.is_some(), "--lease"),
            (self.grace.is_some(), "--grace"),
            (self.renew.is_some(), "--renew"),
            (self.protocol != ProtocolName::Lease, "--protocol"),
        ];
        if let Some((_, option)) = of_agent.into_iter().find(|(is_given, _)| *is_given) {
            return Err(Failure::usage(format!(
                "{option} is for the agent to say, in its configuration, for all who lead through it: leave {option} out"
            )));
        }
        if let Some(option) = self.preference.given() {
            return Err(Failure::usage(format!(
                "{option} cannot be had with --agent: its candidates lead in the order in which they came"
            )));
        }
        if self.http.http.is_some() {
            return Err(Failure::usage(
                "--http needs a store; with --agent it is the agent that tells over HTTP who leads, with its own --http",
            ));
        }
        Ok(())
    }
}
