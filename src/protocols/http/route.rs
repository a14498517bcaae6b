//! A route: its method, its path, what it takes and answers, what it refuses, and in which words. One line in the table of
//! its API says all of it; what is served and what is described both come from there.

use crate::protocols::http::access::Scope;
use crate::protocols::http::call::Call;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::schemas::{Content, Schemas};
use crate::refusal::Reason;
use actix_http::RequestHead;
use actix_web::http::{Method, header};
use actix_web::web;
use actix_web::{Handler, HttpResponse, Resource};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::future::ready;
use tokio::sync::OwnedSemaphorePermit;

/// An actor, by the routes that ask for it.
pub(crate) trait Routed {
    /// Their tables, one for each file.
    const ROUTES: &'static [fn() -> Vec<Route>] = &[];
}

/// What is said of a route.
pub(crate) struct Words {
    /// Its name for programs.
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    /// What more there is to know, if there is.
    pub(crate) more: &'static str,
    /// What its answer is.
    pub(crate) answer: &'static str,
}

/// A path, the method that it takes, and what answers there.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) method: Method,
    pub(crate) scope: Scope,
    /// What programs are told of it; none of a page, which is for people and may change.
    pub(crate) described: Option<Described>,
    pub(super) resource: Resource,
}

/// A route as the description has it.
pub(crate) struct Described {
    pub(crate) words: Words,
    /// Beside those that any route may give.
    pub(crate) refusals: Vec<Reason>,
    pub(crate) takes: fn(&mut Schemas) -> Content,
    pub(crate) answers: fn(&mut Schemas) -> Value,
    pub(crate) content_type: &'static str,
    /// Parameters in headers.
    pub(crate) headers: Vec<Value>,
}

/// What a route takes.
pub(crate) trait Take: Sized {
    fn take(call: &Call) -> Result<Self, Problem>;
    fn describe(schemas: &mut Schemas) -> Content;
}

/// A route that takes nothing: a query is no other path.
impl Take for () {
    fn take(_: &Call) -> Result<Self, Problem> {
        Ok(())
    }

    fn describe(_: &mut Schemas) -> Content {
        Content::default()
    }
}

/// What stands in the query.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned + JsonSchema> Take for Query<T> {
    fn take(call: &Call) -> Result<Self, Problem> {
        call.query().map(Self)
    }

    fn describe(schemas: &mut Schemas) -> Content {
        Content::query::<T>(schemas)
    }
}

/// What stands in the body.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned + JsonSchema> Take for Body<T> {
    fn take(call: &Call) -> Result<Self, Problem> {
        call.body().map(Self)
    }

    fn describe(schemas: &mut Schemas) -> Content {
        Content::body::<T>(schemas)
    }
}

/// What a route answers.
pub(crate) trait Give {
    fn give(self) -> Result<HttpResponse, Problem>;
    fn describe(schemas: &mut Schemas) -> Value;
}

/// An answer in JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize + JsonSchema> Give for Json<T> {
    fn give(self) -> Result<HttpResponse, Problem> {
        written(&self.0)
    }

    fn describe(schemas: &mut Schemas) -> Value {
        schemas.of_answer::<T>()
    }
}

/// An answer in JSON that keeps its place among the large ones until it is written.
pub(crate) struct Large<T>(pub(crate) T, pub(crate) OwnedSemaphorePermit);

impl<T: Serialize + JsonSchema> Give for Large<T> {
    fn give(self) -> Result<HttpResponse, Problem> {
        let Self(answer, place) = self;
        Ok(written(&answer)?.map_body(|_, body| super::listing::held(body, place)))
    }

    fn describe(schemas: &mut Schemas) -> Value {
        schemas.of_answer::<T>()
    }
}

/// An answer that is no JSON.
impl Give for HttpResponse {
    fn give(self) -> Result<HttpResponse, Problem> {
        Ok(self)
    }

    fn describe(_: &mut Schemas) -> Value {
        json!({ "type": "string" })
    }
}

fn written(answer: &impl Serialize) -> Result<HttpResponse, Problem> {
    let body = serde_json::to_string(answer);
    let mut body = body.map_err(|error| Problem::new(Reason::Failed, error.to_string()))?;
    body.push('\n');
    let mut response = HttpResponse::Ok();
    Ok(response.content_type("application/json").body(body))
}

impl Route {
    /// A path that can be read, and nothing else.
    pub(crate) fn get<T: Take, G: Give>(
        path: &'static str,
        read: impl AsyncFn(&Call, T) -> Result<G, Problem> + Clone + 'static,
        words: Words,
        refusals: &[Reason],
    ) -> Self {
        let answer = move |call: Call| {
            let read = read.clone();
            async move {
                let taken = T::take(&call)?;
                let given = read(&call, taken).await.and_then(G::give);
                given.map_err(|problem| call.problem(problem))
            }
        };
        let resource = self::read(path, answer);
        Self::of::<T, G>(
            (path, Method::GET),
            Scope::Read,
            (words, refusals),
            resource,
        )
    }

