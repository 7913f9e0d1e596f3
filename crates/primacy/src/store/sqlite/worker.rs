//! One thread per connection: it owns what must not move, and takes one task at a time.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use rusqlite::InterruptHandle;
use tokio::sync::oneshot;

use super::super::StoreError;
use crate::{Instant, clock};

/// How long one task may wait for locks altogether. Below the time-out of any call with a lease of five seconds or
/// more; a shorter one is abandoned by its caller, which ends the wait too.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// A thread with an `S` of its own.
pub(super) struct Worker<S> {
    tasks: mpsc::Sender<Task<S>>,
    abandoned: Arc<Abandoned>,
    /// Set while a task is under way: one whose future was dropped leaves its outcome unknown.
    unfit: bool,
}

/// How many threads for one file may be stuck at a time: their owners gave them up, and the system has not let them go, as
/// with a disk that does not answer. At this number, no other is started.
const STUCK_MOST: usize = 64;

/// The threads for one file that were given up and have not ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Stuck(Arc<AtomicUsize>);

type Task<S> = Box<dyn FnOnce(&mut S) + Send>;

/// Whether the worker's owner is gone, and how to stop what it started.
#[derive(Default)]
pub(super) struct Abandoned {
    flag: AtomicBool,
    interrupt: OnceLock<InterruptHandle>,
    stuck: Stuck,
    /// Whether the owner is gone, or the thread has ended: whichever is first.
    one_has_gone: AtomicBool,
}

