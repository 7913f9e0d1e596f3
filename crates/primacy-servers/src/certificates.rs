//! Certificates for servers with TLS: an authority of their own, a server's certificate and a client's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::host::{self, Account, percent_encoded, program};
use crate::{Problem, Result};

/// How a server speaks TLS. Connections over TCP without it are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The names and addresses that the server's certificate is for.
    pub hosts: Vec<String>,
    /// Whether clients must have a certificate too.
    pub mutual: bool,
}

/// A certificate for `localhost` and 127.0.0.1; none from clients.
impl Default for Tls {
    fn default() -> Self {
        Self { hosts: ["localhost", "127.0.0.1"].map(String::from).into(), mutual: false }
    }
}

/// A new authority and what it has signed, as PEM files in one folder.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes everything in this folder, for a server with these names and addresses and for the client `primacy`.
    pub fn make(folder: &Path, hosts: &[String]) -> Result<Self> {
        let made = Self { folder: folder.to_path_buf() };
        let names = hosts.iter().map(|host| match host.parse::<std::net::IpAddr>() {
            Ok(address) => format!("IP:{address}"),
            Err(_) => format!("DNS:{host}"),
        });
        let names = names.collect::<Vec<_>>().join(",");
        let config = format!(
            "[req]\ndistinguished_name=name\nprompt=no\n[name]\nCN=tests\n\
             [ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n\
             [server]\nsubjectAltName={names}\nextendedKeyUsage=serverAuth\n\
             [client]\nsubjectAltName=DNS:primacy\nextendedKeyUsage=clientAuth\n"
        );
        let path = made.file("openssl.cnf");
        fs::write(&path, config).map_err(|error| Problem::io(&path, &error))?;
        made.request("ca", "tests", &["-x509", "-extensions", "ca", "-out", "ca.crt"])?;
        for (name, subject) in [("server", hosts.first().map_or("nobody", String::as_str)), ("client", "primacy")] {
            let request = format!("{name}.csr");
            made.request(name, subject, &["-out", &request])?;
            made.openssl(
                &["x509", "-req", "-in", &request, "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"],
                &["-days", "30", "-extfile", "openssl.cnf", "-extensions", name, "-out", &format!("{name}.crt")],
            )?;
        }
        Ok(made)
    }

    /// A new key, and a request for a certificate or the certificate itself.
    fn request(&self, name: &str, subject: &str, rest: &[&str]) -> Result<()> {
        let (subject, key) = (format!("/CN={subject}"), format!("{name}.key"));
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let request = ["req", "-new", "-config", "openssl.cnf", "-subj", &subject, "-keyout", &key];
        self.openssl(&[&request[..], &curve].concat(), rest)
    }

    fn openssl(&self, words: &[&str], more: &[&str]) -> Result<()> {
        let mut command = Command::new(program("openssl", "openssl")?);
        host::output(command.args(words).args(more).current_dir(&self.folder)).map(drop)
    }

    /// Lets a server that runs as this user read what it needs.
    pub(crate) fn give_to(&self, account: Account) -> Result<()> {
        [self.ca(), self.server_certificate(), self.server_key()].iter().try_for_each(|file| account.own(file))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The authority's certificate.
    pub fn ca(&self) -> PathBuf {
        self.file("ca.crt")
    }

    /// The server's certificate.
    pub fn server_certificate(&self) -> PathBuf {
        self.file("server.crt")
    }

    /// The server's private key.
    pub fn server_key(&self) -> PathBuf {
        self.file("server.key")
    }

    /// The client's certificate.
    pub fn client_certificate(&self) -> PathBuf {
        self.file("client.crt")
    }

    /// The client's private key.
    pub fn client_key(&self) -> PathBuf {
        self.file("client.key")
    }

    /// What a client's URL says: verify the server, and show the own certificate if it is asked for.
    pub(crate) fn query(&self, mutual: bool) -> String {
        let path = |file: PathBuf| percent_encoded(&file.to_string_lossy());
        let mut query = format!("?sslmode=verify-full&sslrootcert={}", path(self.ca()));
        if mutual {
            let (certificate, key) = (path(self.client_certificate()), path(self.client_key()));
            query += &format!("&sslcert={certificate}&sslkey={key}");
        }
        query
    }
}
