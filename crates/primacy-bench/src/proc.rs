//! What processes use, from the kernel's own account: CPU time in nanoseconds, memory, threads.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// A process that this one has started, and that ends with this.
pub(crate) struct OwnProcess(pub(crate) Child);

impl OwnProcess {
    /// Waits until it says on its standard output, which is piped, that it is ready.
    ///
    /// # Errors
    /// If it says something else, or ends.
    pub(crate) fn await_ready(&mut self) -> Result<()> {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().context("it has an output")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "a process of the benchmark ended: {line}");
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for OwnProcess {
    fn drop(&mut self) {
        // One that has ended already needs neither.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// CPU time of every thread of a process.
pub fn cpu(pid: u32) -> Duration {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let times = tasks.flatten().filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(times.sum())
}

/// CPU time of this process, also of its threads that have ended; to 10 ms.
pub(crate) fn own_cpu() -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name before it may have spaces.
    let fields = text.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: u32 = fields.skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
    TICK * ticks
}

/// Of a process and of all that it has started and that still runs.
pub(crate) fn cpu_with_children(pid: u32) -> Duration {
    cpu(pid) + children(pid).into_iter().map(cpu_with_children).sum::<Duration>()
}

/// The memory of a process in bytes. What several share is divided among them.
pub(crate) fn memory(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).map_or(0, |kilobytes| kilobytes * 1024)
}

/// Of a process and of all that it has started and that still runs.
pub(crate) fn memory_with_children(pid: u32) -> u64 {
    memory(pid) + children(pid).into_iter().map(memory_with_children).sum::<u64>()
}

/// How many threads a process has.
pub(crate) fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// How many files a process has open.
pub(crate) fn files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// What a process has started and that still runs.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.collect::<String>().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