    /// A path that does something, and nothing else.
    pub(crate) fn post<T: Take, G: Give>(
        path: &'static str,
        scope: Scope,
        act: impl AsyncFn(&Call, T) -> Result<G, Problem> + Clone + 'static,
        words: Words,
        refusals: &[Reason],
    ) -> Self {
        let answer = move |call: Call| {
            let act = act.clone();
            async move {
                let taken = T::take(&call)?;
                let given = act(&call, taken).await.and_then(G::give);
                given.map_err(|problem| call.problem(problem))
            }
        };
        let resource = posted(path, answer);
        Self::of::<T, G>((path, Method::POST), scope, (words, refusals), resource)
    }

    /// The same, for what is not to be done twice: it takes an idempotency key.
    pub(crate) fn post_once<T, G>(
        path: &'static str,
        act: impl AsyncFn(&Call, T) -> Result<Json<G>, Problem> + Clone + 'static,
        words: Words,
        refusals: &[Reason],
    ) -> Self
    where
        T: Take,
        G: Serialize + JsonSchema,
    {
        let answer = move |mut call: Call| {
            let act = act.clone();
            async move {
                call.take_key()?;
                let taken = T::take(&call)?;
                let given = act(&call, taken).await.and_then(Json::give);
                let mut response = given.map_err(|problem| call.problem(problem))?;
                if let Some(rollback) = call.rollback.take() {
                    response.extensions_mut().insert(rollback);
                }
                Ok(response)
            }
        };
        let resource = posted(path, answer);
        let words = (words, refusals);
        let route = Self::of::<T, Json<G>>((path, Method::POST), Scope::Use, words, resource);
        route.describing(|described| {
            described.refusals.push(Reason::KeyReused);
            described.headers.push(idempotency_key());
        })
    }

    /// A page: a path that people read, or to which they send a form. How it is refused is shown to people, too.
    pub(crate) fn page(
        (path, method): (&'static str, Method),
        scope: Scope,
        show: impl AsyncFn(&Call) -> Result<HttpResponse, Problem> + Clone + 'static,
        refused: fn(&Problem, &RequestHead) -> HttpResponse,
    ) -> Self {
        let is_form = method == Method::POST;
        let answer = move |call: Call| {
            let show = show.clone();
            async move {
                let shown = async {
                    if is_form {
                        call.check_form()?;
                    }
                    if scope == Scope::Run {
                        call.check_run()?;
                    }
                    show(&call).await
                };
                let shown = shown.await.map_err(|problem| call.problem(problem));
                Ok::<_, Problem>(shown.unwrap_or_else(|problem| refused(&problem, call.head())))
            }
        };
        let resource = if is_form {
            posted(path, answer)
        } else {
            read(path, answer)
        };
        Self {
            path,
            method,
            scope,
            described: None,
            resource,
        }
    }

    fn of<T: Take, G: Give>(
        (path, method): (&'static str, Method),
        scope: Scope,
        (words, refusals): (Words, &[Reason]),
        resource: Resource,
    ) -> Self {
        Self {
            path,
            method,
            scope,
            described: Some(Described {
                words,
                refusals: refusals.to_vec(),
                takes: T::describe,
                answers: G::describe,
                content_type: "application/json",
                headers: Vec::new(),
            }),
            resource,
        }
    }

    /// The same, described otherwise.
    fn describing(mut self, change: impl FnOnce(&mut Described)) -> Self {
        self.described.as_mut().map(change);
        self
    }

    /// The same, for those who have this scope.
    pub(crate) fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self.resource = self.resource.app_data(scope);
        self
    }

    /// The same, answering with another type of content.
    pub(crate) fn with_content_type(self, content_type: &'static str) -> Self {
        self.describing(|described| described.content_type = content_type)
    }

    /// The same, with a parameter in a header.
    pub(crate) fn with_header(self, parameter: Value) -> Self {
        self.describing(|described| described.headers.push(parameter))
    }
}

/// The parameter of what is not to be done twice.
fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "description": "1 to 128 visible ASCII characters, one for each request and its repetitions: a repetition within ten minutes is answered from what the first did, also after a crash and a restart, and nothing is done twice.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$" },
    })
}

fn read(
    path: &'static str,
    answer: impl Handler<(Call,), Output = Result<HttpResponse, Problem>>,
) -> Resource {
    web::resource(path)
        .route(web::get().to(answer.clone()))
        .route(web::head().to(answer))
        .default_service(web::to(|| ready(not_allowed("GET, HEAD"))))
}

fn posted(
    path: &'static str,
    answer: impl Handler<(Call,), Output = Result<HttpResponse, Problem>>,
) -> Resource {
    web::resource(path)
        .route(web::post().to(answer))
        .default_service(web::to(|| ready(not_allowed("POST"))))
}

fn not_allowed(allowed: &'static str) -> Result<HttpResponse, Problem> {
    let problem = Problem::new(
        Reason::NotAllowed,
        format!("this path takes {allowed}, and nothing else"),
    );
    Err(problem.with(header::ALLOW, allowed))
}
