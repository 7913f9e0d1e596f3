//! What is asked for by which path, and what is refused.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::extract::{FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};
use primacy::ElectionName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::answers::{json, refused};
use super::crowd::Visitor;
use super::doctor::{Doctor, DoctorQuery};
use super::events::Streams;
use super::listener::Client;
use super::metrics;
use super::orders::{self, BODY_MAX, OrderSecret};
use super::page;
use super::questions::{HISTORY_MAX, Question, Questions, Unanswered};
use crate::output::schema::SCHEMA;
use crate::standing::{CandidateSource, Candidates, ProcessKind, Standing, StandingReply};

/// How many leaderships a history has if nothing is said.
const HISTORY_USUAL: u32 = 20;

/// What is answered here, for programs that make clients.
const OPENAPI: &str = include_str!("openapi.json");

/// What all requests share.
#[derive(Clone)]
struct Shared {
    candidates: Arc<Candidates>,
    questions: Questions,
    streams: Streams,
    doctor: Doctor,
    secret: Option<OrderSecret>,
}

pub(super) fn router(
    candidates: Arc<Candidates>,
    questions: Questions,
    doctor: Doctor,
    secret: Option<OrderSecret>,
    is_loopback: bool,
    connections_max: usize,
) -> Router {
    let routes = Router::new()
        .merge(page::routes())
        .route("/v1/openapi.json", get(async || ([(header::CONTENT_TYPE, "application/json")], OPENAPI)))
        .route("/v1/process", get(process))
        .route("/v1/doctor", get(diagnosis))
        .route("/v1/elections", get(elections))
        .route("/v1/elections/{name}", get(election))
        .route("/v1/elections/{name}/history", get(history))
        .route("/v1/elections/{name}/events", get(events))
        .route("/v1/elections/{name}/{order}", post(order))
        .route("/metrics", get(metrics))
        .route("/leader", probe(leader))
        .route("/primary", probe(leader))
        .route("/candidate", probe(waiting))
        .route("/replica", probe(waiting))
        .route("/healthz", probe(healthy))
        .route("/readyz", get(ready).options(ready))
        .fallback(async || {
            refused(StatusCode::NOT_FOUND, "there is nothing here; /leader tells whether this candidate leads")
        })
        .method_not_allowed_fallback(async || {
            refused(StatusCode::METHOD_NOT_ALLOWED, "ask with GET, HEAD or OPTIONS; order with POST to /v1/elections/NAME/ and promote, depose, pause or resume")
        });
    let routes = match is_loopback {
        true => routes.layer(middleware::from_fn(refuse_other_hosts)),
        false => routes,
    };
    let streams = Streams::new(&candidates, connections_max);
    routes.layer(middleware::from_fn(guard)).with_state(Shared { candidates, questions, streams, doctor, secret })
}

/// By any method that a load balancer may use.
fn probe(answer: fn(&Shared, &Wanted) -> Response) -> MethodRouter<Shared> {
    let told = move |State(shared): State<Shared>, Said(wanted): Said<Wanted>| async move { answer(&shared, &wanted) };
    get(told).options(told)
}

/// Which election is meant, where that is not in the path.
#[derive(Debug, Deserialize)]
struct Wanted {
    election: Option<String>,
}

/// How many are wanted.
#[derive(Debug, Deserialize)]
struct Limit {
    limit: Option<u32>,
}

/// What a query says.
struct Said<T>(T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Said<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let said = Query::from_request_parts(parts, state).await;
        said.map(|Query(said)| Self(said)).map_err(|error| refused(StatusCode::BAD_REQUEST, &error.body_text()))
    }
}

/// What a path names.
struct Named<T>(T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Named<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        let named = Path::from_request_parts(parts, state).await;
        named.map(|Path(named)| Self(named)).map_err(|error| refused(StatusCode::BAD_REQUEST, &error.body_text()))
    }
}

fn leader(shared: &Shared, wanted: &Wanted) -> Response {
    tell_standing(shared, wanted, |standing| matches!(standing, Standing::Leads { .. }))
}

fn waiting(shared: &Shared, wanted: &Wanted) -> Response {
    tell_standing(shared, wanted, |standing| matches!(standing, Standing::Waits { .. }))
}

fn tell_standing(shared: &Shared, wanted: &Wanted, is_so: impl Fn(&Standing) -> bool) -> Response {
    let candidates = match meant(shared, wanted.election.as_deref()) {
        Ok(candidates) => candidates,
        Err(refused) => return *refused,
    };
    let told: Vec<_> = candidates.iter().map(|candidate| (candidate, candidate.standing())).collect();
    // Of several in one election one that is asked for counts.
    let so = told.iter().find(|(_, standing)| is_so(standing));
    let status = if so.is_some() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match so.or(told.first()) {
        Some((candidate, standing)) => (status, json(&candidate.reply(standing))).into_response(),
        None => refused(StatusCode::NOT_FOUND, NO_CANDIDATE),
    }
}

fn healthy(_: &Shared, _: &Wanted) -> Response {
    json(&HealthReply { schema: SCHEMA, ok: true, why: None })
}

