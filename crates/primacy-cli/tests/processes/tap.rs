//! A listener before a voter that passes everything on, and remembers what was said to it.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What each connection has said so far.
type Said = Arc<Mutex<Vec<Vec<u8>>>>;

pub(crate) struct Tap {
    port: u16,
    said: Said,
}

impl Tap {
    /// Passes on to this port.
    pub(crate) fn before(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let tap = Self { port: listener.local_addr().expect("it is bound").port(), said: Said::default() };
        let said = Arc::clone(&tap.said);
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let number = {
                    let mut said = said.lock().expect("nobody panicked");
                    said.push(Vec::new());
                    said.len() - 1
                };
                let ends = (near.try_clone().expect("a handle"), far.try_clone().expect("a handle"));
                thread::spawn(move || pass(ends.1, ends.0, |_| ()));
                let said = Arc::clone(&said);
                thread::spawn(move || {
                    pass(near, far, |bytes| said.lock().expect("nobody panicked")[number].extend(bytes));
                });
            }
        });
        tap
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What the connection has said that has said most.
    pub(crate) fn longest(&self) -> Vec<u8> {
        let said = self.said.lock().expect("nobody panicked");
        said.iter().max_by_key(|bytes| bytes.len()).cloned().unwrap_or_default()
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut note: impl FnMut(&[u8])) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        note(&bytes[..count]);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
