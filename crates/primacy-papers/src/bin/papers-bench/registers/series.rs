//! The figures of a series, in a file that outlives a run: it grows with each piece that is measured.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};

use super::cost::{Cost, Form};
use super::figure;
use super::zookeeper::Latched;
use primacy_bench::Kind;

/// Everything that was measured on one machine.
#[derive(Serialize, Deserialize)]
pub(super) struct Series {
    #[serde(skip)]
    file: PathBuf,
    /// The setup, without which a figure means nothing.
    machine: String,
    /// In order, one for each store, number and form.
    costs: Vec<Cost>,
    /// The same of ZooKeeper, by the number of clients.
    #[serde(default)]
    zookeeper: Vec<Latched>,
}

impl Series {
    /// What the file holds, or nothing if there is none yet.
    ///
    /// # Errors
    /// When it cannot be read, or is of another machine.
    pub(super) fn load(file: &Path, machine: &str) -> Result<Self> {
        let mut series = match fs::read(file) {
            Ok(text) => serde_json::from_slice::<Self>(&text).with_context(|| file.display().to_string())?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Self { file: PathBuf::new(), machine: machine.to_owned(), costs: Vec::new(), zookeeper: Vec::new() }
            }
            Err(error) => return Err(error).with_context(|| file.display().to_string()),
        };
        ensure!(
            series.machine == machine,
            "{} is of another {}: name another file with --json",
            file.display(),
            series.machine
        );
        series.file = file.to_owned();
        Ok(series)
    }

    /// Adds a figure. It takes the place of what was measured of the same before.
    pub(super) fn put(&mut self, cost: Cost) {
        let key = |cost: &Cost| (cost.store as u8, cost.candidates, cost.form, cost.each());
        self.costs.retain(|other| key(other) != key(&cost));
        self.costs.push(cost);
        self.costs.sort_by_key(key);
    }

    /// The same for ZooKeeper.
    pub(super) fn put_zookeeper(&mut self, latched: Latched) {
        self.zookeeper.retain(|other| other.candidates != latched.candidates);
        self.zookeeper.push(latched);
        self.zookeeper.sort_by_key(|latched| latched.candidates);
    }

    /// Writes the file, and both plots beside it.
    ///
    /// # Errors
    /// When one cannot be written.
    pub(super) fn save(&self) -> Result<()> {
        let folder = self.folder();
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&self.file, text).with_context(|| self.file.display().to_string())?;
        figure::draw(folder, &self.costs, &self.zookeeper)
            .with_context(|| format!("cannot draw into {}", folder.display()))
    }

    /// Where the file and the plots are.
    pub(super) fn folder(&self) -> &Path {
        self.file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
    }

    /// How much of a server primacy takes of what the published form took for as many candidates.
    pub(super) fn beside_published(&self, cost: &Cost) -> Option<String> {
        let published = self.find(cost.store, cost.candidates, Form::Published, 1)?;
        let other = (cost.form == Form::Primacy && published.server_cpu > 0.0).then_some(published)?;
        Some(format!("server CPU: {:.2} of the published form's", cost.server_cpu / other.server_cpu))
    }

    fn find(&self, store: Kind, candidates: usize, form: Form, each: usize) -> Option<&Cost> {
        self.costs
            .iter()
            .find(|cost| (cost.store, cost.candidates, cost.form, cost.each()) == (store, candidates, form, each))
    }

    fn of_store(&self, store: Kind) -> impl Iterator<Item = &Cost> {
        self.costs.iter().filter(move |cost| cost.store == store)
    }
}

/// As tables for the manual: one for each store, a column for each number of candidates.
impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for latched in &self.zookeeper {
            writeln!(f, "{latched}")?;
        }
        for &store in Kind::value_variants() {
            let numbers: BTreeSet<usize> = self.of_store(store).map(|cost| cost.candidates).collect();
            if numbers.is_empty() {
                continue;
            }
            let forms: BTreeSet<(Form, usize)> = self.of_store(store).map(|cost| (cost.form, cost.each())).collect();
            let columns: String = numbers.iter().map(|number| format!(" {number} |")).collect();
            writeln!(f, "| {store}, candidates |{columns}\n|---|{}", "---|".repeat(numbers.len()))?;
            for (form, each) in forms {
                let name = match (form, each) {
                    (Form::Published, _) => "published".to_owned(),
                    (Form::Primacy, 1) => "primacy".to_owned(),
                    (Form::Primacy, each) => format!("primacy, {each} in each process"),
                };
                let mut row = |what: &str, cell: &dyn Fn(&Cost) -> Option<String>| -> fmt::Result {
                    let cells = numbers.iter().map(|&number| {
                        let told = self.find(store, number, form, each).and_then(cell).unwrap_or_default();
                        if told.is_empty() { " |".to_owned() } else { format!(" {told} |") }
                    });
                    writeln!(f, "| {name}: {what} |{}", cells.collect::<String>())
                };
                row("server CPU, % of a core", &|cost| Some(format!("{:.2}", cost.server_cpu * 100.0)))?;
                if form == Form::Primacy {
                    row("of the published form's", &|cost| {
                        let published = self.find(store, cost.candidates, Form::Published, 1)?;
                        (published.server_cpu > 0.0).then(|| format!("{:.2}", cost.server_cpu / published.server_cpu))
                    })?;
                }
                row("rows read a second", &|cost| Some(format!("{:.0}", cost.rows_per_second?)))?;
                row("round, ms; evictions", &|cost| Some(format!("{}; {}", cost.round_ms, cost.evictions)))?;
                row("failover, s: median / worst", &|cost| {
                    let gaps = cost.gaps()?;
                    let [median, worst] = [50, 100].map(|percent| gaps.percentile(percent).as_secs_f64());
                    Some(format!("{median:.2} / {worst:.2}"))
                })?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
