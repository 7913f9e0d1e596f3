//! What the library logs, for tests that await a line of it. Shared by all tests of a process.

use std::fmt::{Debug, Write as _};
use std::sync::OnceLock;
use std::time::Duration;

use tokio::sync::watch;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

/// The lines so far, at `WARN` and `ERROR`.
pub(crate) struct Log(watch::Receiver<Vec<String>>);

impl Log {
    /// Begins to collect, unless another test of this process has begun already.
    pub(crate) fn begin() -> Self {
        static LINES: OnceLock<watch::Sender<Vec<String>>> = OnceLock::new();
        let lines = LINES.get_or_init(|| {
            let lines = watch::Sender::new(Vec::new());
            subscriber::set_global_default(Collector(lines.clone())).expect("no test sets another");
            lines
        });
        Self(lines.subscribe())
    }

    /// Waits for a line that says all of this, and returns how many do.
    pub(crate) async fn says(&mut self, says: &[&str]) -> usize {
        let count =
            |lines: &Vec<String>| lines.iter().filter(|line| says.iter().all(|part| line.contains(part))).count();
        let awaited = self.0.wait_for(|lines| count(lines) > 0);
        let lines = tokio::time::timeout(Duration::from_secs(60), awaited).await;
        count(&lines.unwrap_or_else(|_| panic!("no line says {says:?}")).expect("it is never closed"))
    }
}

struct Collector(watch::Sender<Vec<String>>);

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("primacy")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.send_modify(|lines| lines.push(line.0));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").expect("a String takes every write");
    }
}
