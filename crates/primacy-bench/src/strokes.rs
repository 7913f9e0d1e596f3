//! What a neighbour does without end, and a control that burns as much CPU.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What a neighbour does, until it is told that it is over.
#[derive(Default)]
pub(crate) struct Strokes {
    over: AtomicBool,
    count: AtomicU64,
}

impl Strokes {
    pub(crate) fn go_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// Counts one, and says how many there were before.
    pub(crate) fn note(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// It is over.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Burns this number of cores until it is told that it is over.
pub(crate) fn burn(cores: f64, strokes: &Strokes) {
    const SLICE: Duration = Duration::from_millis(5);
    let threads = cores.ceil().max(1.0) as usize;
    let busy = SLICE.mul_f64((cores / threads as f64).clamp(0.0, 1.0));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while strokes.go_on() {
                    let begin = Instant::now();
                    while begin.elapsed() < busy {
                        std::hint::spin_loop();
                    }
                    thread::sleep(SLICE.saturating_sub(begin.elapsed()));
                }
            });
        }
    });
}
