//! Candidates that tell over HTTP who leads, and what they answer.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::time::Instant;

use serde_json::Value;

use crate::world::{PATIENCE, Runner, World};

/// A lease that ends soon.
pub(crate) const SHORT: &[&str] = &["--lease", "1s", "--grace", "200ms"];

/// A candidate that tells over HTTP who leads, and where.
pub(crate) struct Telling {
    pub(crate) runner: Runner,
    pub(crate) address: SocketAddr,
}

impl Telling {
    pub(crate) fn start(world: &World, name: &str) -> Self {
        Self::start_with(world, name, SHORT)
    }

    /// With these options.
    pub(crate) fn start_with(world: &World, name: &str, options: &[&str]) -> Self {
        let mut command = world.witness(name, &[options, &["--http", "127.0.0.1:0"]].concat(), &[]);
        command.stderr(Stdio::piped());
        let mut runner = Runner::start(command);
        let lines = BufReader::new(runner.child.stderr.take().expect("piped")).lines();
        let (tell, told) = channel();
        // It must not stand still because nobody reads what it says.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _: Option<Result<(), _>> =
                    line.split_once("who leads, on ").map(|(_, place)| tell.send(place.to_owned()));
            }
        });
        let place = told.recv_timeout(PATIENCE).expect("it says where it listens");
        let address = place.parse().expect("an address");
        Self { runner, address }
    }

    pub(crate) fn ask(&self, request: &str) -> Answer {
        try_ask(self.address, request).expect("it answers")
    }

    /// By this method.
    pub(crate) fn by(&self, method: &str, path: &str) -> Answer {
        self.ask(&format!("{method} {path} HTTP/1.1\nHost: {}\nConnection: close\n\n", self.address))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.by("GET", path)
    }

    pub(crate) fn await_status(&self, path: &str, status: u16) {
        let end = Instant::now() + PATIENCE;
        loop {
            let answer = self.get(path);
            if answer.status() == status {
                return;
            }
            assert!(Instant::now() < end, "{path}: {}", answer.0);
        }
    }
}

/// The answer to a request, if there is one.
pub(crate) fn try_ask(address: SocketAddr, request: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(request.replace('\n', "\r\n").as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(Answer(text))
}

/// What came back.
pub(crate) struct Answer(pub(crate) String);

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        let word = self.0.split(' ').nth(1).unwrap_or_default();
        word.parse().unwrap_or_else(|_| panic!("no status: {:?}", self.0))
    }

    pub(crate) fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.body()).unwrap_or_else(|error| panic!("{error}: {:?}", self.0))
    }
}

/// A program of others in the foreground, until this is dropped.
pub(crate) struct Foreground(pub(crate) Child);

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
