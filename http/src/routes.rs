//! The table of routes, from which both the server and the `OpenAPI` description are built.

use crate::access::Gate;
use crate::page::frame;
use crate::problem::Problem;
use crate::route::Route;
use crate::{
    audit, busiest, event, job, lease, lease_look, lease_set, lock, openapi, operate, page,
    process, process_look, process_now, queue, queue_bulk, queue_look, result, service, task,
    task_look, task_server, task_transcript, trouble,
};
use actix_web::http::header;
use actix_web::web::{self, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use sexton::refusal::Reason;
use std::sync::LazyLock;

/// Returns the description of all routes.
pub fn description() -> &'static Value {
    static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| openapi::describe(&table()));
    &DESCRIPTION
}

/// Returns the content of `/v1/openapi.json`. It never changes, so it is written once.
pub(crate) fn written_description() -> &'static RawValue {
    static WRITTEN: LazyLock<Box<RawValue>> = LazyLock::new(|| {
        to_raw_value(description()).expect("it should be possible to write a value as JSON")
    });
    &WRITTEN
}

/// What a route requires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteScope {
    /// `GET` or `POST`.
    pub method: String,
    /// The path.
    pub path: &'static str,
    /// The scope that every request requires: `none`, `read`, `use`, `operate` or `run`.
    pub scope: &'static str,
    /// Which requests require the scope `run` in addition, in words; `None` if no others do.
    pub run_if: Option<&'static str>,
    /// Whether the route is described in `/v1/openapi.json`; if not, it is a part of the page.
    pub is_described: bool,
}

/// Returns what each route requires, in the order of their paths.
pub fn scopes() -> Vec<RouteScope> {
    let of = |route: Route| RouteScope {
        method: route.method.to_string(),
        path: route.path,
        scope: route.scope.name(),
        run_if: route.condition,
        is_described: route.described.is_some(),
    };
    let mut all: Vec<RouteScope> = table().into_iter().map(of).collect();
    all.sort_by_key(|route| route.path);
    all
}

/// The functions that return the routes, one per source file, in the order of the description.
const ROUTES: &[fn() -> Vec<Route>] = &[
    operate::routes,
    event::routes,
    busiest::routes,
    audit::routes,
    trouble::routes,
    page::routes,
    lock::routes,
    queue_look::routes,
    job::routes,
    result::routes,
    queue::routes,
    queue_bulk::routes,
    process::routes,
    process_look::routes,
    process_now::routes,
    service::routes,
    lease::routes,
    lease_set::routes,
    lease_look::routes,
    task::routes,
    task_look::routes,
    task_server::routes,
    task_transcript::routes,
];

/// Returns every route.
fn table() -> Vec<Route> {
    ROUTES.iter().flat_map(|routes| routes()).collect()
}

/// Registers all routes.
pub(crate) fn serve(config: &mut ServiceConfig) {
    for route in table() {
        config.service(route.resource);
    }
    config.default_service(web::to(not_found));
}

/// Refuses a path that has no route. Browsers get a page, as does any client below `/page/`. Below `/v1/`, which has no
/// pages, the refusal is always a problem document.
async fn not_found(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let problem = Problem::new(Reason::NotFound, Reason::NotFound.title());
    let path = request.path();
    let accepted = request.headers().get_all(header::ACCEPT);
    let is_browser =
        || accepted.filter_map(|it| it.to_str().ok()).any(|it| it.contains("text/html"));
    if Gate::of(path) == Gate::Page || !path.starts_with("/v1/") && is_browser() {
        Ok(frame::refused(&problem, request.head()))
    } else {
        Err(problem)
    }
}
