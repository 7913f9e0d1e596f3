//! The command `primacy`: runs a program on exactly one of several machines, shows who leads, and steers it.

use std::process::ExitCode;

mod agent;
mod agent_wire;
mod cli;
mod commands;
mod diagnosis;
mod failure;
mod foreign_text;
mod http;
mod observed;
mod order;
mod output;
mod panics;
mod reach;
mod run;
mod secret;
mod sleep;
mod standing;

fn main() -> ExitCode {
    // The warden and its programs first: before any thread, runtime or log, since they must work when those of the
    // runner do not. No word of the documented command line begins like theirs.
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(word) if word == run::WARDEN => return run::warden::main(),
        Some(word) if word == run::EXEC => return run::program::become_program(args),
        Some(word) if word == run::GATE => return run::isolate::gate(args),
        Some(word) if word == run::INIT => return run::isolate::init(args),
        #[cfg(feature = "kv")]
        Some(word) if word == commands::KV_WARDEN => return commands::kv_warden(),
        _ => {}
    }
    match cli::Cli::read(std::env::args_os()) {
        Err(error) => commands::refuse(&error),
        Ok(cli::Cli { common, command: cli::Command::Run(args), .. }) => run::main(args, common),
        Ok(cli::Cli { common, command, .. }) => commands::main(command, &common),
    }
}
