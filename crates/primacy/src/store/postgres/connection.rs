//! One connection, with whatever the server says on its own.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;
use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::{AsyncMessage, Client, Row, Socket};
use tracing::debug;

use super::super::StoreError;
use super::cancel::CancelHandle;
use super::ears::Ringer;
use super::errors::{Fault, Stake};
use super::notifier::{Channel, ListenerGuard};
use super::parameter::Parameter;
use super::statements;
use crate::qualified::Schema;
use crate::{Instant, clock};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A candidate: the server must take writes.
    Stand,
    /// An observer or operator: a primary that is read-only for this user still shows the truth.
    Watch,
}

/// What `pg_notify` says at the commit when the server's queue has no room: program_limit_exceeded.
const QUEUE_IS_FULL: &str = "54000";

/// What the server said between the answers.
#[derive(Debug)]
pub(super) struct Events {
    /// It warned: of a commit that may not have reached its standbys, for one.
    warned: AtomicBool,
    ringer: Ringer,
    /// Until the connection ends.
    listening: Mutex<Option<ListenerGuard>>,
}

impl Events {
    pub(super) fn new(ringer: Ringer) -> Self {
        Self { warned: AtomicBool::new(false), ringer, listening: Mutex::new(None) }
    }

    fn listening(&self) -> MutexGuard<'_, Option<ListenerGuard>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets go of the notifier also when the task is aborted.
struct NotifierGuard(Arc<Events>);

impl Drop for NotifierGuard {
    fn drop(&mut self) {
        *self.0.listening() = None;
        if let Ringer::Fleet(ears) = &self.0.ringer {
            ears.has_ended();
        }
    }
}

/// Moves the connection's bytes until it ends.
pub(super) async fn attend<S>(mut connection: tokio_postgres::Connection<Socket, S>, events: Arc<Events>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let guard = NotifierGuard(events);
    let events = &guard.0;
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notice(notice))) => {
                debug!(%notice, "a notice from the server");
                // Notices come before the end of the answer to which they belong.
                if casts_doubt(&notice) {
                    events.warned.store(true, Ordering::Release);
                }
            }
            Some(Ok(AsyncMessage::Notification(notification))) => events.ringer.ring(notification.channel()),
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                debug!(%error, "a connection ended");
                return;
            }
            None => return,
        }
    }
}

/// Whether this may be the only sign that a commit did not wait for its synchronous standby. The message is translated
/// and the code is general; what tells is the name of the server's routine. A server that leaves it out is not trusted.
fn casts_doubt(notice: &DbError) -> bool {
    let is_warning = notice.parsed_severity().is_none_or(|severity| severity == Severity::Warning);
    is_warning && notice.routine().is_none_or(|routine| routine == "SyncRepWaitForLSN")
}

/// What a connection remembers of what it has prepared.
#[derive(Debug, Default)]
pub(super) struct Preparations {
    /// Templates, and the names of the statements that they stand for.
    pub(super) known: Vec<(&'static str, String)>,
    pub(super) surprises: u8,
}

/// A connection to a server that was found fit.
#[derive(Debug)]
pub(super) struct Connection {
    client: Arc<Client>,
    task: Option<JoinHandle<()>>,
    cancel: Option<CancelHandle>,
    events: Arc<Events>,
    shown: Arc<str>,
    is_local: bool,
    /// Where the tables are.
    schema: Schema,
    /// Whether `schema` is still to be found.
    is_open: bool,
    is_impatient: bool,
    /// Set while a statement is under way: one whose future was dropped leaves its outcome unknown.
    unfit: bool,
    begun_at: Instant,
    /// The shortest time from a statement to its answer: about a round trip.
    quickest: Duration,
    pub(super) preparations: Preparations,
}

impl Connection {
    /// A connection that was just made. `schema`: where the tables are, if that is known.
    pub(super) fn new(
        client: Client,
        task: JoinHandle<()>,
        cancel: CancelHandle,
        events: Arc<Events>,
        shown: Arc<str>,
        is_local: bool,
        schema: Option<Schema>,
    ) -> Self {
        Self {
            client: Arc::new(client),
            task: Some(task),
            cancel: Some(cancel),
            events,
            shown,
            is_local,
            is_open: schema.is_none(),
            is_impatient: false,
            schema: schema.unwrap_or_else(Schema::public),
            unfit: false,
            begun_at: Instant::ZERO,
            quickest: Duration::MAX,
            preparations: Preparations::default(),
        }
    }