async fn ready(State(shared): State<Shared>) -> Response {
    if shared.candidates.kind() == ProcessKind::Voter {
        let told = ask(&shared, Question::Reached).await;
        return if told.status() == StatusCode::OK { healthy(&shared, &Wanted { election: None }) } else { told };
    }
    let all = shared.candidates.all();
    // One program's trouble is not the others', and one that has just come is none.
    let troubles: Vec<_> = match shared.candidates.kind() == ProcessKind::Candidate {
        true => all.iter().map(|candidate| candidate.trouble()).collect(),
        false => all.iter().filter(|candidate| !candidate.is_new()).map(|candidate| candidate.trouble()).collect(),
    };
    let why = if troubles.iter().any(Option::is_none) { None } else { troubles.into_iter().flatten().next() };
    let status = if why.is_none() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, json(&HealthReply { schema: SCHEMA, ok: why.is_none(), why })).into_response()
}

/// What the candidate counts is told also while the store says nothing.
async fn metrics(State(shared): State<Shared>) -> Response {
    let told = shared.questions.ask(Question::Metrics).await;
    told.unwrap_or_else(|Unanswered| metrics::answer(&shared.candidates, None))
}

async fn process(State(shared): State<Shared>) -> Response {
    let candidates = shared.candidates.all();
    json(&ProcessReply {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        store: shared.candidates.store().location(),
        takes_orders: shared.secret.is_some(),
        candidates: candidates.iter().map(|candidate| candidate.reply(&candidate.standing())).collect(),
    })
}

/// For those who may order: what is measured is written to the store, as fast as it takes it.
async fn diagnosis(
    State(shared): State<Shared>,
    Said(wanted): Said<DoctorQuery>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
) -> Response {
    match orders::may_order(shared.secret.as_ref(), &headers, client) {
        Ok(()) => shared.doctor.answer(&wanted).await,
        Err(refused) => *refused,
    }
}

async fn events(
    State(shared): State<Shared>,
    Named(name): Named<String>,
    Extension(visitor): Extension<Visitor>,
    headers: HeaderMap,
) -> Response {
    match named(&shared, &name) {
        Ok(name) => shared.streams.answer(name, shared.questions, &headers, &visitor),
        Err(refused) => *refused,
    }
}

async fn elections(State(shared): State<Shared>) -> Response {
    ask(&shared, Question::Elections).await
}

async fn election(State(shared): State<Shared>, Named(name): Named<String>) -> Response {
    match named(&shared, &name) {
        Ok(name) => ask(&shared, Question::Election(name)).await,
        Err(refused) => *refused,
    }
}

async fn history(
    State(shared): State<Shared>,
    Named(name): Named<String>,
    Said(Limit { limit }): Said<Limit>,
) -> Response {
    let limit = limit.unwrap_or(HISTORY_USUAL);
    if !(1..=HISTORY_MAX).contains(&limit) {
        return refused(StatusCode::BAD_REQUEST, &format!("limit={limit}: choose 1 to {HISTORY_MAX}"));
    }
    match named(&shared, &name) {
        Ok(name) => ask(&shared, Question::History(name, limit)).await,
        Err(refused) => *refused,
    }
}

/// Who may order is asked first: a stranger learns nothing else, and sends nothing else.
async fn order(
    State(shared): State<Shared>,
    Named((name, word)): Named<(String, String)>,
    Extension(client): Extension<Client>,
    request: Request,
) -> Response {
    if let Err(refused) = orders::may_order(shared.secret.as_ref(), request.headers(), client) {
        return *refused;
    }
    let election = match named(&shared, &name) {
        Ok(election) => election,
        Err(refused) => return *refused,
    };
    let Ok(body) = axum::body::to_bytes(request.into_body(), BODY_MAX).await else {
        return refused(StatusCode::PAYLOAD_TOO_LARGE, &format!("an order has {BODY_MAX} bytes at most"));
    };
    match orders::read(&word, &body) {
        Ok(order) => {
            orders::note(&order, &election, client);
            shared.questions.order(election, order).await
        }
        Err(why) => refused(StatusCode::BAD_REQUEST, &why),
    }
}

async fn ask(shared: &Shared, question: Question) -> Response {
    let late = |Unanswered| refused(StatusCode::SERVICE_UNAVAILABLE, "the store has not answered in time: ask again");
    shared.questions.ask(question).await.unwrap_or_else(late)
}

/// What is said where nobody campaigns.
const NO_CANDIDATE: &str = "this process has no candidate; /v1/elections tells who leads";

/// An election in which this process takes part.
fn named(shared: &Shared, name: &str) -> Result<ElectionName, Box<Response>> {
    if shared.candidates.kind() == ProcessKind::Voter {
        return ElectionName::new(name).map_err(|error| refused(StatusCode::BAD_REQUEST, &error.to_string()).into());
    }
    let elections = shared.candidates.elections();
    let known = elections.iter().find(|election| election.as_str() == name);
    known.cloned().ok_or_else(|| {
        let why = match elections.first() {
            Some(only) if elections.len() == 1 => format!("this process takes part in the election {only} alone"),
            Some(_) => "this process takes no part in that election: /v1/elections has those that it does".to_owned(),
            None => NO_CANDIDATE.to_owned(),
        };
        refused(StatusCode::NOT_FOUND, &why).into()
    })
}

