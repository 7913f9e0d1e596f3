//! `primacy completions`, `primacy man` and `primacy version`: what is generated from the command line's own definition.

use std::io;

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::cli::pages::{CompletionsArgs, ManArgs};
use crate::failure::{Failure, code};
use crate::output::Output;

pub(super) fn completions(args: &CompletionsArgs, output: &mut Output) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "primacy", &mut script);
    output.page(&script)?;
    Ok(0)
}

pub(super) fn man(args: &ManArgs, output: &mut Output) -> Result<u8, Failure> {
    let failed = |error: io::Error| Failure::new(code::OUTPUT, format!("the pages cannot be written: {error}"));
    match &args.dir {
        Some(folder) => {
            std::fs::create_dir_all(folder)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
                .map_err(|error| Failure::new(code::OUTPUT, format!("{}: {error}", folder.display())))?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(failed)?;
            output.page(&page)?;
        }
    }
    Ok(0)
}

pub(super) fn version(output: &mut Output) -> Result<u8, Failure> {
    output.page(Cli::command().render_version().as_bytes())?;
    Ok(0)
}
