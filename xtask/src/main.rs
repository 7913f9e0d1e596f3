//! The project's own chores: `cargo xtask ci`, `fix`, `tidy`, `services`, `package`, `bench`, `chaos`.

mod aside;
mod bench;
mod boundary;
mod chaos;
mod ci;
mod fix;
mod nightly;
mod package;
mod servers;
mod services;
mod shell;
mod tidy;

use std::process::ExitCode;

use shell::{Shell, say};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci [STEP...]      check everything, or only these steps; changes nothing
  ci --nightly [STEP...]
                    what is too long for every change, and tells its figures: for a machine that has hours
  ci --list         what the steps are; with --nightly those of the night
  fix               format, apply what clippy offers, rewrite golden files, lower ratchets, wrap prose
  fix prose         of these the last: wraps long lines on pages
  tidy              the project's own rules about its text
  services          install the programs that the tests need
  services up       start a PostgreSQL and a MariaDB server for tests; prints variables for the shell
  services status   what runs
  services down     end them
  package           make a Debian package, an archive and the files of an image, with checksums, in target/package
  servers [NAME...] fetch servers of other versions, and run the tests of the stores against them
  bench [ARG...]    run the benchmarks; arguments are passed on
  bench kv [ARG...] the key-value store beside Redis, etcd and ZooKeeper
  bench papers [ARG...]
                    the published forms of elections beside primacy's
  chaos [ARG...]    strike real candidates on real stores; arguments are passed on, --help tells which";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = args.split_first() else {
        say(USAGE);
        return ExitCode::from(2);
    };
    let result = Shell::new().and_then(|shell| match (command.as_str(), rest) {
        ("ci", _) => ci::run(&shell, rest),
        ("fix", []) => fix::run(&shell),
        ("fix", [what]) if what == "prose" => tidy::wrap_prose(&shell),
        ("tidy", []) => tidy::run(&shell),
        ("package", []) => package::run(&shell),
        ("servers", _) => servers::run(&shell, rest),
        ("services", _) => services::run(&shell, rest),
        ("bench", _) => bench::run(&shell, rest),
        ("chaos", _) => chaos::run(&shell, rest),
        ("help" | "--help" | "-h", _) => {
            say(USAGE);
            Ok(())
        }
        _ => Err(format!("unknown command `{}`\n{USAGE}", args.join(" "))),
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            say(&format!("xtask: {problem}"));
            ExitCode::FAILURE
        }
    }
}
