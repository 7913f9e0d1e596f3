//! One connection: bytes come, commands are begun, replies go out in the order of the commands, many in one write.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::timeout;

use super::hub::{Entered, Hub};
use super::line::Line;
use super::session::{Session, Step};
use super::statistics::add;
use crate::resp::{Decoder, Limits};

/// How many commands are begun before other connections have their turn.
const TURN_MAX: usize = 256;
/// How many commands a read of bytes counts for.
const READ_COST: usize = 32;
/// How many arguments of a request are kept without asking for memory.
const FEW: usize = 8;
/// How long, and for how many bytes, a closed connection is read from, so that the client gets the last reply instead of a reset.
const LINGER: (Duration, u64) = (Duration::from_secs(2), 64 << 20);

/// One connection and what it is doing.
pub(super) struct Connection<S> {
    stream: S,
    hub: Rc<Hub>,
    line: Rc<Line>,
    decoder: Decoder,
    /// Whether the decoder has the limits of a client that is known.
    has_full_limits: bool,
    session: Session,
    /// A command that waits until it may be begun.
    stalled: Option<Step>,
    /// Whether the decoder may have another request.
    has_requests: bool,
    /// Nothing more will come.
    is_at_end: bool,
    is_flushed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(stream: S, entered: &Entered) -> Self {
        let (hub, line) = (Rc::clone(&entered.hub), Rc::clone(&entered.line));
        let session = Session::new(Rc::clone(&hub), Rc::clone(&line));
        Self {
            stream,
            hub,
            line,
            decoder: Decoder::new(Limits::UNAUTHENTICATED),
            has_full_limits: false,
            session,
            stalled: None,
            has_requests: false,
            is_at_end: false,
            is_flushed: true,
        }
    }

    /// Serves it until it ends.
    pub(super) async fn serve(mut self) {
        let ended = std::future::poll_fn(|context| {
            self.line.look(context.waker());
            let polled = self.poll(context);
            self.line.sleep();
            polled
        });
        if let Ok(()) = ended.await
            && !self.line.is_ended()
            && self.stream.shutdown().await.is_ok()
            && !self.is_at_end
        {
            let mut rest = self.stream.take(LINGER.1);
            let drain = async {
                let mut piece = [0; 1024];
                while rest.read(&mut piece).await.is_ok_and(|length| length > 0) {}
            };
            let _ = timeout(LINGER.0, drain).await;
        }
    }

    /// Ready when the connection has ended: in order, or because it is lost or cut off.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut budget = TURN_MAX;
        loop {
            let had_room = self.begin(&mut budget, context);
            self.send(context)?;
            if self.line.is_ended() {
                return Poll::Ready(Ok(()));
            }
            let is_over = self.session.is_over || self.hub.is_ending.get();
            let is_exhausted = self.stalled.is_none() && !self.has_requests;
            if (is_over || self.is_at_end && is_exhausted) && self.line.is_idle() && self.line.unsent() == 0 {
                return if self.is_flushed { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            if budget == 0 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            match () {
                // Replies are sent now that had kept commands from being begun.
                () if !had_room && !is_exhausted && !is_over && self.line.has_room() => {}
                () if is_exhausted && !is_over && !self.is_at_end && self.line.has_room() => {
                    if self.read(context)?.is_pending() {
                        return Poll::Pending;
                    }
                    budget = budget.saturating_sub(READ_COST);
                }
                () => return Poll::Pending,
            }
        }
    }

    /// Begins as many commands as the order, the bounds and the turn allow. Returns whether there is room for their replies.
    fn begin(&mut self, budget: &mut usize, context: &mut Context<'_>) -> bool {
        while *budget > 0 && !self.session.is_over && !self.line.is_ended() {
            if !self.line.has_room() {
                return false;
            }
            let step = match self.stalled.take() {
                Some(step) => step,
                None if !self.has_requests || self.hub.is_ending.get() => break,
                None => match self.next() {
                    Some(step) => step,
                    None => break,
                },
            };
            *budget -= 1;
            self.stalled = self.session.begin(step, context);
            if self.stalled.is_some() {
                break;
            }
        }
        true
    }

    /// The next request, if all of it has come.
    fn next(&mut self) -> Option<Step> {
        if self.has_full_limits != self.line.is_known.get() {
            self.has_full_limits = self.line.is_known.get();
            let limits = if self.has_full_limits { self.hub.request_limits } else { Limits::UNAUTHENTICATED };
            self.decoder.set_limits(limits);
        }
        match self.decoder.request() {
            Ok(None) => {
                self.has_requests = false;
                None
            }
            Ok(Some(request)) => {
                add(&self.hub.statistics.commands, 1);
                let arguments = request.arguments();
                let count = arguments.len();
                if count <= FEW {
                    let mut few = [&[][..]; FEW];
                    few.iter_mut().zip(arguments).for_each(|(place, argument)| *place = argument);
                    Some(self.session.read(&few[..count]))
                } else {
                    Some(self.session.read(&arguments.collect::<Vec<_>>()))
                }
            }
            Err(error) => {
                // Where the next request would begin is not known.
                self.line.reply(error.reply());
                self.session.is_over = true;
                self.has_requests = false;
                None
            }
        }
    }

    fn read(&mut self, context: &mut Context<'_>) -> io::Result<Poll<()>> {
        let mut scratch = self.hub.scratch.borrow_mut();
        let mut buffer = ReadBuf::new(&mut scratch);
        match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(read) => read?,
        }
        let bytes = buffer.filled();
        if bytes.is_empty() {
            self.is_at_end = true;
        } else {
            self.decoder.push(bytes);
            self.has_requests = true;
            add(&self.hub.statistics.received, bytes.len());
            self.line.heard.set(self.hub.statistics.seconds());
        }
        self.line.unread.set(self.decoder.buffered());
        Ok(Poll::Ready(()))
    }

    fn send(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let stream = &mut self.stream;
        let is_flushed = &mut self.is_flushed;
        self.line.send(|bytes| {
            *is_flushed = false;
            match Pin::new(&mut *stream).poll_write(context, bytes) {
                Poll::Pending => Ok(None),
                Poll::Ready(Ok(0)) => Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(written) => written.map(Some),
            }
        })?;
        if !self.is_flushed {
            match Pin::new(&mut self.stream).poll_flush(context) {
                Poll::Pending => {}
                Poll::Ready(flushed) => {
                    flushed?;
                    self.is_flushed = true;
                }
            }
        }
        Ok(())
    }
}
