//! The command line: what may be said, and what is refused before anything is opened.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use primacy::store::{self, Store};
use primacy::{ElectionName, Label, Protocol, Timing, TimingSettings, Token};

use crate::failure::Failure;
use crate::secret;
use agent::AgentArgs;
pub(crate) use colour::Colour;
use hooks::HookArgs;
use http::HttpArgs;
pub(crate) use log_format::LogFormat;
use pages::{CompletionsArgs, ManArgs};
use peer::PeerArgs;
use preference::{Preference, PreferenceArgs};
use registers::{ProtocolName, RegistersArgs};
pub(crate) use schema::{Database, SchemaArgs};

pub(crate) mod agent;
mod colour;
pub(crate) mod duration;
pub(crate) mod examples;
pub(crate) mod hooks;
pub(crate) mod http;
pub(crate) mod kv;
pub(crate) mod log_filter;
mod log_format;
pub(crate) mod names;
pub(crate) mod pages;
pub(crate) mod peer;
pub(crate) mod preference;
mod registers;
mod schema;
pub(crate) mod store_url;
pub(crate) mod usage;

/// What `--data` may have: more would be cut by the protocol.
pub(crate) const DATA_BYTES_MAX: usize = 1_024;

/// Decides which one of several processes is in charge, and makes it safe to act on the answer.
#[derive(Debug, Parser)]
#[command(name = "primacy", version, after_help = examples::PRIMACY_SHORT, after_long_help = examples::PRIMACY)]
#[command(subcommand_required = true, disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct Cli {
    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version, hide_short_help = true)]
    version: Option<bool>,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads a command line. A password in it is refused: it can be read by every user of the host.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let matches = without_empty_variables(Self::command()).try_get_matches_from(words)?;
        let cli = Self::from_arg_matches(&matches)?;
        log_filter::from_environment().map_err(|why| Self::command().error(ErrorKind::ValueValidation, why))?;
        // Common options are known to each command, also when they stand before it.
        let typed = matches
            .subcommand()
            .is_some_and(|(_, command)| command.value_source("store") == Some(ValueSource::CommandLine));
        if let Command::Run(RunArgs { agent: Some(_), .. }) = &cli.command
            && typed
        {
            let why =
                "--store is for candidates of their own; with --agent the agent has the store: leave one of them out";
            return Err(Self::command().error(ErrorKind::ArgumentConflict, why));
        }
        if cli.common.store.as_ref().is_some_and(|url| typed && secret::is_in(url)) {
            return Err(Self::command().error(ErrorKind::ArgumentConflict, secret::REFUSED));
        }
        #[cfg(feature = "kv")]
        if let (Command::Kv(_), Some((_, command))) = (&cli.command, matches.subcommand()) {
            let is_typed = |name: &str| command.value_source(name) == Some(ValueSource::CommandLine);
            if let Some((_, why)) = kv::MEANINGLESS.iter().find(|(name, _)| is_typed(name)) {
                return Err(Self::command().error(ErrorKind::ArgumentConflict, why));
            }
        }
        Ok(cli)
    }
}

/// A variable of the environment that is set and empty counts as one that is not set.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    command
        .mut_args(|arg| if arg.get_env().is_some_and(is_empty) { arg.env(None::<&str>) } else { arg })
        .mut_subcommands(without_empty_variables)
}

/// What every command understands.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// URL of the store [default: a file of this user]
    ///
    /// Where the election is kept, such as sqlite:/var/lib/primacy/primacy.db. The default is a file in the state directory.
    #[arg(long, global = true, env = "PRIMACY_STORE", hide_env_values = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// Name of the election
    ///
    /// It has 1 to 128 bytes, and is compared byte for byte.
    #[arg(long, global = true, env = "PRIMACY_ELECTION", value_name = "NAME", default_value = "default")]
    pub(crate) election: ElectionName,
    /// How long to try to reach the store
    ///
    /// After that the command gives up with exit code 69.
    #[arg(long, global = true, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true, hide_short_help = true)]
    pub(crate) wait: Option<Duration>,
    /// Print JSON with a documented schema instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say more about what happens, on standard error; twice for even more
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    pub(crate) verbose: u8,
    /// Print errors only; the exit code tells the rest
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// When to use colour
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = Colour::Auto, hide_short_help = true)]
    pub(crate) color: Colour,
    /// How to write the log, on standard error: for people, or as JSON, an object on each line
    #[arg(long, global = true, value_enum, value_name = "FORM", env = "PRIMACY_LOG_FORMAT", default_value_t = LogFormat::Text, hide_short_help = true)]
    pub(crate) log_format: LogFormat,
    /// Print help on one screen
    #[arg(short, long, global = true, action = ArgAction::HelpShort)]
    help: Option<bool>,
    /// Print help with every option and example
    #[arg(long, global = true, action = ArgAction::HelpLong)]
    help_all: Option<bool>,
}