impl Abandoned {
    fn given_up(&self) {
        // Counted before the thread can take it back.
        self.stuck.0.fetch_add(1, Ordering::AcqRel);
        if self.one_has_gone.swap(true, Ordering::AcqRel) {
            self.stuck.0.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Held by the thread until it ends, also by a panic.
struct Life(Arc<Abandoned>);

impl Drop for Life {
    fn drop(&mut self) {
        if self.0.one_has_gone.swap(true, Ordering::AcqRel) {
            self.0.stuck.0.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Abandoned {
    /// Lets the end of the worker interrupt what this handle's connection is doing.
    pub(super) fn on_drop(&self, interrupt: InterruptHandle) {
        drop(self.interrupt.set(interrupt));
    }

    fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }
}

impl<S: 'static> Worker<S> {
    /// Starts the thread, which opens its `S` first.
    pub(super) async fn start<O>(stuck: &Stuck, open: O) -> Result<Self, StoreError>
    where
        O: FnOnce(&Abandoned) -> Result<S, StoreError> + Send + 'static,
    {
        let waiting = stuck.0.load(Ordering::Acquire);
        if waiting >= STUCK_MOST {
            let why = "threads still wait for its disk, although their calls were given up; no more are started";
            return Err(StoreError::Unreachable(format!("{waiting} {why}")));
        }
        let (tasks, queue) = mpsc::channel::<Task<S>>();
        let (opened, outcome) = oneshot::channel();
        let abandoned = Arc::new(Abandoned { stuck: stuck.clone(), ..Abandoned::default() });
        let life = Life(Arc::clone(&abandoned));
        let worker = Self { tasks, abandoned: Arc::clone(&abandoned), unfit: false };
        std::thread::Builder::new()
            .name("primacy-sqlite".into())
            .stack_size(512 * 1024)
            .spawn(move || {
                let _life = life;
                Wait::begin(&abandoned);
                let mut state = match open(&abandoned) {
                    Ok(state) => state,
                    Err(error) => return drop(opened.send(Err(error))),
                };
                if opened.send(Ok(())).is_err() {
                    return;
                }
                for task in queue {
                    Wait::begin(&abandoned);
                    task(&mut state);
                }
            })
            .map_err(|error| StoreError::Unreachable(format!("no thread could be started for it: {error}")))?;
        match outcome.await {
            Ok(result) => result.map(|()| worker),
            Err(_) => Err(StoreError::Unreachable(DIED.into())),
        }
    }

    /// Begins a task that lasts until the worker is dropped, in the place of all others.
    pub(super) fn devote(&mut self, task: impl FnOnce(&mut S) + Send + 'static) -> Result<(), StoreError> {
        self.unfit = true;
        self.tasks.send(Box::new(task)).map_err(|_| StoreError::Unreachable(DIED.into()))
    }

    /// Runs one task. Once its future was dropped unfinished, every further call is refused.
    pub(super) async fn call<T, F>(&mut self, task: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut S) -> Result<T, StoreError> + Send + 'static,
    {
        if self.unfit {
            return Err(StoreError::Unreachable("a step was abandoned on this connection; open another".into()));
        }
        let (reply, answer) = oneshot::channel();
        let task = Box::new(move |state: &mut S| {
            if !reply.is_closed() {
                let result = task(state);
                drop(reply.send(result));
            }
        });
        self.unfit = true;
        self.tasks.send(task).map_err(|_| StoreError::Unreachable(DIED.into()))?;
        let result = answer.await.map_err(|_| StoreError::Unknown(DIED.into()))?;
        self.unfit = false;
        result
    }
}

pub(super) const DIED: &str = "the thread of this connection has died";

impl<S> fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("unfit", &self.unfit).finish_non_exhaustive()
    }
}

impl<S> Drop for Worker<S> {
    /// Never waits: the thread ends by itself as soon as the interrupted statement lets it.
    fn drop(&mut self) {
        self.abandoned.flag.store(true, Ordering::Release);
        self.abandoned.given_up();
        if let Some(interrupt) = self.abandoned.interrupt.get() {
            interrupt.interrupt();
        }
    }
}

/// The present task's patience with the locks of others.
struct Wait {
    until: Instant,
    /// A shorter patience for a part of the task.
    limit: Option<Instant>,
    abandoned: Option<Arc<Abandoned>>,
}

thread_local! {
    static WAIT: RefCell<Wait> =
        const { RefCell::new(Wait { until: Instant::ZERO, limit: None, abandoned: None }) };
}

impl Wait {
    fn begin(abandoned: &Arc<Abandoned>) {
        let wait = Self { until: clock::now() + PATIENCE, limit: None, abandoned: Some(Arc::clone(abandoned)) };
        WAIT.with_borrow_mut(|slot| *slot = wait);
    }

    fn is_over(&self) -> bool {
        clock::now() >= self.limit.map_or(self.until, |limit| limit.min(self.until))
            || self.abandoned.as_ref().is_some_and(|abandoned| abandoned.is_set())
    }
}

/// A part of the task begins that may wait for locks for as long as a whole one.
pub(super) fn wait_anew() {
    WAIT.with_borrow_mut(|wait| wait.until = clock::now() + PATIENCE);
}

/// Runs a part of the task that may wait for locks no longer than `most`.
pub(super) fn with_patience<T>(most: Duration, part: impl FnOnce() -> T) -> T {
    WAIT.with_borrow_mut(|wait| wait.limit = Some(clock::now() + most));
    let result = part();
    WAIT.with_borrow_mut(|wait| wait.limit = None);
    result
}

/// Waits a little for a lock; `false` when it is time to give up. SQLite's own waiting backs off to 100 ms and lets a
/// waiter starve for seconds among 50 processes; short jittered sleeps do not.
pub(super) fn wait_for_lock(_attempt: i32) -> bool {
    let go_on = !WAIT.with_borrow(Wait::is_over);
    if go_on {
        #[expect(clippy::disallowed_methods, reason = "another process gives up its lock without telling anyone")]
        std::thread::sleep(Duration::from_micros(rand::random_range(500..3_500)));
    }
    go_on
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn threads_that_are_stuck_are_bounded_and_others_start_again_when_they_end() {
        let stuck = Stuck::default();
        let (gate, open) = mpsc::channel::<()>();
        let open = Arc::new(std::sync::Mutex::new(open));
        let mut given_up = Vec::new();
        for _ in 0..STUCK_MOST {
            let mut worker = Worker::start(&stuck, |_| Ok(())).await.expect("below the bound");
            let open = Arc::clone(&open);
            let mut call = Box::pin(async move {
                let wait = move |(): &mut ()| {
                    drop(open.lock().map(|open| open.recv()));
                    Ok(())
                };
                drop(worker.call(wait).await);
            });
            assert!(asked_once(call.as_mut()).await.is_none(), "it waits");
            given_up.push(call);
        }
        assert!(Worker::start(&stuck, |_| Ok(())).await.is_ok(), "none is given up yet");
        drop(given_up);
        let refused = Worker::start(&stuck, |_| Ok(())).await;
        assert!(matches!(refused, Err(StoreError::Unreachable(_))), "{refused:?}");
        drop(gate);
        let again = async {
            while Worker::start(&stuck, |_| Ok(())).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), again).await.expect("they have ended");
    }

    /// What a future has after it was asked once.
    async fn asked_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        tokio::select! {
            biased;
            result = future => Some(result),
            () = tokio::task::yield_now() => None,
        }
    }
}
