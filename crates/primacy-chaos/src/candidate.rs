//! A candidate: a place in the run, and the `primacy run` that fills it as long as it lasts.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use primacy_servers::{Direction, faketime, remove_wall_clock};

use crate::canary::Canary;
use crate::clock::Moment;
use crate::fault::Kind;
use crate::process::{MARK, Process};
use crate::rng::Rng;
use crate::setup::Protocol;
use crate::site::{Site, Ways};
use crate::work::{Fencing, TABLE};

/// How candidates are started.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// The command under test.
    pub(crate) primacy: PathBuf,
    /// This program, which candidates run.
    pub(crate) program: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) lease: Duration,
    pub(crate) grace: Duration,
    pub(crate) protocol: Protocol,
    /// Whether programs can have PID namespaces here.
    pub(crate) can_isolate: bool,
    /// The planted bug, if there is one.
    pub(crate) canary: Option<Canary>,
}

/// What a runner whose wall clock can be stepped is called. Only that process is touched: the library also shifts timers
/// that are absolute on the boot clock, which no step of a real wall clock does, and the warden's deadline is one.
const STEPPED: &str = "primacy-stepped";

/// One place, which is filled again when its candidate has gone.
#[derive(Debug)]
pub(crate) struct CandidateSlot {
    pub(crate) name: String,
    /// Where it finds the store.
    url: String,
    /// What is between the two, if that can be struck.
    ways: Ways,
    /// Whether packets are lost.
    is_cut: bool,
    /// Where its programs may find the fenced table.
    tables: Vec<String>,
    /// What its wall clock is told, if that can be stepped.
    clock: Option<PathBuf>,
    rng: Rng,
    pub(crate) runner: Option<Runner>,
    pub(crate) back_at: Moment,
}

/// A running `primacy run`.
#[derive(Debug)]
pub(crate) struct Runner {
    child: Child,
    pub(crate) process: Process,
    pub(crate) since: Moment,
    /// Whether its programs start others, which do not die with them unless somebody sees to it.
    pub(crate) kin: bool,
    /// Whether its program is in a PID namespace of its own.
    pub(crate) is_isolated: bool,
}

impl Runner {
    /// Whether something that its program has started goes on when nobody guards that any more.
    pub(crate) fn leaves_orphans(&self) -> bool {
        self.kin && !self.is_isolated
    }
}

impl Recipe {
    /// A place for a candidate, empty for now.
    pub(crate) fn place(&self, name: String, site: &Site, mut rng: Rng) -> Result<CandidateSlot> {
        let mut ways = site.ways()?;
        // Nobody tells candidates to begin with the same node.
        if site.peers.is_none() {
            rng.shuffle(&mut ways.links);
        }
        let (url, tables) = site.urls(&ways);
        let mut clock = None;
        // Some see the machine's own time.
        if rng.percent(60) && faketime().is_some() {
            let file = self.folder.join(format!("{name}.clock"));
            fs::write(&file, "+0\n")?;
            let stepped = self.folder.join(STEPPED);
            if !stepped.exists() {
                std::os::unix::fs::symlink(&self.primacy, stepped)?;
            }
            clock = Some(file);
        }
        Ok(CandidateSlot { name, url, ways, is_cut: false, tables, clock, rng, runner: None, back_at: Moment::now() })
    }

    /// `primacy` as an operator would call it.
    pub(crate) fn operator(&self, url: &str) -> Command {
        self.equip(Command::new(&self.primacy), url)
    }

    /// A candidate's command, on the host behind this wire. It dies with this run, whatever ends that.
    fn candidate(&self, program: &Path, place: &CandidateSlot) -> Command {
        let mut command = match &place.ways.wire {
            None => Command::new("setpriv"),
            Some(wire) => {
                let mut command = wire.command();
                command.arg("setpriv");
                command
            }
        };
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        self.equip(command, &place.url)
    }