impl Common {
    /// For how long a command other than `run` tries to reach the store unless told otherwise.
    pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(5);

    /// The store's URL: as given, or the default file.
    pub(crate) fn store_url(&self) -> Result<String, Failure> {
        match &self.store {
            Some(url) => Ok(url.clone()),
            None => store_url::default_url().map_err(|path| {
                Failure::usage(format!("the default store's path {path:?} is not valid UTF-8; name one with --store"))
            }),
        }
    }

    /// The store. Nothing is opened yet.
    pub(crate) fn open_store(&self) -> Result<Arc<dyn Store>, Failure> {
        store::from_url(&self.store_url()?).map_err(|error| Failure::usage(format!("--store: {error}")))
    }

    /// Whether the store is the default file, whose folder `run` creates.
    pub(crate) const fn uses_default_store(&self) -> bool {
        self.store.is_none()
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program while, and only while, this candidate leads
    #[command(after_help = examples::RUN_SHORT, after_long_help = examples::RUN, override_usage = examples::RUN_USAGE)]
    Run(RunArgs),
    /// Show who leads, how fresh the answer is, and who waits
    #[command(after_help = examples::STATUS)]
    Status(StatusArgs),
    /// Show every election of the store
    #[command(after_help = examples::LIST)]
    List,
    /// Show who takes part by the registers protocol, and in which order they lead
    #[command(after_help = examples::MEMBERS)]
    Members(MembersArgs),
    /// Print a line at every change of the election
    #[command(after_help = examples::WATCH)]
    Watch(WatchArgs),
    /// Show past leaderships and why they ended
    #[command(after_help = examples::HISTORY)]
    History(HistoryArgs),
    /// Make a waiting candidate the leader
    #[command(after_help = examples::PROMOTE)]
    Promote(PromoteArgs),
    /// Make the leader hand over to any other candidate
    #[command(after_help = examples::DEPOSE)]
    Depose(OrderArgs),
    /// Let nobody take the lease who does not hold it already
    #[command(after_help = examples::PAUSE)]
    Pause,
    /// Let candidates take the lease again
    #[command(after_help = examples::RESUME)]
    Resume,
    /// Remove an election that nobody uses any more; its token stays
    #[command(after_help = examples::FORGET)]
    Forget(ForgetArgs),
    /// Check what the store guarantees, measure it, and advise on timing
    #[command(after_help = examples::DOCTOR)]
    Doctor(DoctorArgs),
    /// Try your timing and topology in simulated worlds full of faults
    #[command(after_help = examples::SIMULATE)]
    Simulate(SimulateArgs),
    /// Run a voter of elections among peers, without a database
    #[command(after_help = examples::PEER_SHORT, after_long_help = examples::PEER)]
    Peer(PeerArgs),
    /// Run a node of a replicated key-value store that clients of Redis can talk to
    #[cfg(feature = "kv")]
    #[command(after_help = examples::KV_SHORT, after_long_help = examples::KV)]
    Kv(Box<kv::KvArgs>),
    /// Campaign for programs in any language, over a socket of this host
    #[command(after_help = examples::AGENT_SHORT, after_long_help = examples::AGENT)]
    Agent(AgentArgs),
    /// Print the SQL that sets up a database, for an administrator
    #[command(after_help = examples::SCHEMA)]
    Schema(SchemaArgs),
    /// Print a script that completes this command line in a shell
    #[command(after_help = examples::COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Print the manual page, or write all of them into a folder
    #[command(after_help = examples::MAN)]
    Man(ManArgs),
    /// Print the version
    #[command(after_help = examples::VERSION)]
    Version,
}

/// `primacy run`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// What people call this candidate
    ///
    /// The default is the host's name and the process id.
    #[arg(long, env = "PRIMACY_NAME", value_name = "LABEL")]
    pub(crate) name: Option<Label>,
    /// How long a grant lasts unless it is renewed [default: 10s]
    ///
    /// That is the wait when a whole host is lost.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) lease: Option<Duration>,
    /// How long CMD may take to stop after SIGTERM [default: 5s]
    ///
    /// It is a part of the lease. By default it is at most half of that, or a quarter with --protocol registers.
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) grace: Option<Duration>,
    /// How long after one renewal of the lease the next is sent [default: a third of the lease, at most half of what the
    /// grace leaves]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true, hide_short_help = true)]
    pub(crate) renew: Option<Duration>,
    /// Lead through the agent of this host, without a store [default of SOCKET: PRIMACY_AGENT, or where an agent listens]
    #[arg(long, value_name = "SOCKET", hide_short_help = true)]
    pub(crate) agent: Option<Option<PathBuf>>,
    /// Exit with 75 when the leadership is lost
    ///
    /// Without it the candidate waits to lead again.
    #[arg(long)]
    pub(crate) once: bool,
    /// Exit with 75 at once if this candidate cannot lead now
    ///
    /// For example because another one leads.
    #[arg(long = "try", conflicts_with = "limit")]
    pub(crate) try_once: bool,
    /// Wait at most this long to lead, then exit with 75
    #[arg(long = "for", value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) limit: Option<Duration>,
    /// Let CMD gain rights that this user has not, as sudo does: it may then not be possible to kill it in time
    #[arg(long, hide_short_help = true)]
    pub(crate) allow_privileges: bool,
    /// Start CMD in a PID namespace of its own
    ///
    /// The kernel empties it also if primacy's processes are all killed at once.
    #[arg(long)]
    pub(crate) isolate: bool,
    /// What to publish about this candidate, such as its address: at most 1,024 bytes
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true, value_parser = published, hide_short_help = true)]
    pub(crate) data: String,
    /// How to take part: as one who waits, or as one of members that know each other
    #[arg(long, value_enum, value_name = "PROTOCOL", default_value_t = ProtocolName::Lease, hide_short_help = true)]
    pub(crate) protocol: ProtocolName,
    /// Keep in this file how this candidate stands, as JSON, for scripts that cannot ask
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) status_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) http: HttpArgs,
    /// The program and its arguments, executed directly, without a shell
    #[arg(last = true, required_unless_present_any = ["on_elected", "on_lost"], value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    /// Last, since their headings are those of all that follows.
    #[command(flatten)]
    pub(crate) hooks: HookArgs,
    #[command(flatten)]
    preference: PreferenceArgs,
    #[command(flatten)]
    registers: RegistersArgs,
}

