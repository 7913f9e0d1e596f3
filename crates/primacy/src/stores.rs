//! The stores of this build, and which of them a URL means.

use std::sync::{Arc, LazyLock};

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
use crate::store;
use crate::store::{Store, UrlError};

/// The stores: the scheme of their URLs, another name for it, the feature that brings them, whether this build has it.
const STORES: [(&str, &str, &str, bool); 4] = [
    ("sqlite", "sqlite", "sqlite", cfg!(feature = "sqlite")),
    ("postgres", "postgresql", "postgres", cfg!(feature = "postgres")),
    ("mysql", "mariadb", "mysql", cfg!(feature = "mysql")),
    ("peers", "peers", "peers", cfg!(feature = "peers")),
];

/// The schemes of this build.
static KNOWN: LazyLock<String> = LazyLock::new(|| {
    let built = STORES.iter().filter(|(.., is_built)| *is_built);
    let known: Vec<String> = built.map(|(scheme, ..)| format!("{scheme}:")).collect();
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
});

/// Why there is no store with this scheme.
fn no_store(scheme: &str) -> UrlError {
    let named = STORES.iter().find(|(name, other, ..)| [*name, *other].contains(&scheme));
    let scheme = primacy_core::ids::escape(scheme);
    match named {
        Some((.., feature, _)) => UrlError::NotBuilt { scheme, feature },
        None => UrlError::UnknownScheme { scheme, known: KNOWN.as_str() },
    }
}

/// The store at a URL such as `sqlite:/var/lib/primacy/primacy.db`. Nothing is opened yet.
///
/// # Errors
/// When the scheme is unknown, this build lacks the store ([`UrlError::NotBuilt`] names the feature), or the rest does not
/// fit the scheme.
pub fn from_url(url: &str) -> Result<Arc<dyn Store>, UrlError> {
    let Some((scheme, rest)) = url.split_once(':') else {
        // What follows may be a password.
        return Err(UrlError::NoScheme(primacy_core::ids::escape(url.split('=').next().unwrap_or_default())));
    };
    match scheme {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(store::postgres::PostgresStore::parse(url)?)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Ok(Arc::new(store::sqlite::SqliteStore::at(rest)?)),
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => Ok(Arc::new(store::mysql::MysqlStore::parse(url)?)),
        #[cfg(feature = "peers")]
        "peers" => Ok(Arc::new(crate::peers::PeersStore::parse(rest)?)),
        _ => {
            let _ = rest;
            Err(no_store(scheme))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_not_built_is_refused_with_its_feature() {
        for (scheme, other, feature, is_built) in STORES {
            for scheme in [scheme, other] {
                let refused = from_url(&format!("{scheme}:")).expect_err("nothing is named").to_string();
                let names_it = refused.contains(&format!("the Cargo feature `{feature}`"));
                assert_eq!(names_it, !is_built, "{refused}");
            }
        }
        assert!(matches!(from_url("etcd://a"), Err(UrlError::UnknownScheme { .. })));
        let secret = from_url("postgres=hunter2").expect_err("no scheme").to_string();
        assert!(!secret.contains("hunter2"), "{secret}");
    }
}
