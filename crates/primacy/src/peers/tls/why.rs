//! What certificates were refused for, in words that say what to do.

use std::io;

use rustls::CertificateError;
use rustls::pki_types::UnixTime;

/// Why the two sides of a connection did not accept each other, if that is what this error is about.
pub fn refusal(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(explain(error, "the other side's certificate"))
}

/// What to do about most certificates.
pub(super) const NEW: &str = "make one by 'primacy peer certs'";

/// `whose`: which certificate it is about, if it is about one that we have looked at.
pub(super) fn explain(error: &rustls::Error, whose: &str) -> String {
    use rustls::AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::ExpiredContext { time, not_after } => {
                format!("{whose} expired {} ago: {NEW}", span(*not_after, *time))
            }
            CertificateError::NotValidYetContext { time, not_before } => {
                format!("{whose} is not valid for another {}; are the clocks right?", span(*time, *not_before))
            }
            // The second if the authority has the name of ours, but another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!("{whose} is not signed by our authority: {NEW} with that one's 'ca.pem' and 'ca.key'")
            }
            CertificateError::Revoked => format!("{whose} has been revoked: {NEW}"),
            CertificateError::UnknownRevocationStatus => {
                format!("{whose} is of an authority of which there is no list of revoked certificates here: add that list")
            }
            why => format!("{whose} is not accepted: {why}"),
        },
        rustls::Error::NoCertificatesPresented => format!("the other side has shown no certificate: {NEW}"),
        rustls::Error::InvalidMessage(_) => {
            "the other side does not speak TLS: give it certificates (--certs FOLDER, or ?certs=FOLDER in the store's URL)"
                .into()
        }
        rustls::Error::AlertReceived(Alert::CertificateExpired) => {
            format!("the other side says that our certificate has expired or is not valid yet: {NEW}")
        }
        rustls::Error::AlertReceived(Alert::CertificateRevoked) => {
            format!("the other side says that our certificate has been revoked: {NEW}")
        }
        rustls::Error::AlertReceived(Alert::UnknownCA | Alert::DecryptError) => {
            "the other side says that our certificate is not signed by its authority".into()
        }
        rustls::Error::AlertReceived(Alert::CertificateRequired) => {
            "the other side asks for a certificate, and we have shown none".into()
        }
        rustls::Error::AlertReceived(Alert::BadCertificate) => {
            "the other side does not take our certificate: if it looks for a peer of another name here, mend the addresses \
             that it was told of"
                .into()
        }
        error => error.to_string(),
    }
}

/// The time from one point to another, in the unit that people would use.
pub(super) fn span(from: UnixTime, to: UnixTime) -> String {
    let seconds = to.as_secs().saturating_sub(from.as_secs());
    match seconds {
        0..120 => format!("{seconds} seconds"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
