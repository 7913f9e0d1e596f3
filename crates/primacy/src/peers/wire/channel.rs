//! A connection between two peers: frames that come and go.

use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt as _};
use prost::Message as _;
use prost::bytes::{Bytes, BytesMut};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::{TcpStream, UnixStream};
use tokio_util::codec::{Decoder, FramedRead, FramedWrite, LengthDelimitedCodec};

use super::frame::{Body, Frame};
use super::messages::{FRAME_BYTES_MAX, MalformedFrame};
use crate::peers::tls::Connection;

/// Anything that bytes go through.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {
    /// Has the runtime that this is called in wake who reads and writes from now on, in the place of the one before.
    fn rehome(&mut self) -> io::Result<()>;
}

impl Wire for TcpStream {
    fn rehome(&mut self) -> io::Result<()> {
        let again = std::net::TcpStream::from(self.as_fd().try_clone_to_owned()?);
        *self = Self::from_std(again)?;
        Ok(())
    }
}

impl Wire for Connection<TcpStream> {
    fn rehome(&mut self) -> io::Result<()> {
        self.rehome_with(Wire::rehome)
    }
}

impl Wire for UnixStream {
    /// Those are of this process's own runtime for as long as they live.
    fn rehome(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How long the other side of a new connection may take to say who it is.
pub(crate) const HANDSHAKE: Duration = Duration::from_secs(2);

/// A connection without a sign of life is tried after this time, and is over when it has not answered for as long again. Hints
/// are waited for over connections on which nobody asks anything.
const IDLE: Duration = Duration::from_secs(5);

/// Frames that leave together, in bytes: those that hundreds of elections send in one moment.
const TOGETHER_MOST: usize = 64 << 10;

/// Makes a connection's messages leave at once, and its silent end be noticed.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(IDLE / 5).with_retries(5);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(IDLE * 2))
}

/// Where frames come from.
pub(crate) struct Receiver(FramedRead<ReadHalf<Box<dyn Wire>>, Frames>);

/// Where frames go.
pub(crate) struct Sender(FramedWrite<WriteHalf<Box<dyn Wire>>, LengthDelimitedCodec>);

fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(FRAME_BYTES_MAX).new_codec()
}

/// Tells frames apart, and says what it is if there are none.
struct Frames(LengthDelimitedCodec);

impl Decoder for Frames {
    type Item = BytesMut;
    type Error = io::Error;

    fn decode(&mut self, read: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        // A length that is refused is still there.
        self.0.decode(read).map_err(|_| match read[..] {
            [TLS_ALERT | TLS_HANDSHAKE, TLS_MAJOR, ..] => io::Error::new(
                io::ErrorKind::InvalidData,
                "the other side speaks TLS, and this one plain text: give certificates to both (--certs FOLDER, and \
                 ?certs=FOLDER in the store's URL), or to neither",
            ),
            // No mistake of ours would be that long.
            [0, ..] => invalid(MalformedFrame("a frame of more than 1 MiB")),
            _ => invalid(MalformedFrame("bytes that are no frame")),
        })
    }

    fn decode_eof(&mut self, read: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        match self.decode(read)? {
            None if !read.is_empty() => Err(invalid(MalformedFrame("half a frame, and then the end"))),
            frame => Ok(frame),
        }
    }
}

/// How a record of TLS begins, as a side that expects certificates sends it to one that has none (RFC 8446, 5.1).
const TLS_ALERT: u8 = 21;
const TLS_HANDSHAKE: u8 = 22;
const TLS_MAJOR: u8 = 3;

/// Both ends of a connection.
pub(crate) fn channel(wire: Box<dyn Wire>) -> (Sender, Receiver) {
    let (read, write) = tokio::io::split(wire);
    let mut write = FramedWrite::new(write, codec());
    write.set_backpressure_boundary(TOGETHER_MOST);
    (Sender(write), Receiver(FramedRead::new(read, Frames(codec()))))
}

impl Receiver {
    /// The next frame, or `None` at the end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<(u64, Body)>> {
        let Some(bytes) = self.0.next().await.transpose()? else { return Ok(None) };
        let frame = Frame::decode(bytes).map_err(|_| invalid(MalformedFrame("bytes that are no frame")))?;
        let body = frame.body.ok_or_else(|| invalid(MalformedFrame("nothing that this version knows")))?;
        Ok(Some((frame.number, body)))
    }

    /// The next frame, of which there must be one soon.
    pub(crate) async fn first(&mut self) -> io::Result<Body> {
        let soon = tokio::time::timeout(HANDSHAKE, self.next()).await;
        let first = soon.map_err(|_| {
            if self.0.read_buffer().is_empty() {
                io::Error::new(io::ErrorKind::TimedOut, "it says nothing")
            } else {
                invalid(MalformedFrame("half a frame, and then nothing"))
            }
        })??;
        first.map(|(_, body)| body).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Sender {
    pub(crate) async fn send(&mut self, number: u64, body: Body) -> io::Result<()> {
        self.feed(number, body).await?;
        self.flush().await
    }

    /// Takes a frame that leaves with those before it and those that follow, at the next flush at the latest.
    pub(crate) async fn feed(&mut self, number: u64, body: Body) -> io::Result<()> {
        self.0.feed(Bytes::from(Frame { number, body: Some(body) }.encode_to_vec())).await
    }

    /// Returns when all frames have left.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        SinkExt::<Bytes>::flush(&mut self.0).await
    }
}

/// A connection on which no more frames go, and what has been read from it behind those that were taken.
pub(crate) fn whole(sender: Sender, receiver: Receiver) -> (Box<dyn Wire>, Bytes) {
    let begun = receiver.0.read_buffer().clone().freeze();
    (receiver.0.into_inner().unsplit(sender.0.into_inner()), begun)
}

/// Passes on what comes, byte by byte, between two connections until one of them has ended: a side that has gone reads
/// no answer, and the other end may never say a word to notice that by.
pub(crate) async fn pass_on(one: (Sender, Receiver), other: (Sender, Receiver)) -> io::Result<()> {
    let ((to_one, from_one), (to_other, from_other)) = (one, other);
    tokio::select! {
        ended = copy(from_one, to_other) => ended,
        ended = copy(from_other, to_one) => ended,
    }
}

/// Until no more comes, and all of it has gone on.
async fn copy(from: Receiver, to: Sender) -> io::Result<()> {
    // What has been read already, behind the frames that were taken.
    let begun = from.0.read_buffer().clone();
    let (mut from, mut to) = (from.0.into_inner(), to.0.into_inner());
    to.write_all(&begun).await?;
    to.flush().await?;
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}

pub(crate) fn invalid(malformed: MalformedFrame) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    impl Wire for tokio::io::DuplexStream {
        fn rehome(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_connection_that_is_passed_on_ends_with_either_end_though_the_other_is_silent() {
        for far_ends in [false, true] {
            let ((near, in_front), (behind, far)) = (tokio::io::duplex(64), tokio::io::duplex(64));
            let passing = tokio::spawn(pass_on(channel(Box::new(in_front)), channel(Box::new(behind))));
            let (mut ends, mut stays) = if far_ends { (far, near) } else { (near, far) };
            ends.write_all(b"the last word").await.expect("it fits");
            drop(ends);
            tokio::time::timeout(PATIENCE, passing).await.expect("it ends").expect("no panic").expect("in order");
            let mut heard = String::new();
            stays.read_to_string(&mut heard).await.expect("it comes to an end");
            assert_eq!(heard, "the last word");
        }
    }
}
