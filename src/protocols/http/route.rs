//! What is served, and where. A path that is not here is not found; a method that is not here is not allowed.

use crate::handle::Handle;
use crate::protocols::http::event;
use crate::protocols::http::lock;
use crate::protocols::http::metric;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::queue;
use crate::protocols::http::queue_look;
use crate::spine::checkpoint::CheckpointError;
use crate::status::NodeStatus;
use actix_web::body::MessageBody;
use actix_web::http::{Method, StatusCode, header};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{FromRequest, Handler, HttpResponse, Resource, Responder};
use std::time::Duration;

/// How long the actors may take to say how they are.
const STATUS_PATIENCE: Duration = Duration::from_secs(10);

/// What the routes take and answer. The tests check both.
const DESCRIPTION: &str = include_str!("openapi.json");

/// A path, the method beside HEAD that it takes, and what answers there.
type Route = (&'static str, Method, Resource);

/// Every route. `openapi.json` describes them.
fn table() -> Vec<Route> {
    vec![
        reads("/healthz", health),
        reads("/metrics", metrics),
        reads("/v1/openapi.json", describe),
        reads("/v1/events", event::events),
        reads("/v1/status", status),
        acts("/v1/checkpoint", checkpoint),
        acts("/v1/drain", lock::drain),
        reads("/v1/locks", lock::list),
        reads("/v1/locks/owner", lock::owner),
        reads("/v1/locks/place", lock::place),
        acts("/v1/locks/acquire", lock::acquire),
        acts("/v1/locks/renew", lock::renew),
        acts("/v1/locks/release", lock::release),
        acts("/v1/locks/release-all", lock::release_all),
        acts("/v1/locks/watch", lock::watch),
        reads("/v1/queues", queue_look::list),
        reads("/v1/queues/queue", queue_look::queue),
        reads("/v1/queues/jobs", queue_look::jobs),
        reads("/v1/queues/job", queue_look::job),
        reads("/v1/queues/next", queue_look::next),
        reads("/v1/queues/config", queue_look::config),
        acts(queue::PUSH, queue::push),
        acts(queue::PUSH_ALL, queue::push_all),
        acts("/v1/queues/register", queue::register),
        acts("/v1/queues/pop", queue::pop),
        acts("/v1/queues/ack", queue::ack),
        acts("/v1/queues/fail", queue::fail),
        acts("/v1/queues/touch", queue::touch),
        acts("/v1/queues/release", queue::release),
        acts("/v1/queues/bury", queue::bury),
        acts("/v1/queues/delete", queue::delete),
        acts("/v1/queues/kick", queue::kick),
        acts("/v1/queues/kick-job", queue::kick_job),
        acts("/v1/queues/repush", queue::repush),
        acts("/v1/queues/pause", queue::pause),
        acts("/v1/queues/flush", queue::flush),
    ]
}

/// Serves the table.
pub(crate) fn routes(config: &mut ServiceConfig) {
    for (_, _, resource) in table() {
        config.service(resource);
    }
    config.default_service(web::to(not_found));
}

/// A path that can be read, and nothing else.
fn reads<H, Args>(path: &'static str, read: H) -> Route
where
    H: Handler<Args>,
    Args: FromRequest + 'static,
    H::Output: Responder + 'static,
{
    let resource = web::resource(path)
        .route(web::get().to(read.clone()))
        .route(web::head().to(read))
        .default_service(web::to(not_allowed));
    (path, Method::GET, resource)
}

/// A path that does something, and nothing else.
fn acts<H, Args>(path: &'static str, act: H) -> Route
where
    H: Handler<Args>,
    Args: FromRequest + 'static,
    H::Output: Responder + 'static,
{
    let resource = web::resource(path)
        .route(web::post().to(act))
        .default_service(web::to(only_post));
    (path, Method::POST, resource)
}

async fn not_found() -> Result<HttpResponse, Problem> {
    Err(Problem::new(
        StatusCode::NOT_FOUND,
        "nothing is served under this path",
    ))
}

async fn not_allowed() -> Result<HttpResponse, Problem> {
    let problem = Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path can be read, and nothing else",
    );
    Err(problem.with(header::ALLOW, "GET, HEAD"))
}

async fn only_post() -> Result<HttpResponse, Problem> {
    let problem = Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path takes POST, and nothing else",
    );
    Err(problem.with(header::ALLOW, "POST"))
}

/// Takes a snapshot, and answers when it is sealed.
async fn checkpoint(node: Data<Handle>) -> Result<HttpResponse, Problem> {
    match node.checkpoint().await {
        Ok(taken) => json(&taken),
        Err(CheckpointError::Memory) => Err(Problem::new(
            StatusCode::CONFLICT,
            CheckpointError::Memory.to_string(),
        )),
        Err(CheckpointError::Persist(error)) => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            error.to_string(),
        )),
        Err(error @ (CheckpointError::Interrupted | CheckpointError::Stopped)) => {
            Err(unavailable(error.to_string()))
        }
    }
}

/// All routes, in words for programs.
async fn describe() -> HttpResponse {
    text("application/json", DESCRIPTION)
}

async fn health(node: Data<Handle>) -> Result<HttpResponse, Problem> {
    match node.halt_words() {
        None => Ok(text("text/plain; charset=utf-8", "ok\n")),
        Some(words) => Err(unavailable(words)),
    }
}

async fn status(node: Data<Handle>) -> Result<HttpResponse, Problem> {
    json(&ask(&node).await?)
}

pub(crate) fn json(answer: &impl serde::Serialize) -> Result<HttpResponse, Problem> {
    let mut body = serde_json::to_string(answer)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    body.push('\n');
    Ok(text("application/json", body))
}

async fn metrics(node: Data<Handle>) -> Result<HttpResponse, Problem> {
    let status = ask(&node).await?;
    // A node that stops meanwhile has none to show.
    let queues = metric::largest(&node.queues()).await.unwrap_or_default();
    Ok(text(metric::CONTENT_TYPE, metric::page(&status, &queues)))
}

async fn ask(node: &Handle) -> Result<NodeStatus, Problem> {
    match tokio::time::timeout(STATUS_PATIENCE, node.status()).await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(stopped)) => Err(unavailable(
            node.halt_words().unwrap_or_else(|| stopped.to_string()),
        )),
        Err(_) => Err(unavailable(
            "the actors are busy, ask again later".to_owned(),
        )),
    }
}

pub(crate) fn unavailable(words: String) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, words)
}

fn text(content_type: &'static str, body: impl MessageBody + 'static) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, content_type))
        .body(body)
}

#[cfg(test)]
mod tests {
    use super::{DESCRIPTION, table};
    use std::collections::BTreeSet;

    #[test]
    fn what_is_described_is_what_is_served() {
        let description: serde_json::Value = serde_json::from_str(DESCRIPTION).unwrap();
        let paths = description["paths"].as_object().unwrap();
        let described: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, methods)| {
                let methods = methods.as_object().unwrap().keys();
                methods.map(|method| (path.clone(), method.to_uppercase()))
            })
            .collect();
        let served: BTreeSet<(String, String)> = table()
            .into_iter()
            .map(|(path, method, _)| (path.to_owned(), method.to_string()))
            .collect();
        assert_eq!(described, served);
    }
}
