//! What a candidate or an agent is called unless somebody says it.

use primacy::Label;

/// The host's name.
pub(crate) fn default_host() -> Label {
    Label::new(host_name()).or_else(|_| Label::new("host")).expect("a short word is a label")
}

fn host_name() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The host's name and the process id: readable, and different for two candidates on one host.
pub(crate) fn default_label() -> Label {
    let host = host_name();
    let pid = std::process::id();
    Label::new(format!("{host}:{pid}"))
        .or_else(|_| Label::new(format!("host:{pid}")))
        .expect("a short word, a colon and a number make a label")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_label_can_be_made() {
        assert!(default_label().as_str().ends_with(&format!(":{}", std::process::id())));
        assert!(default_label().as_str().starts_with(default_host().as_str()));
    }
}
