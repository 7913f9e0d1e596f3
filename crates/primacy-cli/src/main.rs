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

/// Nodes of the store allocate several times for each write, in sizes of all kinds: with the system's allocator that took an eighth of
/// a busy machine. This one asks for huge pages, too. A process that is killed is dead when its memory is given back, which takes 8 ms
/// for each 100 MB of small pages and less than 1 ms of huge ones, and nobody may lead in its place before.
#[cfg(feature = "kv")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The warden and its programs first: before any thread, runtime or log, since they must work when those of the
    // runner do not. No word of the documented command line begins like theirs.
    let mut args = std::env::args_os().skip(1);
    let mut words: Vec<_> = std::env::args_os().collect();
    let mut lock = None;
    match args.next() {
        Some(word) if word == run::WARDEN => return run::warden::main(),
        Some(word) if word == run::EXEC => return run::program::become_program(args),
        Some(word) if word == run::SUPERVISED => match run::supervised::begin(&mut args) {
            Ok(taken) => {
                lock = Some(taken);
                words = words.into_iter().take(1).chain(args).collect();
            }
            Err(code) => return code,
        },
        Some(word) if word == run::GATE => return run::isolate::gate(args),
        Some(word) if word == run::INIT => return run::isolate::init(args),
        #[cfg(feature = "kv")]
        Some(word) if word == commands::KV_WARDEN => return commands::kv_warden(),
        _ => {}
    }
    match cli::Cli::read(words) {
        Err(error) => commands::refuse(&error),
        Ok(cli::Cli { common, command: cli::Command::Run(args), .. }) => run::main(args, common, lock),
        Ok(cli::Cli { common, command, .. }) => commands::main(command, &common),
    }
}