/// How a candidate of `primacy run` takes part, checked.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// How long its lease lasts, and what follows from that.
    pub(crate) timing: Timing,
    /// By which protocol.
    pub(crate) protocol: Protocol,
    /// How it stands beside others.
    pub(crate) preference: Preference,
}

impl RunArgs {
    /// What people call this candidate.
    pub(crate) fn label(&self) -> Label {
        self.name.clone().unwrap_or_else(names::default_label)
    }

    /// How it takes part, checked as a whole.
    pub(crate) fn part(&self, label: &Label) -> Result<Part, Failure> {
        match self.protocol {
            ProtocolName::Lease => match self.registers.given() {
                Some(option) => Err(Failure::usage(format!("{option} needs --protocol registers, too"))),
                None => {
                    let timing = timing(self.lease.unwrap_or(Timing::DEFAULT_LEASE), self.grace, self.renew)?;
                    let preference = self.preference.check(label, timing.lease() / 3)?;
                    Ok(Part { timing, protocol: Protocol::Lease, preference })
                }
            },
            ProtocolName::Registers if self.lease.is_some() => Err(Failure::usage(
                "with --protocol registers the lease follows from the rounds, which may change; \
                 instead of --lease give --round, and --missed for how many of them it lasts",
            )),
            ProtocolName::Registers if self.renew.is_some() => Err(Failure::usage(
                "with --protocol registers the lease is renewed with each round; instead of --renew give --round",
            )),
            ProtocolName::Registers => {
                let rounds = self.registers.rounds()?;
                let preference = self.preference.check(label, rounds.round())?;
                if preference.turn.is_some() {
                    return Err(Failure::usage(
                        "with --protocol registers the oldest is first among equals; leave --turn out",
                    ));
                }
                let lease = rounds.lease(rounds.round());
                let grace = self.grace.unwrap_or(TimingSettings::for_program(lease).grace.min(lease / 4));
                Ok(Part {
                    timing: timing(lease, Some(grace), None)?,
                    protocol: Protocol::Registers { rounds },
                    preference,
                })
            }
        }
    }
}

