//! The commands other than `run`: each asks the store, prints, and ends with a documented exit code.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use crate::agent;
use crate::cli::usage::Refusal;
use crate::cli::{Colour, Command, Common, LogFormat, store_url};
use crate::failure::{Failure, code};
use crate::order::pause::{self, Switch};
use crate::order::{OperatorOrder, handover};
use crate::output::{self, Output, logging};
use crate::reach::Reach;
use tokio::runtime::Runtime;

mod doctor;
#[cfg(test)]
mod fake;
mod forget;
mod history;
#[cfg(feature = "kv")]
mod kv;
mod list;
mod members;
mod pages;
mod peer;
mod schema;
mod simulate;
mod status;
#[cfg(test)]
mod tests;
mod voters;
mod watch;

#[cfg(feature = "kv")]
pub(crate) use kv::warden::{WORD as KV_WARDEN, main as kv_warden};

/// Runs a command other than `run`.
pub(crate) fn main(command: Command, common: &Common) -> ExitCode {
    let level = match &command {
        Command::Agent(args) if args.command.is_none() => logging::HOLDING,
        Command::Peer(args) if args.command.is_none() => logging::VOTING,
        #[cfg(feature = "kv")]
        Command::Kv(args) if args.command.is_none() => logging::SERVING,
        _ => logging::OBSERVING,
    };
    logging::start(common, level);
    let mut output = Output::standard(common);
    let ended = match command {
        Command::Schema(args) => schema::run(&args, common, &mut output),
        Command::Completions(args) => pages::completions(&args, &mut output),
        Command::Man(args) => pages::man(&args, &mut output),
        Command::Version => pages::version(&mut output),
        Command::Simulate(args) => simulate::run(&args, &mut output),
        Command::Agent(args) => runtime().and_then(|runtime| agent::run(&args, common, &runtime, &mut output)),
        Command::Peer(args) => peer::run(&args, common, &mut output),
        #[cfg(feature = "kv")]
        Command::Kv(args) => kv::run(&args, common, &mut output),
        command => with_store(command, common, &mut output),
    };
    output.erase();
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            output.failure(&failure);
            failure.exit_code()
        }
    }
}

/// Ends a process whose command line was not understood, or that was asked for help.
pub(crate) fn refuse(error: &clap::Error) -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let ended = match Refusal::of(error, &words, output::coloured(Colour::Auto, std::io::stdout().is_terminal())) {
        Refusal::Page(page) => output::plain_page(&page),
        Refusal::Wrong(failure) => Err(failure),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::plain_failure(LogFormat::Text, &failure);
            failure.exit_code()
        }
    }
}

fn with_store(command: Command, common: &Common, output: &mut Output) -> Result<u8, Failure> {
    let store = common.open_store()?;
    if common.uses_default_store() && common.wait.is_none() && !store_url::default_folder().exists() {
        return Err(Failure::unavailable(format!(
            "there is no election in {} yet: primacy run begins one, and --store names another place",
            store.location()
        )));
    }
    runtime()?.block_on(async {
        let election = match &command {
            Command::Forget(args) => args.name.clone(),
            _ => common.election.clone(),
        };
        let mut reach = Reach::new(store, election, common.wait);
        match command {
            Command::Status(args) => status::run(&args, &mut reach, output).await,
            Command::List => list::run(&mut reach, output).await,
            Command::Members(args) => members::run(&args, &mut reach, output).await,
            Command::Watch(args) => watch::run(&args, &mut reach, output).await,
            Command::History(args) => history::run(&args, &mut reach, output).await,
            Command::Promote(args) => {
                let wanted = OperatorOrder::Promote(args.successor);
                handover::run(wanted, &args.order, &mut reach, output).await
            }
            Command::Depose(args) => handover::run(OperatorOrder::Depose, &args, &mut reach, output).await,
            Command::Pause => pause::run(Switch::Pause, &mut reach, output).await,
            Command::Resume => pause::run(Switch::Resume, &mut reach, output).await,
            Command::Forget(_) => forget::run(&mut reach, output).await,
            Command::Doctor(args) => doctor::run(&args, &mut reach, output).await,
            #[cfg(feature = "kv")]
            Command::Kv(_) => unreachable!("handled before a store is opened"),
            Command::Run(_)
            | Command::Agent(_)
            | Command::Peer(_)
            | Command::Schema(_)
            | Command::Simulate(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Version => {
                unreachable!("handled before a store is opened")
            }
        }
    })
}

fn runtime() -> Result<Runtime, Failure> {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    built.map_err(|error| no_runtime(&error))
}

fn no_runtime(error: &std::io::Error) -> Failure {
    Failure::new(code::OUTPUT, format!("the process cannot start: {error}"))
}
