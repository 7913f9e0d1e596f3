//! The page for people, with all that it loads: files of this program, which know nothing of any election.

use axum::Router;
use axum::http::{HeaderName, header};
use axum::response::IntoResponse as _;
use axum::routing::get;

/// Nothing comes from elsewhere or out of markup, so that no label can become a script. Nobody shows the page in a frame to have its buttons
/// pressed unseen.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// What the page consists of.
struct File {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: &[File] = &[
    File { path: "/", kind: HTML, text: include_str!("page/index.html") },
    File { path: "/page/page.css", kind: STYLE, text: include_str!("page/page.css") },
    File { path: "/page/icon.svg", kind: "image/svg+xml", text: include_str!("page/icon.svg") },
    File { path: "/page/page.js", kind: SCRIPT, text: include_str!("page/page.js") },
    File { path: "/page/ask.js", kind: SCRIPT, text: include_str!("page/ask.js") },
    File { path: "/page/dom.js", kind: SCRIPT, text: include_str!("page/dom.js") },
    File { path: "/page/election.js", kind: SCRIPT, text: include_str!("page/election.js") },
    File { path: "/page/history.js", kind: SCRIPT, text: include_str!("page/history.js") },
    File { path: "/page/orders.js", kind: SCRIPT, text: include_str!("page/orders.js") },
    File { path: "/page/table.js", kind: SCRIPT, text: include_str!("page/table.js") },
    File { path: "/page/words.js", kind: SCRIPT, text: include_str!("page/words.js") },
];

/// The paths of the page.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |routes, file| {
        routes.route(
            file.path,
            get(async move || {
                let fields: [(HeaderName, &str); 3] = [
                    (header::CONTENT_TYPE, file.kind),
                    (header::CONTENT_SECURITY_POLICY, POLICY),
                    (header::REFERRER_POLICY, "no-referrer"),
                ];
                (fields, file.text).into_response()
            }),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_loads_only_files_of_the_page_and_has_nothing_that_its_policy_forbids() {
        for file in FILES {
            let imported = file.text.lines().filter_map(|line| line.strip_prefix("import ")?.split('"').nth(1));
            for name in imported {
                let path = name.replacen('.', "/page", 1);
                assert!(FILES.iter().any(|file| file.path == path), "{}: {name}", file.path);
            }
            let loaded = file.text.split(['"', '\'']).filter(|text| text.starts_with("/page/"));
            for path in loaded {
                assert!(FILES.iter().any(|file| file.path == path), "{}: {path}", file.path);
            }
            for forbidden in
                ["http:", "https:", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                let places = file.text.replace("http://www.w3.org/2000/svg", "");
                assert!(!places.contains(forbidden), "{}: {forbidden}", file.path);
            }
            if file.kind == HTML {
                assert!(
                    !file.text.contains(" style=") && !file.text.contains("<style"),
                    "styles are in the file of styles"
                );
                let attributes = file.text.split([' ', '<', '>', '\n']).filter(|word| word.contains('='));
                assert_eq!(
                    attributes.filter(|word| word.starts_with("on")).count(),
                    0,
                    "what happens is in the scripts"
                );
            }
        }
    }
}
