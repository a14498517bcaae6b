//! The definition of a route: its method and path, the scopes that it requires, its input and output, its refusals, and its
//! documentation. Both the server and the published `OpenAPI` description are built from the same definitions. A route cannot be created
//! without a scope, and its function is not called before the scope was checked.

use crate::call::Call;
use crate::input;
use crate::problem::Problem;
use crate::schemas::{Content, Schemas};
use crate::scope::{OrRun as _, Required, Scope};
use actix_http::RequestHead;
use actix_web::http::{Method, header};
use actix_web::web;
use actix_web::{Handler, HttpResponse, Resource};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sexton::refusal::Reason;
use sexton_api::request::{self as api, Input, Repeat, Request};
use std::future::ready;
use tokio::sync::OwnedSemaphorePermit;

pub(crate) use sexton_api::request::Docs;

/// A path with its method and handler.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    pub(crate) method: Method,
    /// The scope that every request requires. The route enforces it.
    pub(crate) scope: Scope,
    /// Which requests require [`Scope::Run`] in addition, in words; `None` if no others do.
    pub(crate) condition: Option<&'static str>,
    /// The published description; `None` for pages, which are meant for browsers and may change.
    pub(crate) described: Option<Described>,
    pub(super) resource: Resource,
}

/// The published description of a route.
pub(crate) struct Described {
    pub(crate) words: Docs,
    /// The reasons for which the route may refuse a request, in addition to those that apply to every route.
    pub(crate) refusals: Vec<Reason>,
    pub(crate) takes: fn(&mut Schemas) -> Content,
    pub(crate) answers: fn(&mut Schemas) -> Value,
    pub(crate) content_type: &'static str,
    /// Parameters in headers.
    pub(crate) headers: Vec<Value>,
}

/// The input of a route.
pub(crate) trait FromCall: Sized + 'static {
    fn from_call(call: &Call) -> Result<Self, Problem>;
    fn describe(schemas: &mut Schemas) -> Content;
}

/// A route without input; a query string is ignored.
impl FromCall for () {
    fn from_call(_: &Call) -> Result<Self, Problem> {
        Ok(())
    }

    fn describe(_: &mut Schemas) -> Content {
        Content::default()
    }
}

/// Input from the query string.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned + JsonSchema + 'static> FromCall for Query<T> {
    fn from_call(call: &Call) -> Result<Self, Problem> {
        call.query().map(Self)
    }

    fn describe(schemas: &mut Schemas) -> Content {
        Content::query::<T>(schemas)
    }
}

/// Input from the body.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned + JsonSchema + 'static> FromCall for Body<T> {
    fn from_call(call: &Call) -> Result<Self, Problem> {
        call.body().map(Self)
    }

    fn describe(schemas: &mut Schemas) -> Content {
        Content::body::<T>(schemas)
    }
}

/// Input whose type says where its fields are.
struct Asked<R>(R);

impl<R: Request + JsonSchema + 'static> FromCall for Asked<R> {
    fn from_call(call: &Call) -> Result<Self, Problem> {
        let request = match R::ROUTE.input {
            Input::Nothing => input::of_nothing(),
            Input::Query => call.query(),
            Input::Body => call.body(),
        };
        request.map(Self)
    }

    fn describe(schemas: &mut Schemas) -> Content {
        match R::ROUTE.input {
            Input::Nothing => Content::default(),
            Input::Query => Content::query::<R>(schemas),
            Input::Body => Content::body::<R>(schemas),
        }
    }
}

/// The output of a route.
pub(crate) trait IntoAnswer {
    fn into_answer(self) -> Result<HttpResponse, Problem>;
    fn describe(schemas: &mut Schemas) -> Value;
}

/// An answer in JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: Serialize + JsonSchema> IntoAnswer for Json<T> {
    fn into_answer(self) -> Result<HttpResponse, Problem> {
        written(&self.0)
    }

    fn describe(schemas: &mut Schemas) -> Value {
        schemas.of_answer::<T>()
    }
}

/// A large answer in JSON, with the permit to hold until the answer is written.
pub(crate) struct Large<T>(pub(crate) T, pub(crate) OwnedSemaphorePermit);

