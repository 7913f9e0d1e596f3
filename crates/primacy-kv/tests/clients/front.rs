//! A front on a thread of its own, as a node has it, and a client that sees each byte.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use primacy_kv::server::clients::{Clients, Settings, Statistics};
use redis_protocol::resp2::{decode::decode, types::OwnedFrame};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use crate::groups::{Groups, Pace};

/// Longer than anything that is awaited can take.
const PATIENCE: Duration = Duration::from_secs(60);

type Order = Box<dyn FnOnce(&Groups, &Statistics) + Send>;

/// A front that ends with the test.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    orders: UnboundedSender<Order>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Front {
    /// With 16 groups.
    pub(crate) fn start() -> Self {
        Self::with(16, |_| {})
    }

    pub(crate) fn with(groups: u16, change: impl FnOnce(&mut Settings)) -> Self {
        Self::over(groups, false, change)
    }

    /// Whose groups are not there yet.
    pub(crate) fn loading() -> Self {
        Self::over(16, true, |_| {})
    }

    fn over(groups: u16, is_loading: bool, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new("127.0.0.1:0".parse().unwrap());
        change(&mut settings);
        let (orders, mut ordered) = unbounded_channel::<Order>();
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let serve = move || async move {
            let clients = Clients::bind(settings).await.unwrap();
            tell.send(clients.addresses()[0]).unwrap();
            let (groups, statistics) = (Groups::new(groups, 1), clients.statistics());
            groups.is_loading.set(is_loading);
            let running = Rc::clone(&groups);
            spawn_local(running.run());
            let obeying = Rc::clone(&groups);
            spawn_local(async move {
                while let Some(order) = ordered.recv().await {
                    order(&obeying, &statistics);
                }
            });
            let loaded = Rc::clone(&groups).ready();
            clients.serve(groups, loaded, async { drop(stopped.await) }).await;
        };
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
            runtime.block_on(serve());
        });
        let address = told.recv().unwrap();
        Self { address, orders, stop: Some(stop), thread: Some(thread) }
    }

    /// Does something on the front's thread.
    pub(crate) fn on<T: Send + 'static>(&self, act: impl FnOnce(&Groups, &Statistics) -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let order: Order = Box::new(move |groups, statistics| drop(tell.send(act(groups, statistics))));
        self.orders.send(order).map_err(|_| "the front has ended").unwrap();
        told.recv().unwrap()
    }

    /// Waits until something is so.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Groups, &Statistics) -> bool + Clone + Send + 'static) {
        let (_keep, never) = mpsc::channel::<()>();
        for _ in 0..PATIENCE.as_millis() {
            if self.on(is_so.clone()) {
                return;
            }
            let _ = never.recv_timeout(Duration::from_millis(1));
        }
        panic!("never: {what}");
    }

    pub(crate) fn go(&self, pace: Pace) {
        self.on(move |groups, _| groups.go(pace));
    }

    pub(crate) fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).unwrap())
    }

    pub(crate) fn port(&self) -> String {
        self.address.port().to_string()
    }

    /// Ends it as a node that stops does.
    pub(crate) fn stop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the front has panicked");
        }
    }
}

/// A connection over which bytes are written and replies are read.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    unread: Vec<u8>,
}

/// A request as bytes.
pub(crate) fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Requests of words that are separated by spaces.
pub(crate) fn requests(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| request(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())).collect()
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, unread: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Takes more bytes. `false` if the other side has closed.
    fn fill(&mut self) -> bool {
        let mut piece = [0; 16 << 10];
        let length = self.stream.read(&mut piece).unwrap_or_else(|error| match error.kind() {
            std::io::ErrorKind::ConnectionReset => 0,
            kind => panic!("{kind:?}, after {:?}", String::from_utf8_lossy(&self.unread)),
        });
        self.unread.extend_from_slice(&piece[..length]);
        length > 0
    }

    /// The next reply in RESP2. None if the connection is closed.
    pub(crate) fn reply(&mut self) -> Option<OwnedFrame> {
        loop {
            if let Some((frame, length)) = decode(&self.unread).unwrap() {
                self.unread.drain(..length);
                return Some(frame);
            }
            if !self.fill() {
                return None;
            }
        }
    }

    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> OwnedFrame {
        self.send(&request(words));
        self.reply().expect("the connection is open")
    }

    /// What a line is answered with, as a short text.
    pub(crate) fn say(&mut self, line: &str) -> String {
        self.send(&requests(&[line]));
        text(&self.reply().expect("the connection is open"))
    }

    /// What lines that are sent at once are answered with.
    pub(crate) fn say_all(&mut self, lines: &[&str]) -> Vec<String> {
        self.send(&requests(lines));
        self.replies(lines.len())
    }

    pub(crate) fn replies(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| text(&self.reply().expect("the connection is open"))).collect()
    }

    /// The next bytes must be these.
    pub(crate) fn expect(&mut self, bytes: &str) {
        while self.unread.len() < bytes.len() && self.fill() {}
        let got: Vec<u8> = self.unread.drain(..bytes.len().min(self.unread.len())).collect();
        assert_eq!(String::from_utf8_lossy(&got), bytes);
    }

    /// All bytes until the connection is closed.
    pub(crate) fn rest(&mut self) -> String {
        while self.fill() {}
        String::from_utf8_lossy(&std::mem::take(&mut self.unread)).into_owned()
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        self.rest().is_empty()
    }

    pub(crate) fn finish_writing(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}

/// A reply as people write it.
pub(crate) fn text(frame: &OwnedFrame) -> String {
    match frame {
        OwnedFrame::SimpleString(text) | OwnedFrame::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        OwnedFrame::Error(text) => format!("-{text}"),
        OwnedFrame::Integer(number) => format!(":{number}"),
        OwnedFrame::Null => "nil".into(),
        OwnedFrame::Array(frames) => format!("[{}]", frames.iter().map(text).collect::<Vec<_>>().join(" ")),
    }
}