/// `primacy forget`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ForgetArgs {
    /// The election's name
    #[arg(value_name = "NAME")]
    pub(crate) name: ElectionName,
}

/// `primacy status`.
#[derive(Args, Clone, Debug)]
pub(crate) struct StatusArgs {
    /// Say in sentences why this candidate leads or why nobody does, and what will happen next
    #[arg(long)]
    pub(crate) explain: bool,
}

/// `primacy members`.
#[derive(Args, Clone, Debug)]
pub(crate) struct MembersArgs {
    /// Print joins, departures, evictions and changes of the round time as they happen instead
    #[arg(long)]
    pub(crate) watch: bool,
    /// How many of the last events to show, the newest first; with --watch the oldest first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000))]
    pub(crate) events: Option<u32>,
    /// Stop after this many lines
    #[arg(long, value_name = "N", requires = "watch", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// How often to look: 10ms to 1h
    #[arg(long, value_name = "DUR", requires = "watch", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,
}

/// `primacy watch`.
#[derive(Args, Clone, Debug)]
pub(crate) struct WatchArgs {
    /// Stop after this many lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Stop as soon as somebody leads
    #[arg(long)]
    pub(crate) until_leader: bool,
    /// How often to look at least: 10ms to 1h; hints of the store come sooner
    #[arg(long, value_name = "DUR", default_value = "1s", value_parser = interval, allow_hyphen_values = true)]
    pub(crate) interval: Duration,
}

/// `primacy history`.
#[derive(Args, Clone, Debug)]
pub(crate) struct HistoryArgs {
    /// How many leaderships to show, the newest first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,
}

/// `primacy promote`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PromoteArgs {
    /// Whom: the label of a waiting candidate, or else its id or the first digits of that, at least 4
    #[arg(value_name = "CANDIDATE")]
    pub(crate) successor: Label,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
}

/// What `promote` and `depose` share.
#[derive(Args, Clone, Debug)]
pub(crate) struct OrderArgs {
    /// Empty the record at once, without waiting for the leader to stop: two may lead until it notices
    #[arg(long)]
    pub(crate) now: bool,
    /// Refuse unless the last granted token is still this one
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) token: Option<Token>,
    /// Give the order although no candidate waits who could take over, or the election is paused
    #[arg(long)]
    pub(crate) force: bool,
    /// Return as soon as the order stands, without waiting for its outcome
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// `primacy doctor`.
#[derive(Args, Clone, Debug)]
pub(crate) struct DoctorArgs {
    /// The lease to judge
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) lease: Duration,
    /// The grace to judge [default: 5s, at most half of the lease]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) grace: Option<Duration>,
}

impl DoctorArgs {
    /// The timing to judge, checked as a whole.
    pub(crate) fn timing(&self) -> Result<Timing, Failure> {
        timing(self.lease, self.grace, None)
    }
}

/// `primacy simulate`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SimulateArgs {
    /// How long a grant lasts unless it is renewed
    #[arg(long, value_name = "DUR", default_value = "10s", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) lease: Duration,
    /// How long the work may take to stop, inside the lease [default: 5s, at most half of the lease]
    #[arg(long, value_name = "DUR", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) grace: Option<Duration>,
    /// How many candidates take part
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) candidates: u32,
    /// The longest that a call to the store takes while nothing fails
    #[arg(long, value_name = "DUR", default_value = "10ms", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) round_trip: Duration,
    /// In how many worlds
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: u64,
    /// The first of their numbers
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) from: u64,
    /// Print what happens in one world, event by event, instead
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "from"])]
    pub(crate) replay: Option<u64>,
}