impl<T: Serialize + JsonSchema> IntoAnswer for Large<T> {
    fn into_answer(self) -> Result<HttpResponse, Problem> {
        let Self(answer, place) = self;
        Ok(written(&answer)?.map_body(|_, body| super::listing::held(body, place)))
    }

    fn describe(schemas: &mut Schemas) -> Value {
        schemas.of_answer::<T>()
    }
}

/// A value that is written in place of the answer `A`: `A` itself, or a list whose items are already JSON.
pub(crate) trait InPlaceOf<A> {}

/// An answer that is not JSON.
impl IntoAnswer for HttpResponse {
    fn into_answer(self) -> Result<HttpResponse, Problem> {
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
    /// Creates the route of a request. Its type says everything except how it is carried out.
    pub(crate) fn of<R>(
        act: impl AsyncFn(&Call, R) -> Result<R::Answer, Problem> + Clone + 'static,
    ) -> Self
    where
        R: Request + JsonSchema + 'static,
        R::Answer: JsonSchema,
    {
        let api::Route { method, path, repeat, scope, run_if, docs, refusals, .. } = R::ROUTE;
        let required = match run_if {
            Some(condition) => scope.or_run(condition, |it: &Asked<R>| it.0.needs_run()),
            None => scope.into(),
        };
        let act = async move |call: &Call, it: Asked<R>| act(call, it.0).await.map(Json);
        match (method, repeat) {
            (api::Method::Get, _) => Self::get(path, required, act, docs, refusals),
            (api::Method::Post, Repeat::Freely) => Self::post(path, required, act, docs, refusals),
            (api::Method::Post, Repeat::WithKey) => {
                Self::post_once(path, required, act, docs, refusals)
            }
        }
    }

    /// Creates the route of a read-only request whose answer may be large, such as a list.
    pub(crate) fn of_large<R, L>(
        read: impl AsyncFn(&Call, R) -> Result<Large<L>, Problem> + Clone + 'static,
    ) -> Self
    where
        R: Request + JsonSchema + 'static,
        L: Serialize + JsonSchema + InPlaceOf<R::Answer>,
    {
        let api::Route { path, scope, docs, refusals, .. } = R::ROUTE;
        let read = async move |call: &Call, it: Asked<R>| read(call, it.0).await;
        Self::get(path, scope, read, docs, refusals)
    }

    /// Creates a read-only route, for GET and HEAD.
    pub(crate) fn get<T: FromCall, G: IntoAnswer>(
        path: &'static str,
        required: impl Into<Required<T>>,
        read: impl AsyncFn(&Call, T) -> Result<G, Problem> + Clone + 'static,
        words: Docs,
        refusals: &[Reason],
    ) -> Self {
        let answer = async move |call: &Call, input: T| read(call, input).await?.into_answer();
        let route = Self::new((path, Method::GET, ignore_key), required.into(), answer, None);
        route.described_as::<T, G>(words, refusals)
    }

    /// Creates a route that performs an action, for POST. It refuses an idempotency key.
    pub(crate) fn post<T: FromCall, G: IntoAnswer>(
        path: &'static str,
        required: impl Into<Required<T>>,
        act: impl AsyncFn(&Call, T) -> Result<G, Problem> + Clone + 'static,
        words: Docs,
        refusals: &[Reason],
    ) -> Self {
        let answer = async move |call: &Call, input: T| act(call, input).await?.into_answer();
        let route =
            Self::new((path, Method::POST, Call::refuse_key), required.into(), answer, None);
        route.described_as::<T, G>(words, refusals)
    }

    /// Creates a route whose action must not take effect twice: it accepts an idempotency key.
    pub(crate) fn post_once<T, G>(
        path: &'static str,
        required: impl Into<Required<T>>,
        act: impl AsyncFn(&Call, T) -> Result<Json<G>, Problem> + Clone + 'static,
        words: Docs,
        refusals: &[Reason],
    ) -> Self
    where
        T: FromCall,
        G: Serialize + JsonSchema,
    {
        let answer = async move |call: &Call, input: T| {
            let mut response = act(call, input).await?.into_answer()?;
            if let Some(rollback) = call.rollback.take() {
                response.extensions_mut().insert(rollback);
            }
            Ok(response)
        };
        let route = Self::new((path, Method::POST, Call::take_key), required.into(), answer, None);
        let route = route.described_as::<T, Json<G>>(words, refusals);
        route.describing(|described| {
            described.refusals.push(Reason::KeyReused);
            if !described.refusals.contains(&Reason::Full) {
                described.refusals.push(Reason::Full);
            }
            described.headers.push(idempotency_key());
        })
    }

    /// Creates a route for a page, or for a form sent from one. Refusals are shown as pages, too.
    pub(crate) fn page(
        (path, method): (&'static str, Method),
        required: impl Into<Required<()>>,
        show: impl AsyncFn(&Call) -> Result<HttpResponse, Problem> + Clone + 'static,
        refused: ShownRefusal,
    ) -> Self {
        let is_form = method == Method::POST;
        let answer = async move |call: &Call, (): ()| {
            if is_form {
                call.check_form()?;
            }
            show(call).await
        };
        let place: (_, _, KeyRule) = (path, method, ignore_key);
        Self::new(place, required.into(), answer, Some(refused))
    }

    /// Creates a route. `act` gets its input only after the caller's scopes have been compared with those that the route requires.
    fn new<T: FromCall>(
        (path, method, key): (&'static str, Method, KeyRule),
        required: Required<T>,
        act: impl AsyncFn(&Call, T) -> Result<HttpResponse, Problem> + Clone + 'static,
        refused: Option<ShownRefusal>,
    ) -> Self {
        let (scope, condition) = (required.scope, required.condition());
        let answer = move |call: Call| {
            let (act, required) = (act.clone(), required.clone());
            async move {
                let answered = async {
                    key(&call)?;
                    act(&call, admitted(&call, &required)?).await
                };
                let answered = answered.await.map_err(|problem| call.problem(problem));
                match (answered, refused) {
                    (Err(problem), Some(refused)) => Ok(refused(&problem, call.head())),
                    (answered, _) => answered,
                }
            }
        };
        let resource =
            if method == Method::POST { posted(path, answer) } else { read(path, answer) };
        Self { path, method, scope, condition, described: None, resource }
    }

    /// Publishes the description of the route.
    fn described_as<T: FromCall, G: IntoAnswer>(
        mut self,
        words: Docs,
        refusals: &[Reason],
    ) -> Self {
        self.described = Some(Described {
            words,
            refusals: refusals.to_vec(),
            takes: T::describe,
            answers: G::describe,
            content_type: "application/json",
            headers: Vec::new(),
        });
        self
    }

    /// Changes the published description of the route, if it has one.
    fn describing(mut self, change: impl FnOnce(&mut Described)) -> Self {
        self.described.as_mut().map(change);
        self
    }

    /// Sets the content type of the answer.
    pub(crate) fn with_content_type(self, content_type: &'static str) -> Self {
        self.describing(|described| described.content_type = content_type)
    }

    /// Adds a header parameter.
    pub(crate) fn with_header(self, parameter: Value) -> Self {
        self.describing(|described| described.headers.push(parameter))
    }
}

/// What a route does with the idempotency key of a request, before anything else.
type KeyRule = fn(&Call) -> Result<(), Problem>;

/// For routes that change nothing, and for forms, which carry no key.
#[expect(clippy::unnecessary_wraps, reason = "it has the type of the other rules for keys")]
const fn ignore_key(_: &Call) -> Result<(), Problem> {
    Ok(())
}

/// Converts a refusal to a page.
type ShownRefusal = fn(&Problem, &RequestHead) -> HttpResponse;

/// Parses the input of a request, if the caller has the scopes that the route requires for it. Every route gets its input here.
fn admitted<T: FromCall>(call: &Call, required: &Required<T>) -> Result<T, Problem> {
    call.scopes().check(required.scope)?;
    let input = T::from_call(call)?;
    required.check(call.scopes(), &input)?;
    Ok(input)
}

/// Describes the idempotency key parameter.
fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "description": "1 to 128 visible ASCII characters that identify a request and its repetitions. A repetition within ten minutes has no further effect, and gets the answer of the first request, even if the coordinator was killed and restarted in between.",
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
    let problem = Problem::new(Reason::NotAllowed, format!("this path accepts only {allowed}"));
    Err(problem.with(header::ALLOW, allowed))
}
