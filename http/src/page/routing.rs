//! Routes of the page: views, rendered in the common frame; the static files that views load; and forms, which act and then redirect.

use crate::call::Call;
use crate::listing;
use crate::operate::stopped;
use crate::page::frame::{self, FrameFacts, Page};
use crate::page::login;
use crate::page::render::{Link, PageClock};
use crate::problem::Problem;
use crate::route::Route;
use crate::scope::{Required, Scope};
use actix_web::http::header;
use actix_web::http::{Method, StatusCode};

/// Creates a route for a view that requires `scope`. Each request holds a permit for a large answer until its page has been written.
pub(crate) fn view(
    path: &'static str,
    scope: Scope,
    show: impl AsyncFn(&Call) -> Result<Page, Problem> + Clone + 'static,
) -> Route {
    let framed = async move |call: &Call| {
        let place = call.room().large().await?;
        // The subscription makes the node collect events for ten minutes, even though it is dropped at once: the events of an investigation
        // can then be shown afterwards.
        drop(call.node.events(None).await.map_err(stopped)?);
        let page = show(call).await?;
        let around = FrameFacts {
            at: PageClock::of(&call.node).date(call.node.now()),
            is_login: login::is_login(call),
        };
        let response = page.framed(&around);
        Ok(response.map_body(|_, body| listing::held(body, place)))
    };
    Route::page((path, Method::GET), scope, framed, frame::refused)
}

/// Creates a route for a form: it performs `act`, and redirects to the page that `act` returns, which shows the result.
pub(crate) fn form(
    path: &'static str,
    required: impl Into<Required<()>>,
    act: impl AsyncFn(&Call) -> Result<Link, Problem> + Clone + 'static,
) -> Route {
    let acted = async move |call: &Call| Ok(frame::see_other(act(call).await?.as_str()));
    Route::page((path, Method::POST), required, acted, frame::refused)
}

/// Creates a route for a static file.
pub(crate) fn file(
    path: &'static str,
    (content_type, text): (&'static str, &'static str),
) -> Route {
    let show = async move |_: &Call| {
        let mut response = frame::answer(StatusCode::OK);
        response.insert_header((header::CONTENT_TYPE, content_type));
        Ok(response.body(text))
    };
    Route::page((path, Method::GET), Scope::Open, show, frame::refused)
}