    fn equip(&self, mut command: Command, url: &str) -> Command {
        command.env("PRIMACY_STORE", url).env(MARK, &self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn log(&self, name: &str) -> io::Result<File> {
        File::options().create(true).append(true).open(self.folder.join(format!("{name}.log")))
    }
}

impl CandidateSlot {
    /// Starts a candidate.
    pub(crate) fn fill(&mut self, recipe: &Recipe) -> Result<()> {
        let own = recipe.canary.filter(|canary| canary.has_own_candidates());
        let (mut command, kin, is_isolated) = match own {
            Some(canary) => (self.flawed(recipe, canary), false, false),
            None => self.runner(recipe),
        };
        let log = recipe.log(&self.name)?;
        let child = command.stdout(log.try_clone()?).stderr(log).spawn().context("primacy cannot be started")?;
        let process = Process::of(i32::try_from(child.id())?).context("primacy ended at once")?;
        self.runner = Some(Runner { child, process, since: Moment::now(), kin, is_isolated });
        Ok(())
    }

    /// A candidate of our own.
    fn flawed(&self, recipe: &Recipe, canary: Canary) -> Command {
        let mut command = recipe.candidate(&recipe.program, self);
        command.args(["flawed", "--name", &self.name, "--lease", &recipe.lease.as_millis().to_string()]);
        command.arg("--witness").arg(witness(&recipe.folder));
        if canary.breaks().is_none() {
            command.arg("--sound");
        }
        command
    }

    /// `primacy run` with a program that has some bad habits; whether that starts others, and whether it is isolated.
    fn runner(&mut self, recipe: &Recipe) -> (Command, bool, bool) {
        let habit = self.rng.percent(40);
        let alone = self.rng.percent(50);
        let is_bare = recipe.canary == Some(Canary::NoIsolation);
        let kin = habit || is_bare;
        // The library that steps clocks keeps what it shares under the process's number, which is not its own in there.
        let is_isolated = alone && recipe.can_isolate && self.clock.is_none() && !is_bare;
        let primacy = match &self.clock {
            Some(_) => recipe.folder.join(STEPPED),
            None => recipe.primacy.clone(),
        };
        let mut command = recipe.candidate(&primacy, self);
        let millis = |span: Duration| format!("{}ms", span.as_millis());
        let rng = &mut self.rng;
        command.args(["run", "-v", "--wait", "1h", "--name", &self.name]);
        let by_registers = match recipe.protocol {
            Protocol::Lease => false,
            Protocol::Registers => true,
            Protocol::Mixed => rng.percent(50),
        };
        if by_registers {
            let round = millis(recipe.lease / 2);
            command.args(["--protocol", "registers", "--round", &round, "--round-most", &round]);
        } else {
            command.args(["--lease", &millis(recipe.lease)]);
        }
        if is_isolated {
            command.arg("--isolate");
        }
        command.args(["--grace", &millis(recipe.grace), "--"]);
        command.arg(&recipe.program).arg("work").env(TABLE, &self.tables[rng.index(self.tables.len())]);
        command.arg("--witness").arg(witness(&recipe.folder));
        command.args(["--linger", &rng.span(Duration::ZERO, recipe.grace / 2).as_millis().to_string()]);
        command.args(["--hold", &rng.below(50).to_string()]);
        if rng.percent(25) || is_bare {
            command.arg("--deaf");
        }
        if kin {
            command.arg("--kin");
        }
        let fencing = match rng.percent(50) {
            _ if recipe.canary == Some(Canary::NoFence) => Fencing::None,
            true => Fencing::Library,
            false => Fencing::Function,
        };
        command.args(["--fencing", fencing.word()]);
        if let (Some(clock), Some(library)) = (&self.clock, faketime()) {
            command.env("LD_PRELOAD", library).env("FAKETIME_ONLY_CMDS", STEPPED).env("FAKETIME_TIMESTAMP_FILE", clock);
            // Read again at every look, so that it can be stepped; the clocks that count are left alone.
            command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        (command, kin, is_isolated)
    }

    /// How the candidate ended, if it has; its place is empty then, for about this long.
    pub(crate) fn ended(&mut self, pause: Duration) -> Result<Option<ExitStatus>> {
        let Some(runner) = &mut self.runner else { return Ok(None) };
        let Some(status) = runner.child.try_wait()? else { return Ok(None) };
        remove_wall_clock(runner.child.id());
        self.runner = None;
        self.back_at = Moment::now() + self.rng.span(pause / 10, pause);
        Ok(Some(status))
    }

    /// Does to its ways what a fault does.
    pub(crate) fn strike(&mut self, kind: Kind, longer: Duration) -> Result<()> {
        for link in &self.ways.links {
            match kind {
                Kind::Cut => {
                    link.kill_connections();
                }
                Kind::LoseAnswer => link.lose_next_answer(),
                Kind::Mute | Kind::Isolate => link.cut(),
                Kind::MuteRequests => link.hold(Direction::ToServer),
                Kind::MuteAnswers => link.hold(Direction::ToClient),
                Kind::SlowAll => link.move_away(longer),
                Kind::Slow => link.delay(longer / 2),
                Kind::SlowAnswers | Kind::Fade => link.delay_way(Direction::ToClient, longer),
                _ => {}
            }
        }
        let Some(wire) = self.ways.wire.as_ref().filter(|_| kind.cuts_wire()) else { return Ok(()) };
        self.is_cut = true;
        if kind != Kind::NetCutOut {
            wire.cut_in()?;
        }
        if kind != Kind::NetCutIn {
            wire.cut_out()?;
        }
        Ok(())
    }

    /// Leads its way to one of several servers elsewhere.
    pub(crate) fn lead(&self, server: usize, port: u16) {
        if let Some(link) = self.ways.links.get(server) {
            link.point_to(port);
            link.kill_connections();
        }
    }

    /// Ends all that strikes its ways; what was held on the links arrives, or is lost with its connection.
    pub(crate) fn heal(&mut self, lost: bool) {
        for link in &self.ways.links {
            if lost {
                link.kill_connections();
            }
            link.heal();
        }
        if let Some(wire) = self.ways.wire.as_ref().filter(|_| self.is_cut) {
            wire.heal();
            self.is_cut = false;
        }
    }

    /// Steps its wall clock to `offset` seconds from the machine's; `false` if it has none of its own.
    pub(crate) fn step_clock(&self, offset: i64) -> bool {
        self.clock.as_ref().is_some_and(|file| fs::write(file, format!("{offset:+}\n")).is_ok())
    }
}

impl Runner {
    pub(crate) fn warden(&self) -> Option<Process> {
        self.process.children().first().copied()
    }

    /// The program: the warden's eldest child, or its grandchild's, behind the gate and the first process of a namespace.
    pub(crate) fn program(&self) -> Option<Process> {
        let between = if self.is_isolated { 2 } else { 0 };
        (0..=between).try_fold(self.warden()?, |parent, _| parent.children().first().copied())
    }
}

/// Where the programs of a run meet.
pub(crate) fn witness(folder: &Path) -> PathBuf {
    folder.join("witness")
}
