//! Whether a host's name means this machine.

use std::net::IpAddr;

/// Whether the way to this host cannot leave this machine: TLS is not needed on it. A name other than `localhost` may be
/// resolved to any address, and counts as far away.
pub(crate) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_localhost_and_loopback_addresses_are_this_machine() {
        for here in ["localhost", "LocalHost", "127.0.0.1", "127.9.9.9", "::1"] {
            assert!(is_loopback(here), "{here}");
        }
        for there in ["", "localhost.", "localhost.example", "127.0.0.1.example", "10.0.0.1", "0.0.0.0", "::", "127.1"]
        {
            assert!(!is_loopback(there), "{there}");
        }
    }
}
