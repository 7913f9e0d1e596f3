//! CPU time of processes, from the kernel's own account in nanoseconds.

use std::fs;
use std::time::Duration;

/// Of every thread of a process.
pub(crate) fn of(pid: u32) -> Duration {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Duration::ZERO };
    let times = tasks.flatten().filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(times.sum())
}

/// Of a process and of all that it has started and that still runs.
pub(crate) fn with_children(pid: u32) -> Duration {
    of(pid) + children(pid).into_iter().map(with_children).sum::<Duration>()
}

/// What a process has started and that still runs.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.collect::<String>().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}
