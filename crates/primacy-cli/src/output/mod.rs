//! What people and scripts see: text for a terminal, JSON for programs, one line for each failure.

use std::cell::RefCell;
use std::io::{self, IsTerminal as _, Write};
use std::rc::Rc;

use serde::Serialize;

use crate::cli::{Colour, Common, LogFormat};
use crate::failure::{Failure, code};
use style::Palette;

pub(crate) mod advice;
pub(crate) mod certificates;
pub(crate) mod change;
pub(crate) mod explain;
pub(crate) mod kv_schema;
pub(crate) mod lead;
pub(crate) mod logging;
pub(crate) mod members;
pub(crate) mod namesakes;
pub(crate) mod report;
#[cfg(test)]
pub(crate) mod sample;
pub(crate) mod schema;
pub(crate) mod span;
pub(crate) mod style;
mod support;
pub(crate) mod table;
mod throttle;

/// Where a command's results and remarks go.
pub(crate) struct Output {
    out: Box<dyn Write>,
    err: Box<dyn Write>,
    json: bool,
    quiet: bool,
    /// How results may be coloured.
    pub(crate) palette: Palette,
    /// Whether remarks go to a terminal, where a line may be drawn over.
    live: bool,
    drawn: bool,
    closed: bool,
    log_format: LogFormat,
}

impl Output {
    /// The standard streams.
    pub(crate) fn standard(common: &Common) -> Self {
        let stderr = io::stderr();
        Self {
            live: stderr.is_terminal() && !common.quiet && !common.json,
            out: Box::new(io::stdout()),
            err: Box::new(stderr),
            json: common.json,
            quiet: common.quiet,
            palette: Palette::new(coloured(common.color, io::stdout().is_terminal())),
            drawn: false,
            closed: false,
            log_format: common.log_format,
        }
    }

    /// Results for programs, into memory; remarks are left out.
    pub(crate) fn collected() -> (Self, Collected) {
        let collected = Collected::default();
        let output = Self {
            out: Box::new(collected.clone()),
            err: Box::new(io::sink()),
            json: true,
            quiet: true,
            palette: Palette::new(false),
            live: false,
            drawn: false,
            closed: false,
            log_format: LogFormat::Text,
        };
        (output, collected)
    }

    /// Whether the reader of the results has gone. Found out by writing.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// A result for people, which ends with a newline. Left out with `--json` and `--quiet`.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        if self.json || self.quiet {
            return Ok(());
        }
        self.write(text.as_bytes())
    }

    /// What was asked for as such, such as a manual page: neither `--json` nor `--quiet` change it.
    pub(crate) fn page(&mut self, page: &[u8]) -> Result<(), Failure> {
        self.write(page)
    }

    /// A whole result for programs.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(value).map_err(|error| cannot_write(&error.to_string()))?;
        self.write((text + "\n").as_bytes())
    }

    /// One of many results for programs, on a line.
    pub(crate) fn json_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let text = serde_json::to_string(value).map_err(|error| cannot_write(&error.to_string()))?;
        self.write((text + "\n").as_bytes())
    }

    /// A remark for people, on standard error, left out with `--quiet`. Not being able to make it is no failure.
    pub(crate) fn remark(&mut self, line: &str) {
        self.erase();
        if !self.quiet {
            let _ = writeln!(self.err, "{line}");
        }
    }

    /// A failure, on standard error, always.
    pub(crate) fn failure(&mut self, failure: &Failure) {
        self.erase();
        logging::last_words(&mut self.err, self.log_format, failure);
    }

    /// What is going on right now: a line on the terminal that the next one replaces.
    pub(crate) fn draw(&mut self, line: &str) {
        if self.live {
            let _ = write!(self.err, "\r\x1b[K{line}").and_then(|()| self.err.flush());
            self.drawn = true;
        }
    }

    /// Takes the drawn line away.
    pub(crate) fn erase(&mut self) {
        if self.drawn {
            let _ = write!(self.err, "\r\x1b[K").and_then(|()| self.err.flush());
            self.drawn = false;
        }
    }

    /// A reader that has seen enough, such as `head`, is no failure: the command goes on to its exit code.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if self.closed {
            return Ok(());
        }
        self.erase();
        match self.out.write_all(bytes).and_then(|()| self.out.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            Err(error) => Err(cannot_write(&error.to_string())),
        }
    }
}

/// What was printed into memory.
#[derive(Clone, Default)]
pub(crate) struct Collected(Rc<RefCell<Vec<u8>>>);

impl Collected {
    /// All of it so far.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.take()
    }
}

impl Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints a page before there is an [`Output`].
pub(crate) fn plain_page(page: &str) -> Result<(), Failure> {
    let mut out = io::stdout();
    match out.write_all(page.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(cannot_write(&error.to_string())),
        _ => Ok(()),
    }
}

/// Prints a failure before, or without, an [`Output`].
pub(crate) fn plain_failure(log_format: LogFormat, failure: &Failure) {
    logging::last_words(&mut io::stderr(), log_format, failure);
}

fn cannot_write(why: &str) -> Failure {
    Failure::new(code::OUTPUT, format!("the output cannot be written: {why}"))
}

/// Whether to colour what goes to a stream.
pub(crate) fn coloured(choice: Colour, terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match choice {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb"),
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! An output that tests can read.

    use super::*;

    impl Collected {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.borrow().clone()).expect("output is UTF-8")
        }
    }

    /// With results and remarks.
    pub(crate) fn captured(json: bool) -> (Output, Collected, Collected) {
        let ((output, out), err) = (Output::collected(), Collected::default());
        (Output { err: Box::new(err.clone()), json, quiet: false, ..output }, out, err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure_but_a_full_disk_is() {
        let (mut output, ..) = testing::captured(false);
        output.out = Box::new(Broken(io::ErrorKind::BrokenPipe));
        assert_eq!(output.text("x\n"), Ok(()));
        assert!(output.is_closed());
        let (mut output, ..) = testing::captured(false);
        output.out = Box::new(Broken(io::ErrorKind::StorageFull));
        assert_eq!(output.text("x\n").map_err(|failure| failure.code), Err(code::OUTPUT));
    }

    #[test]
    fn colour_follows_the_choice_and_the_terminal() {
        assert!(coloured(Colour::Always, false));
        assert!(!coloured(Colour::Never, true));
        assert!(!coloured(Colour::Auto, false));
    }
}
