//! What is served, and where. A path that is not here is not found; a method that is not here is not allowed.

use crate::actors::checkpoint::CheckpointError;
use crate::node::Handle;
use crate::protocols::http::metric;
use crate::protocols::http::problem::Problem;
use crate::status::NodeStatus;
use actix_web::http::{StatusCode, header};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{FromRequest, Handler, HttpResponse, Resource, Responder};
use std::time::Duration;

/// How long the actors may take to say how they are.
const STATUS_PATIENCE: Duration = Duration::from_secs(10);

/// Every route.
pub(crate) fn routes(config: &mut ServiceConfig) {
    config
        .service(readable("/healthz", health))
        .service(readable("/v1/status", status))
        .service(readable("/metrics", metrics))
        .service(
            web::resource("/v1/checkpoint")
                .route(web::post().to(checkpoint))
                .default_service(web::to(only_post)),
        )
        .default_service(web::to(not_found));
}

/// A resource that can be read, and nothing else.
fn readable<H, Args>(path: &str, read: H) -> Resource
where
    H: Handler<Args>,
    Args: FromRequest + 'static,
    H::Output: Responder + 'static,
{
    web::resource(path)
        .route(web::get().to(read.clone()))
        .route(web::head().to(read))
        .default_service(web::to(not_allowed))
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

async fn health(node: Data<Handle>) -> Result<HttpResponse, Problem> {
    match node.halt_words() {
        None => Ok(text("text/plain; charset=utf-8", "ok\n".to_owned())),
        Some(words) => Err(unavailable(words)),
    }
}

async fn status(node: Data<Handle>) -> Result<HttpResponse, Problem> {
    json(&ask(&node).await?)
}

fn json(answer: &impl serde::Serialize) -> Result<HttpResponse, Problem> {
    let mut body = serde_json::to_string(answer)
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    body.push('\n');
    Ok(text("application/json", body))
}

async fn metrics(node: Data<Handle>) -> Result<HttpResponse, Problem> {
    let status = ask(&node).await?;
    Ok(text(metric::CONTENT_TYPE, metric::page(&status)))
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

fn unavailable(words: String) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, words)
}

fn text(content_type: &'static str, body: String) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, content_type))
        .body(body)
}
