//! How clients are served: where, who may, and how much of everything.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use primacy::peers::tls::ServerFiles;
use subtle::ConstantTimeEq as _;

use crate::command;
use crate::resp;

/// The longest password.
const PASSWORD_MAX: usize = 512;
/// The longest value that can be allowed. With its key it fits into a log entry, and that into a segment of the log.
const VALUE_MAX: usize = 12 << 20;

/// How clients are served.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where to listen.
    pub listen: Vec<SocketAddr>,
    /// What clients have to know. Without it, all that can connect may do everything.
    pub password: Option<Password>,
    /// With which files to speak TLS. Without them, all is in clear.
    pub tls: Option<ServerFiles>,
    /// How many connections there may be.
    pub connections_max: usize,
    /// The longest value, in bytes.
    pub value_max: usize,
    /// How many bytes of replies may wait for a client. One that leaves more is cut off.
    pub output_max: usize,
    /// How long replies may wait for a client that takes none of them. Then it is cut off.
    pub stalled_max: Duration,
    /// How long a client may take until it has said who it is. Then it is cut off.
    pub greeting_max: Duration,
}

impl Settings {
    /// To listen at one address, with a port of Redis, on this machine alone: no password, no TLS.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen: vec![listen],
            password: None,
            tls: None,
            connections_max: 10_000,
            value_max: command::Limits::default().value,
            output_max: 256 << 20,
            stalled_max: Duration::from_secs(60),
            greeting_max: Duration::from_secs(10),
        }
    }

    /// Whether they are usable and safe. If not, the text says what to add.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.listen.is_empty() {
            return Err(SettingsError::Nowhere);
        }
        let asks_for_certificates = self.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
        let open = self.listen.iter().find(|address| !address.ip().to_canonical().is_loopback());
        if let (Some(address), None, false) = (open, &self.password, asks_for_certificates) {
            return Err(SettingsError::Open { address: *address, has_tls: self.tls.is_some() });
        }
        if !(1..=VALUE_MAX).contains(&self.value_max) {
            return Err(SettingsError::Value);
        }
        if self.output_max < self.value_max {
            return Err(SettingsError::Output);
        }
        if self.connections_max == 0 {
            return Err(SettingsError::Connections);
        }
        Ok(())
    }

    /// How large the keys and values of commands may be.
    pub(super) fn command_limits(&self) -> command::Limits {
        command::Limits { value: self.value_max, ..command::Limits::default() }
    }

    /// How large requests may be. A value that is a little too long is refused by its command, and the connection goes on.
    pub(super) fn request_limits(&self) -> resp::Limits {
        resp::Limits { bulk: (2 * self.value_max).max(1 << 20), ..resp::Limits::DEFAULT }
    }
}

/// Why settings are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// No address to listen at.
    #[error("there is no address to listen at: name one, such as 127.0.0.1:6379")]
    Nowhere,
    /// Everybody who reaches the address could read and write all keys.
    #[error(
        "{address} can be reached from other machines, and so everybody there could read and change all keys: {}. Or listen at a \
         loopback address alone, such as 127.0.0.1:{}",
        if *has_tls {
            "TLS alone keeps nobody out: add a password, or the authority of your clients' certificates"
        } else {
            "add a password, and TLS, without which it goes over the network in clear; or TLS with the authority of your clients' \
             certificates"
        },
        address.port()
    )]
    Open {
        /// The address.
        address: SocketAddr,
        /// Whether there is TLS.
        has_tls: bool,
    },
    /// The longest value.
    #[error("values can be allowed up to 12 MiB and not less than a byte: a log entry has no room for longer ones")]
    Value,
    /// Less than one value.
    #[error("a client could never get the longest value: let at least as many bytes of replies wait for it")]
    Output,
    /// None.
    #[error("nobody could connect: allow at least one connection")]
    Connections,
}

/// What clients have to know.
#[derive(Clone)]
pub struct Password(Box<[u8]>);

impl Password {
    /// Not empty, and not longer than 512 bytes.
    pub fn new(password: impl Into<Box<[u8]>>) -> Option<Self> {
        let password = password.into();
        (1..=PASSWORD_MAX).contains(&password.len()).then_some(Self(password))
    }

    /// Whether it is this one. How long that takes does not depend on how much of it is right.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        let filled = |text: &[u8]| {
            let mut filled = [0; PASSWORD_MAX];
            filled.iter_mut().zip(text).for_each(|(byte, of_text)| *byte = *of_text);
            filled
        };
        let same_length = self.0.len().ct_eq(&given.len());
        bool::from(filled(&self.0).ct_eq(&filled(given)) & same_length)
    }
}

/// Without the password.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn at(address: &str) -> Settings {
        Settings::new(address.parse().unwrap())
    }

    fn tls(clients: Option<PathBuf>) -> ServerFiles {
        ServerFiles::new("a.pem".into(), "a.key".into()).with_clients(clients)
    }

    #[test]
    fn what_others_reach_is_guarded() {
        for loopback in ["127.0.0.1:6379", "127.1.2.3:1", "[::1]:6379", "[::ffff:127.0.0.1]:6379"] {
            assert_eq!(at(loopback).check(), Ok(()), "{loopback}");
        }
        for open in ["0.0.0.0:6379", "10.0.0.1:6379", "[::]:6379", "[::ffff:10.0.0.1]:6379"] {
            let mut settings = at(open);
            let Err(error @ SettingsError::Open { .. }) = settings.check() else { panic!("{open}") };
            assert!(error.to_string().contains("add a password"), "{error}");
            settings.tls = Some(tls(None));
            let Err(error) = settings.check() else { panic!("{open}: TLS alone") };
            assert!(error.to_string().contains("TLS alone keeps nobody out"), "{error}");
            settings.tls = Some(tls(Some("ca.pem".into())));
            assert_eq!(settings.check(), Ok(()), "{open}: certificates of clients");
            settings.tls = None;
            settings.password = Password::new(*b"secret");
            assert_eq!(settings.check(), Ok(()), "{open}: a password");
        }
        let mut several = at("127.0.0.1:6379");
        several.listen.push("0.0.0.0:6380".parse().unwrap());
        assert!(several.check().is_err());
    }

    #[test]
    fn bounds_are_sensible() {
        let refused = |change: fn(&mut Settings)| {
            let mut settings = at("127.0.0.1:0");
            change(&mut settings);
            settings.check().is_err()
        };
        assert!(refused(|settings| settings.listen.clear()));
        assert!(refused(|settings| settings.value_max = 0));
        assert!(refused(|settings| settings.value_max = VALUE_MAX + 1));
        assert!(refused(|settings| settings.output_max = 1));
        assert!(refused(|settings| settings.connections_max = 0));
    }

    #[test]
    fn a_password_is_compared_whole() {
        let password = Password::new(*b"secret").unwrap();
        assert!(password.is(b"secret"));
        for wrong in [&b""[..], b"secre", b"secret ", b"Secret", b"secret\0", &[b's'; 600]] {
            assert!(!password.is(wrong));
        }
        assert!(Password::new(*b"").is_none());
        assert!(Password::new([1; 513]).is_none());
        assert_eq!(format!("{password:?}"), "Password");
    }
}
