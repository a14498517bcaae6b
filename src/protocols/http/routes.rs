//! The table of routes: what is served and what is described both come from it.

use crate::protocols::http::problem::Problem;
use crate::protocols::http::route::Route;
use crate::protocols::http::{event, job, lock, openapi, operate, queue, queue_look};
use crate::refusal::Reason;
use actix_web::HttpResponse;
use actix_web::web::{self, ServiceConfig};
use serde_json::Value;
use std::sync::LazyLock;

/// What `/v1/openapi.json` answers.
pub fn description() -> &'static Value {
    static DESCRIPTION: LazyLock<Value> = LazyLock::new(|| openapi::describe(&table()));
    &DESCRIPTION
}

/// Every route.
fn table() -> Vec<Route> {
    let apis = [
        operate::routes,
        event::routes,
        lock::routes,
        queue_look::routes,
        job::routes,
        queue::routes,
    ];
    apis.iter().flat_map(|routes| routes()).collect()
}

/// Serves the table.
pub(crate) fn serve(config: &mut ServiceConfig) {
    for route in table() {
        config.service(route.resource);
    }
    config.default_service(web::to(not_found));
}

async fn not_found() -> Result<HttpResponse, Problem> {
    Err(Problem::new(Reason::NotFound, Reason::NotFound.title()))
}