    /// What it is made of, for a question beside others in one round trip.
    pub(super) fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client)
    }

    /// Whether it stays on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.is_local
    }

    /// Where it leads, for messages.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// About how long a round trip takes.
    pub(super) fn quickest(&self) -> Duration {
        if self.quickest == Duration::MAX { Duration::ZERO } else { self.quickest }
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    pub(super) fn schema_is_open(&self) -> bool {
        self.is_open
    }

    pub(super) fn use_schema(&mut self, schema: Schema) {
        self.schema = schema;
        self.is_open = false;
    }

    /// From now on a step that meets somebody's lock on a row ends at once, with [`LOCKED`](super::errors::LOCKED): what
    /// others ask over this connection does not wait for it.
    pub(super) fn be_impatient(&mut self) {
        self.is_impatient = true;
    }

    /// Whether another statement may be sent over it.
    pub(super) fn is_fit(&self) -> bool {
        !self.unfit && !self.client.is_closed()
    }

    /// The statement that a template stands for.
    pub(super) fn text(&self, template: &str) -> String {
        match self.is_impatient {
            true => self.schema.statement(&statements::impatient(template)),
            false => self.schema.statement(template),
        }
    }

    /// Whether the schema is to be looked for again, after tables have been made.
    pub(super) fn reopen_schema(&mut self, is_open: bool) {
        self.is_open = is_open;
    }

    /// This connection rings a notifier from now on.
    pub(super) fn listens(&self, listening: ListenerGuard) {
        *self.events.listening() = Some(listening);
    }

    /// What makes it ring, if anything does.
    pub(super) fn hears(&self) -> Option<Channel> {
        self.events.listening().as_ref().map(ListenerGuard::to)
    }

    /// Runs one statement, a template, which is a transaction of its own, in one round trip and without a name on the
    /// server. All rows have come, and the commit is through, when this returns.
    pub(super) async fn run(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
        stake: Stake,
    ) -> Result<Vec<Row>, Fault> {
        let ran = self.run_text(&self.text(statement), parameters, stake).await;
        // Raised before the commit, so that nothing was done.
        if stake == Stake::Writing
            && matches!(&ran, Err(fault) if fault.code() == Some(QUEUE_IS_FULL))
            && let Some(silent) = statements::silent(statement)
        {
            debug!(fault = ?ran.err(), "the change is made without its notification");
            return self.run_text(&self.text(&silent), parameters, stake).await;
        }
        ran
    }

    /// The same, of a statement as the server reads it.
    pub(super) async fn run_text(
        &mut self,
        statement: &str,
        parameters: &[Parameter<'_>],
        stake: Stake,
    ) -> Result<Vec<Row>, Fault> {
        self.begin()?;
        let typed: Vec<_> = parameters.iter().map(Parameter::typed).collect();
        let result = self.client.query_typed(statement, &typed).await;
        self.end(stake, result)
    }

    /// Prepares a statement, a template, and runs another one that needs it, as the server reads it, in one round trip.
    /// Whether the first has failed is told by the second.
    pub(super) async fn run_prepared(
        &mut self,
        prepare: &str,
        statement: &str,
        stake: Stake,
    ) -> Result<Vec<Row>, Fault> {
        self.begin()?;
        let prepare = self.text(prepare);
        let prepared = self.client.batch_execute(&prepare);
        let ran = self.client.query_typed(statement, &[]);
        let (_, result) = tokio::join!(biased; prepared, ran);
        self.end(stake, result)
    }

    /// Runs several statements without parameters, a template, as one transaction, in one round trip.
    pub(super) async fn run_batch(&mut self, statements: &str, stake: Stake) -> Result<(), Fault> {
        self.begin()?;
        let result = self.client.batch_execute(&self.schema.statement(statements)).await;
        self.end(stake, result)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        let refuse = |why: &str| Err(Fault::Said(StoreError::Unreachable(format!("{}: {why}", self.shown))));
        if self.unfit {
            return refuse("a step was abandoned on this connection; open another");
        }
        // Certain: nothing of this statement has been sent.
        if self.client.is_closed() {
            return refuse("the connection has ended");
        }
        self.events.warned.store(false, Ordering::Release);
        (self.unfit, self.begun_at) = (true, clock::now());
        Ok(())
    }

    fn end<T>(&mut self, stake: Stake, result: Result<T, tokio_postgres::Error>) -> Result<T, Fault> {
        self.unfit = false;
        self.quickest = self.quickest.min(clock::now().since(self.begun_at));
        let answer = result?;
        // R11: a commit whose wait for a synchronous standby was cut short is answered with a warning only.
        if stake == Stake::Writing && self.events.warned.load(Ordering::Acquire) {
            let why = "the server warned that the change may not have reached its synchronous standby";
            return Err(Fault::Doubtful(why.into()));
        }
        Ok(answer)
    }
}

impl Drop for Connection {
    /// A statement whose answer nobody awaits any more may wait for a lock for hours, and the next attempt behind it:
    /// the server is told to give it up. Nobody believes what it did or did not do (rule R8).
    fn drop(&mut self) {
        let (Some(task), Some(stop)) = (self.task.take(), self.cancel.take()) else { return };
        if !self.unfit || task.is_finished() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(stop.until_it_ends(task));
        }
    }
}
