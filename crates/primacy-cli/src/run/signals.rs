//! The signals that the runner takes, and what each means.

use nix::sys::signal::Signal;
use std::io;
use tokio::signal::unix::{SignalKind, signal};

/// Signals that end a runner. The program gets them first, and its answer is awaited.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGHUP];
/// Signals that are the program's own business.
const PASSED_ON: [Signal; 5] = [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGWINCH, Signal::SIGALRM, Signal::SIGCONT];

/// All of them, as one stream.
pub(super) struct Signals {
    sources: Vec<(Signal, tokio::signal::unix::Signal)>,
}

impl Signals {
    /// Takes the signals from now on.
    pub(super) fn take() -> io::Result<Self> {
        // A signal that the parent process ignores, as `nohup` does, stays ignored.
        let wanted = ENDING.iter().chain(&PASSED_ON).filter(|taken| !is_ignored(**taken));
        let take = |taken: &Signal| Ok((*taken, signal(SignalKind::from_raw(*taken as i32))?));
        Ok(Self { sources: wanted.map(take).collect::<io::Result<_>>()? })
    }

    /// The next signal.
    pub(super) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|cx| {
            for (taken, source) in &mut self.sources {
                if source.poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(*taken);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// Whether this process ignores a signal, as it does if its parent did.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal as i32 - 1) & 1 == 1)
}

/// Has what is started from now on get these signals, also if this process was started with them ignored. This one takes no notice
/// of them thereby.
///
/// # Errors
/// If the system does not let it.
pub(crate) fn restore(signals: &[Signal]) -> io::Result<()> {
    // A new program has no handlers: what is handled here has its default there.
    signals.iter().try_for_each(|restored| signal(SignalKind::from_raw(*restored as i32)).map(drop))
}

/// Whether a signal asks the runner to end.
pub(super) fn ends(signal: Signal) -> bool {
    ENDING.contains(&signal)
}

/// The exit code of a process that ended by a signal.
pub(super) fn exit_code(signal: Signal) -> u8 {
    128 + signal as u8
}

/// Some signals, as one stream.
pub(crate) struct SignalStream(Vec<tokio::signal::unix::Signal>);

impl SignalStream {
    /// Takes them from now on. A signal that the parent process ignores, as a shell does for background jobs, stays ignored.
    ///
    /// # Errors
    /// If the system does not let it.
    pub(crate) fn take(wanted: &[Signal]) -> io::Result<Self> {
        let wanted = wanted.iter().filter(|wanted| **wanted == Signal::SIGHUP || !is_ignored(**wanted));
        Ok(Self(wanted.map(|wanted| signal(SignalKind::from_raw(*wanted as i32))).collect::<io::Result<_>>()?))
    }

    /// The next of them, whichever it is.
    pub(crate) async fn next(&mut self) {
        std::future::poll_fn(|cx| {
            if self.0.iter_mut().any(|source| source.poll_recv(cx).is_ready()) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }
}
