//! The warden: a small process that outlives the runner, kills the program at the lease's deadline, and releases the
//! lease of a runner that died.
//!
//! It is started before anything else and has one thread. It believes only the kernel: a pidfd of the runner, the
//! deaths of its own children, and the boot clock.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::Pid;
use primacy::{DeadLeaderRelease, ElectionName, clock, store};

use crate::cli::http::TOKEN_VARIABLE;

mod agent;
mod hooks;

use super::handover;
use super::process_tree::End;
use super::process_tree::{self, Attempt, Pauses, ProcessTree};
use super::wire::{self, Deadlines, FromWarden, Hello, Led, ToWarden};
use super::work::{Hook, Work};

/// `primacy __warden`: standard input is the socket to the runner.
pub(crate) fn main() -> ExitCode {
    // Signals for the terminal's foreground job are the runner's to handle. Blocked before anything can fail.
    if SigSet::all().thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    match Warden::start().and_then(Warden::watch) {
        Ok(()) => ExitCode::SUCCESS,
        // The runner ended before it had said anything.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "primacy: the warden failed: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Warden {
    socket: UnixStream,
    /// Bytes of a line that has not ended yet.
    inbox: Vec<u8>,
    runner: OwnedFd,
    timer: TimerFd,
    deaths: SignalFd,
    hello: Hello,
    stdin: OwnedFd,
    /// The lock of a runner that an agent has started: it is free when both are gone.
    _lock: Option<OwnedFd>,
    /// The leadership under which a program may run.
    lease: Option<Lease>,
    program: Option<Program>,
    /// With hooks: where the work stands. Then the program is the hook that runs.
    work: Option<Work>,
    /// The token of the last leadership.
    token: Option<u64>,
    /// The connection by which an agent has told the last leadership. It does not end with the runner.
    agent: Option<UnixStream>,
    farewell: bool,
    /// The runner is gone.
    alone: bool,
}

struct Lease {
    term: Deadlines,
    /// The program has been told to stop.
    told: bool,
}

struct Program {
    tree: ProcessTree,
    pid: Pid,
    /// It is this hook.
    hook: Option<Hook>,
    /// The warden stopped it at a deadline, or kills it on purpose.
    overdue: bool,
    /// It is being killed.
    dying: Option<Dying>,
}

/// What remains to do until a program is gone.
struct Dying {
    pauses: Pauses,
    /// When to tell that it takes long, unless that was told.
    late_at: Option<u64>,
    /// When to try again, on the boot clock, in nanoseconds; a death is looked at at once.
    again_at: u64,
    /// Which processes may not be killed, as last told, and when that is told again.
    told: Option<(Vec<String>, u64)>,
}

/// How often to tell of processes that may not be killed, in nanoseconds.
const TELL_EVERY: u64 = 60_000_000_000;

/// What woke the warden.
#[derive(Default)]
struct WakeReasons {
    socket: bool,
    runner: bool,
    death: bool,
}

impl Warden {
    fn start() -> io::Result<Self> {
        nix::sys::prctl::set_child_subreaper(true)?;
        let parent = Pid::parent();
        let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let (line, stdin, lock) = handover::receive(&socket)?;
        let Ok(ToWarden::Hello(hello)) = serde_json::from_slice(&line) else {
            return Err(io::Error::other("this command is primacy's own; use `primacy run`"));
        };
        // Files that this process has no room for are left out by the kernel. Without its lock nobody would know that it lives.
        if hello.has_lock && lock.is_none() {
            return Err(io::Error::other("the lock has not come along: too few files may be open"));
        }
        let pid = rustix::process::Pid::from_raw(parent.as_raw()).ok_or_else(|| io::Error::other("no parent"))?;
        let runner = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
        if Pid::parent() != parent {
            return Err(io::Error::other("the runner died before it was watched"));
        }
        let mut deaths = SigSet::empty();
        deaths.add(Signal::SIGCHLD);
        let mut warden = Self {
            socket,
            inbox: Vec::new(),
            runner,
            timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?,
            deaths: SignalFd::with_flags(&deaths, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            hello,
            stdin,
            _lock: lock,
            lease: None,
            program: None,
            work: None,
            token: None,
            agent: None,
            farewell: false,
            alone: false,
        };
        warden.tell(&FromWarden::Ready);
        warden.socket.set_nonblocking(true)?;
        Ok(warden)
    }

    fn watch(mut self) -> io::Result<()> {
        loop {
            self.set_timer()?;
            let woken = self.wait()?;
            // News of a renewal first: a warden that was stopped for a while kills nothing that has been extended.
            let connected = !woken.socket || self.listen();
            if self.farewell && self.program.is_none() {
                return Ok(());
            }
            if woken.runner || !connected {
                return self.succeed();
            }
            if woken.death {
                self.mind_deaths();
            }
            self.enforce();
        }
    }

    fn wait(&self) -> io::Result<WakeReasons> {
        let watched: [BorrowedFd<'_>; 4] =
            [self.socket.as_fd(), self.runner.as_fd(), self.deaths.as_fd(), self.timer.as_fd()];
        let mut fds = watched.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [socket, runner, death, _] = fds.map(|fd| fd.any().unwrap_or(false));
        Ok(WakeReasons { socket, runner, death })
    }

    /// The one next deadline, on the boot clock: it comes on time also after a suspend.
    fn set_timer(&self) -> io::Result<()> {
        let next = match (&self.lease, &self.program) {
            _ if self.hello.hooks.is_some() => self.work_deadline(),
            (_, Some(Program { dying: Some(dying), .. })) => Some(dying.again_at),
            (Some(lease), Some(_)) if lease.told => Some(lease.term.kill_at),
            (Some(lease), Some(_)) => Some(lease.term.stop_at.min(lease.term.kill_at)),
            _ => None,
        };
        match next {
            Some(nanos) => {
                let at = TimeSpec::from_duration(Duration::from_nanos(nanos.max(1)));
                self.timer.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
            }
            None => self.timer.unset()?,
        }
        Ok(())
    }

    /// Stops the program when its time has come, whatever the runner does or does not do.
    fn enforce(&mut self) {
        if self.hello.hooks.is_some() {
            return self.enforce_work();
        }
        let (Some(lease), Some(program)) = (&mut self.lease, &mut self.program) else { return };
        // A clock that cannot be read is past every deadline.
        let now = clock::boot_nanos().unwrap_or(u64::MAX);
        if let Some(dying) = &program.dying {
            if now >= dying.again_at {
                self.kill();
            }
        } else if now >= lease.term.kill_at {
            program.overdue = true;
            self.kill();
        } else if now >= lease.term.stop_at && !lease.told {
            lease.told = true;
            program.overdue = true;
            program.tree.signal(Signal::SIGTERM);
            program.tree.signal(Signal::SIGCONT);
        }
    }

    // ---- what the runner says ----

    /// Reads and obeys all that has come. `false` when the runner has hung up.
    fn listen(&mut self) -> bool {
        let mut chunk = [0; 4096];
        let connected = loop {
            match handover::read(&self.socket, &mut chunk) {
                Ok((0, _)) => break false,
                Ok((count, agent)) => {
                    self.inbox.extend_from_slice(&chunk[..count]);
                    self.agent = agent.map(UnixStream::from).or(self.agent.take());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        let mut messages = Vec::new();
        while let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.inbox.drain(..=end).collect();
            messages.extend(serde_json::from_slice(&line));
        }
        // After a pause a lead may be heard of together with its end: then nothing is started.
        for (over, message) in are_over(&messages, connected).into_iter().zip(messages) {
            match message {
                ToWarden::Lead(led) if over => self.decline(led.term),
                message => self.obey(message),
            }
        }
        connected
    }

    fn obey(&mut self, message: ToWarden) {
        match message {
            ToWarden::Hello(_) => {}
            ToWarden::Clear { led } => self.clear(led),
            ToWarden::Candidate { id } => self.hello.id = Some(id),
            ToWarden::Lead(led) => self.lead(led),
            ToWarden::Extend(term) => {
                if let Some(lease) = &mut self.lease {
                    // A program that was told to stop has until its own deadline, not a later one.
                    let kill_at = if lease.told { lease.term.kill_at.min(term.kill_at) } else { term.kill_at };
                    lease.term = Deadlines { kill_at, ..term };
                }
            }
            ToWarden::Stop { signal, kill_at } => {
                if let Some(lease) = &mut self.lease {
                    lease.told = true;
                    lease.term.kill_at = lease.term.kill_at.min(kill_at);
                }
                if self.work.is_some() {
                    self.stop_work();
                } else if let Some(signal) = signal {
                    self.forward(signal);
                }
            }
            ToWarden::Kill if self.work.is_some() => {
                self.lease_is_over();
                self.stop_work();
            }
            ToWarden::Kill => self.kill(),
            ToWarden::Forward { signal } => self.forward(signal),
            ToWarden::Farewell => {
                if self.hello.hooks.is_some() {
                    // Whatever the work does: nothing is released any more.
                    (self.work, self.lease) = (None, None);
                }
                self.kill();
                self.farewell = true;
            }
        }
    }

    /// Nothing is started, and nothing is left: as if it had been stopped at the deadline.
    fn decline(&mut self, term: Deadlines) {
        self.lease = Some(Lease { term, told: true });
        if self.hello.hooks.is_some() {
            let is_stopped = self.work.as_ref().is_none_or(Work::is_stopped);
            return self.tell(&FromWarden::WorkOver { is_stopped });
        }
        self.tell(&FromWarden::Gone { end: End::Signal(Signal::SIGKILL as i32), overdue: true });
    }

    fn lead(&mut self, Led { token, term, grace_ns }: Led) {
        self.hello.grace_ns = grace_ns;
        self.lease = Some(Lease { term, told: false });
        if clock::boot_nanos().unwrap_or(u64::MAX) >= term.kill_at {
            return self.decline(term);
        }
        if self.hello.hooks.is_some() {
            return self.begin_work(token, term);
        }
        match self.spawn(token) {
            Ok(pid) => {
                self.program = Some(Program::new(pid, None));
                self.tell(&FromWarden::Started { pid: pid.as_raw() });
            }
            Err(error) => self.tell(&FromWarden::NotStarted { message: error.to_string() }),
        }
    }

    fn spawn(&self, token: u64) -> io::Result<Pid> {
        let command = self.hello.command.iter().map(|word| OsString::from_vec(word.clone()));
        let child = Command::new("/proc/self/exe")
            .arg0("primacy")
            .arg(if self.hello.isolate { super::GATE } else { super::EXEC })
            .arg(Pid::this().to_string())
            .arg(self.hello.rights.word())
            .args(command)
            .env("PRIMACY_ELECTION", &self.hello.election)
            .env("PRIMACY_NAME", &self.hello.label)
            .env("PRIMACY_TOKEN", token.to_string())
            // It is for those who order, not for what they order.
            .env_remove(TOKEN_VARIABLE)
            .stdin(Stdio::from(self.stdin.try_clone()?))
            .process_group(0)
            .spawn()?;
        Ok(Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?))
    }

    fn forward(&self, signal: i32) {
        if let (Some(program), Ok(signal)) = (&self.program, Signal::try_from(signal)) {
            program.tree.signal(signal);
            // A stopped program would not hear it.
            if matches!(signal, Signal::SIGTERM | Signal::SIGINT | Signal::SIGQUIT | Signal::SIGHUP) {
                program.tree.signal(Signal::SIGCONT);
            }
        }
    }

    // ---- the program's end ----

    fn mind_deaths(&mut self) {
        while let Ok(Some(_)) = self.deaths.read_signal() {}
        let Some(program) = &self.program else { return reap_all_but(None) };
        if program.dying.is_some() || process_tree::is_dead(program.pid) {
            return self.kill();
        }
        reap_all_but(Some(program.pid));
    }

    /// Kills what is left of the program, and tells once all of it is gone (HAZARDS 44). What lives still is looked at
    /// again after a death, and after a while.
    fn kill(&mut self) {
        let Some(program) = &mut self.program else { return };
        let dying = program.dying.get_or_insert_with(Dying::begun);
        match program.tree.kill() {
            Attempt::Gone(end) if program.hook.is_some() => {
                let (hook, overdue) = (program.hook, program.overdue);
                self.program = None;
                self.hook_gone(hook, end, overdue);
            }
            Attempt::Gone(end) => {
                let (end, overdue) = (end.unwrap_or(End::Signal(Signal::SIGKILL as i32)), program.overdue);
                self.program = None;
                self.tell(&FromWarden::Gone { end, overdue });
            }
            Attempt::Left { immune } => {
                // Without a clock at once: better busy than late.
                let now = clock::boot_nanos().unwrap_or_default();
                let pause = u64::try_from(dying.pauses.next().as_nanos()).unwrap_or_default();
                dying.again_at = now.saturating_add(pause);
                let left = program.hook.and_then(|_| process_tree::end_of_dead(program.pid));
                let processes: Vec<String> = immune.into_iter().map(process_tree::describe).collect();
                let is_old = dying.told.as_ref().is_some_and(|(told, again)| *told == processes && now < *again);
                let is_late = dying.late_at.take_if(|late_at| now >= *late_at).is_some();
                if !processes.is_empty() && !is_old {
                    dying.told = Some((processes.clone(), now.saturating_add(TELL_EVERY)));
                    self.tell(&FromWarden::Immune { processes });
                }
                if is_late {
                    self.tell(&FromWarden::Undying);
                }
                if let Some(end) = left {
                    self.hook_left(end);
                }
            }
        }
    }

    fn tell(&mut self, message: &FromWarden) {
        if self.alone {
            let said = match message {
                FromWarden::Immune { processes } => wire::immune(processes),
                FromWarden::HookEnded { hook, end, .. } if !end.is_success() => wire::hook_failed(*hook, end),
                FromWarden::Waits => wire::WAITS.to_owned(),
                FromWarden::Undying => wire::UNDYING.to_owned(),
                FromWarden::WorkOver { is_stopped: false } => wire::IN_DOUBT.to_owned(),
                _ => return,
            };
            // Nobody else is left to say it.
            let _ = writeln!(io::stderr(), "primacy: {said}");
            return;
        }
        let mut line = serde_json::to_vec(message).unwrap_or_default();
        line.push(b'\n');
        // A runner that is gone, or has not read for a thousand messages, is noticed elsewhere.
        let _ = self.socket.write_all(&line);
    }

    // ---- the runner's end ----

    /// The runner is gone, or does not talk any more: kills the program, and releases only on proof of its death.
    fn succeed(mut self) -> io::Result<()> {
        self.alone = true;
        if self.work.is_some() {
            self.bound_by_grace();
            self.stop_work();
        } else {
            self.kill();
        }
        while self.program.is_some() || self.work.as_ref().is_some_and(|work| !work.is_over()) {
            self.set_timer()?;
            match poll(
                &mut [
                    PollFd::new(self.deaths.as_fd(), PollFlags::POLLIN),
                    PollFd::new(self.timer.as_fd(), PollFlags::POLLIN),
                ],
                PollTimeout::NONE,
            ) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => self.mind_deaths(),
                Err(error) => return Err(error.into()),
            }
            if self.hello.hooks.is_some() {
                self.enforce_work();
            }
        }
        if self.work.as_ref().is_some_and(|work| !work.is_stopped()) {
            return Ok(()); // nobody knows whether the work has stopped: the lease runs out by itself
        }
        let patience = Duration::from_millis(self.hello.patience_ms);
        if !self.runner_is_dead(patience)? {
            return Ok(()); // its lease runs out by itself
        }
        if let (Some(agent), Some(lease)) = (&mut self.agent, &self.lease) {
            agent::give_back(agent, lease.term.token);
            return Ok(());
        }
        let Some(release) = self.release() else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        if self.lease.is_some() {
            runtime.block_on(release.execute(patience));
        } else {
            // It may have led before and waited again.
            runtime.block_on(release.bury_candidate(patience));
        }
        Ok(())
    }

    fn runner_is_dead(&self, patience: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.runner.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        Ok(poll(&mut fds, patience)? > 0)
    }

    fn release(&self) -> Option<DeadLeaderRelease> {
        Some(DeadLeaderRelease {
            store: store::from_url(self.hello.store.as_ref()?).ok()?,
            election: ElectionName::new(self.hello.election.clone()).ok()?,
            holder: self.hello.holder()?,
            version: self.lease.as_ref().map_or(Some(store::Version::default()), |lease| lease.term.version())?,
        })
    }
}

impl Program {
    fn new(pid: Pid, hook: Option<Hook>) -> Self {
        Self { tree: ProcessTree::of(pid), pid, hook, overdue: false, dying: None }
    }
}

/// For each of these messages, whether a leadership that it told of is over by what came after it.
fn are_over(messages: &[ToWarden], connected: bool) -> Vec<bool> {
    let ends = |message: &ToWarden| matches!(message, ToWarden::Stop { .. } | ToWarden::Kill | ToWarden::Farewell);
    let last_end = messages.iter().rposition(ends);
    (0..messages.len()).map(|place| !connected || last_end.is_some_and(|end| end > place)).collect()
}

impl Dying {
    fn begun() -> Self {
        let patience = u64::try_from(wire::UNDYING_AFTER.as_nanos()).unwrap_or(u64::MAX);
        let late_at = clock::boot_nanos().unwrap_or_default().saturating_add(patience);
        Self { pauses: Pauses::new(), late_at: Some(late_at), again_at: 0, told: None }
    }
}

/// Reaps the dead children but this one. What cannot be listed now is reaped at the end.
fn reap_all_but(spared: Option<Pid>) {
    for child in process_tree::children().unwrap_or_default() {
        if Some(child) != spared {
            process_tree::reap(child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What ended the last leadership may be read together with the next: the program had ended before it was told to stop.
    #[test]
    fn a_lead_is_ended_by_what_follows_it_and_by_nothing_before() {
        let term = Deadlines { stop_at: 1, kill_at: 2, token: 8, beat: 1 };
        let lead = || ToWarden::Lead(Led { token: 8, term, grace_ns: 1 });
        let stop = || ToWarden::Stop { signal: None, kill_at: 1 };
        let is_over = |messages: [ToWarden; 4], connected| are_over(&messages, connected)[1];
        assert!(!is_over([stop(), lead(), ToWarden::Extend(term), ToWarden::Extend(term)], true));
        assert!(!is_over([ToWarden::Kill, lead(), ToWarden::Extend(term), ToWarden::Extend(term)], true));
        assert!(is_over([stop(), lead(), ToWarden::Extend(term), ToWarden::Extend(term)], false));
        for end in [stop(), ToWarden::Kill, ToWarden::Farewell] {
            assert!(is_over([stop(), lead(), ToWarden::Extend(term), end], true));
        }
    }
}