/// The candidates of this process in that election, or in the only one.
fn meant(shared: &Shared, name: Option<&str>) -> Result<Vec<Arc<CandidateSource>>, Box<Response>> {
    let all = shared.candidates.all();
    match (shared.candidates.kind(), name) {
        (ProcessKind::Voter, _) => Err(refused(StatusCode::NOT_FOUND, NO_CANDIDATE).into()),
        (_, Some(name)) => {
            let known: Vec<_> = all.into_iter().filter(|candidate| candidate.election().as_str() == name).collect();
            // One that is not there is refused by the same sentence everywhere.
            if known.is_empty() { named(shared, name).map(|_| known) } else { Ok(known) }
        }
        // Another election than was meant may be the only one by now.
        (ProcessKind::Agent, None) => {
            let why = "an agent takes part in the elections of its programs: say which is meant, with ?election=NAME";
            Err(refused(StatusCode::BAD_REQUEST, why).into())
        }
        (ProcessKind::Candidate, None) => Ok(all),
    }
}

// ---- what is refused ----

/// Whatever leads a browser here from another site gets nothing, and nothing is kept by caches.
async fn guard(request: Request, next: Next) -> Response {
    if let Some(visitor) = request.extensions().get::<Visitor>() {
        visitor.has_asked();
    }
    let mut response = if is_from_other_site(request.headers()) && !is_visit(&request) {
        refused(StatusCode::FORBIDDEN, "a page of another site may not ask here")
    } else {
        let is_options = request.method() == Method::OPTIONS;
        let mut response = next.run(request).await;
        if is_options && response.status() != StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, OPTIONS"));
        }
        response
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A link on another site may lead to the page, in which nothing is told.
fn is_visit(request: &Request) -> bool {
    let mode = request.headers().get("sec-fetch-mode").map(HeaderValue::as_bytes);
    request.method() == Method::GET && request.uri().path() == "/" && mode == Some(b"navigate")
}

fn is_from_other_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_other_origin = headers.get(header::ORIGIN).is_some_and(|origin| {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
        // The page asks from where it came.
        !origin.zip(host).is_some_and(|(origin, host)| origin.eq_ignore_ascii_case(host))
    });
    is_other_origin || site.is_some_and(|site| site != b"same-origin" && site != b"none")
}

/// A name that somebody has led to this host's loopback address makes a page of another site one of this.
async fn refuse_other_hosts(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST);
    if host.is_none_or(|host| host.to_str().is_ok_and(is_this_host)) {
        return next.run(request).await;
    }
    refused(StatusCode::FORBIDDEN, "ask for this host by its address or as localhost")
}

fn is_this_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

// ---- how it is said ----

/// Which process this is, and its candidates.
#[derive(Debug, Serialize)]
struct ProcessReply {
    schema: u32,
    version: &'static str,
    store: String,
    takes_orders: bool,
    candidates: Vec<StandingReply>,
}

/// Whether all is well, and what is not.
#[derive(Debug, Serialize)]
struct HealthReply {
    schema: u32,
    ok: bool,
    why: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_may_ask_from_where_it_came() {
        for (host, origin, is_other) in [
            ("127.0.0.1:8008", "http://127.0.0.1:8008", false),
            ("LOCALHOST:8008", "https://localhost:8008", false),
            ("127.0.0.1:8008", "http://127.0.0.1:8009", true),
            ("127.0.0.1:8008", "http://127.0.0.1", true),
            ("127.0.0.1:8008", "null", true),
            ("127.0.0.1:8008", "127.0.0.1:8008", true),
        ] {
            let value = HeaderValue::from_static;
            let headers = HeaderMap::from_iter([(header::HOST, value(host)), (header::ORIGIN, value(origin))]);
            assert_eq!(is_from_other_site(&headers), is_other, "{host} {origin}");
        }
    }

    #[test]
    fn only_names_that_nobody_can_lead_elsewhere_are_this_hosts() {
        for host in ["localhost", "LOCALHOST:8008", "127.0.0.1", "127.0.0.1:8008", "[::1]", "[::1]:8008", "10.0.0.5:80"]
        {
            assert!(is_this_host(host), "{host}");
        }
        for host in ["", "example.org", "localhost.example.org", "127.0.0.1.example.org:8008", "127.0.0.1:x", "[::1"] {
            assert!(!is_this_host(host), "{host}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_known_by_what_a_browser_says() {
        let says = |name: &'static str, value: &'static str| {
            HeaderMap::from_iter([(header::HeaderName::from_static(name), HeaderValue::from_static(value))])
        };
        for (name, value) in [("origin", "https://example.org"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
            assert!(is_from_other_site(&says(name, value)), "{name}: {value}");
        }
        for (name, value) in [("sec-fetch-site", "none"), ("sec-fetch-site", "same-origin"), ("user-agent", "curl")] {
            assert!(!is_from_other_site(&says(name, value)), "{name}: {value}");
        }
    }
}
