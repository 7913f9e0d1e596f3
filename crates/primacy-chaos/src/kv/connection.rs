//! A client's connection to a node, in RESP2: one command at a time.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest that a connection takes to be opened.
const OPENING: Duration = Duration::from_millis(500);

/// Where a node's clients connect, and what they say first.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    pub(super) password: Option<String>,
}

/// What a node answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// A word, such as `OK`.
    Word(String),
    /// The code and text of an error.
    Error(String),
    Number(i64),
    /// A value, or that there is none.
    Value(Option<Vec<u8>>),
}

/// A connection. After an error of its socket it is of no use.
#[derive(Debug)]
pub(super) struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects. No answer takes longer than `patience`.
    ///
    /// # Errors
    /// If nobody is there, or the password is refused. Nothing was asked then.
    pub(super) fn open(place: &Place, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&place.address, OPENING)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let mut connection = Self(BufReader::new(stream));
        if let Some(password) = &place.password
            && let refused @ (Reply::Error(_) | Reply::Number(_) | Reply::Value(_)) =
                connection.ask(&[b"AUTH", password.as_bytes()])?
        {
            return Err(io::Error::new(ErrorKind::PermissionDenied, format!("{refused:?}")));
        }
        Ok(connection)
    }

    /// Sends a command and waits for the reply to it.
    ///
    /// # Errors
    /// If the connection ends, or nothing comes in time. The command may have been done.
    pub(super) fn ask(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend(*word);
            bytes.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes)?;
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end_matches(['\r', '\n']);
        let wrong = || io::Error::new(ErrorKind::InvalidData, format!("no reply: {line}"));
        let (kind, rest) = line.split_at_checked(1).ok_or_else(wrong)?;
        match kind {
            "+" => Ok(Reply::Word(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Number(rest.parse().map_err(|_| wrong())?)),
            "$" if rest == "-1" => Ok(Reply::Value(None)),
            "$" => {
                let length: usize = rest.parse().map_err(|_| wrong())?;
                let mut value = vec![0; length + 2];
                self.0.read_exact(&mut value)?;
                value.truncate(length);
                Ok(Reply::Value(Some(value)))
            }
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const GET_KEY: &str = "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";

    #[test]
    fn replies_are_told_apart_and_an_end_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let place = Place { address: listener.local_addr().expect("it is bound"), password: None };
        let node = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody connects");
            stream.write_all(b"+OK\r\n-UNKNOWN it may\r\n:7\r\n$2\r\n\r\n\r\n$-1\r\n").expect("it is open");
            let mut asked = vec![0; 5 * GET_KEY.len()];
            stream.read_exact(&mut asked).expect("five are asked");
            String::from_utf8_lossy(&asked).into_owned()
        });
        let mut connection = Connection::open(&place, Duration::from_secs(10)).expect("it listens");
        let mut ask = || connection.ask(&[b"GET", b"key"]);
        assert_eq!(ask().expect("it answers"), Reply::Word("OK".into()));
        assert_eq!(ask().expect("it answers"), Reply::Error("UNKNOWN it may".into()));
        assert_eq!(ask().expect("it answers"), Reply::Number(7));
        assert_eq!(ask().expect("it answers"), Reply::Value(Some(b"\r\n".to_vec())));
        assert_eq!(ask().expect("it answers"), Reply::Value(None));
        assert_eq!(node.join().expect("it has ended"), GET_KEY.repeat(5));
        assert!(ask().is_err());
    }
}