impl SimulateArgs {
    /// The timing, checked as a whole.
    pub(crate) fn timing(&self) -> Result<Timing, Failure> {
        timing(self.lease, self.grace, None)
    }
}

fn timing(lease: Duration, grace: Option<Duration>, renew_every: Option<Duration>) -> Result<Timing, Failure> {
    let usual = TimingSettings::for_program(lease);
    Timing::new(TimingSettings { grace: grace.unwrap_or(usual.grace), renew_every, ..usual })
        .map_err(|error| Failure::usage(error.to_string()))
}

/// What may be published about a candidate.
pub(crate) fn published(text: &str) -> Result<String, String> {
    if text.len() > DATA_BYTES_MAX {
        return Err(format!("it has {} bytes; give at most {DATA_BYTES_MAX}", text.len()));
    }
    Ok(text.to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration::parse(text)?;
    if (Duration::from_millis(10)..=Duration::from_secs(3_600)).contains(&interval) {
        Ok(interval)
    } else {
        Err("choose 10ms to 1h".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn common_options_may_stand_before_and_after_the_command() {
        for words in [["primacy", "--election", "a", "status"], ["primacy", "status", "--election", "a"]] {
            let cli = Cli::try_parse_from(words).expect("both orders are usual");
            assert_eq!(cli.common.election.as_str(), "a");
        }
    }

    #[test]
    fn a_short_lease_gets_a_grace_that_fits() {
        for lease in ["100ms", "1s", "10s", "24h"] {
            let cli = Cli::try_parse_from(["primacy", "run", "--lease", lease, "--", "true"]).expect("valid words");
            let Command::Run(args) = cli.command else { panic!("asked for run") };
            let part = args.part(&args.label());
            assert!(part.is_ok(), "{lease}: {part:?}");
        }
    }

    #[test]
    fn the_lease_is_renewed_as_often_as_asked() {
        let words = ["primacy", "run", "--lease", "100ms", "--grace", "10ms", "--renew", "20ms", "--", "true"];
        let cli = Cli::try_parse_from(words).expect("valid words");
        let Command::Run(args) = cli.command else { panic!("asked for run") };
        let part = args.part(&args.label()).expect("valid timing");
        assert_eq!(part.timing.renew_every(), Duration::from_millis(20));
    }

    #[test]
    fn a_lease_that_would_be_renewed_too_seldom_is_refused_with_what_would_do() {
        let words = ["primacy", "run", "--lease", "1s", "--renew", "5s", "--", "true"];
        let cli = Cli::try_parse_from(words).expect("valid words");
        let Command::Run(args) = cli.command else { panic!("asked for run") };
        let refused = args.part(&args.label()).expect_err("it would end before it is renewed");
        expect_test::expect!["renewing every 5s is too seldom for a lease of 1s: with a grace of 500ms it must have been renewed after 425ms, calls included; choose at most 424ms (the default is 212.5ms), or a longer lease"]
        .assert_eq(&refused.to_string());
    }

    #[test]
    fn the_programs_own_options_are_left_alone() {
        let words = ["primacy", "run", "--once", "--", "prog", "--once", "--election", "x"];
        let cli = Cli::try_parse_from(words).expect("valid words");
        let Command::Run(args) = cli.command else { panic!("asked for run") };
        assert_eq!(args.command, ["prog", "--once", "--election", "x"]);
        assert_eq!(cli.common.election.as_str(), "default");
    }

    #[test]
    fn the_manual_has_every_command_and_option() {
        let manual = include_str!("../../../docs/manual/commands.md");
        for command in Cli::command().get_subcommands() {
            assert!(
                manual.contains(&format!("`primacy {}", command.get_name()))
                    || manual.contains(&format!("\nprimacy {}", command.get_name())),
                "{}",
                command.get_name()
            );
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(manual.contains(&format!("--{option}")), "{} --{option}", command.get_name());
            }
        }
        for option in Cli::command().get_arguments().filter_map(clap::Arg::get_long) {
            assert!(manual.contains(&format!("--{option}")), "--{option}");
        }
    }
}
