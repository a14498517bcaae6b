//! How pages are answered: views in their frame, files that they load, and where a browser goes after a form.

use crate::protocols::http::access::Scope;
use crate::protocols::http::call::Call;
use crate::protocols::http::listing;
use crate::protocols::http::operate::stopped;
use crate::protocols::http::page::frame::{self, Around, Page};
use crate::protocols::http::page::login;
use crate::protocols::http::page::shown::{Here, Link};
use crate::protocols::http::problem::Problem;
use crate::protocols::http::route::Route;
use actix_web::http::header;
use actix_web::http::{Method, StatusCode};

/// A view at this path, for those who have this scope. It keeps a place among the large answers until it is written.
pub(crate) fn view(
    path: &'static str,
    scope: Scope,
    show: impl AsyncFn(&Call) -> Result<Page, Problem> + Clone + 'static,
) -> Route {
    let framed = async move |call: &Call| {
        let place = call.room().large().await?;
        // From the first look on, events are kept: what happens while somebody looks for a fault can be seen after it.
        drop(call.node.events(None).await.map_err(stopped)?);
        let page = show(call).await?;
        let around = Around {
            at: Here::of(&call.node).date(call.node.now()),
            is_login: login::is_login(call),
        };
        let response = page.framed(&around);
        Ok(response.map_body(|_, body| listing::held(body, place)))
    };
    Route::page((path, Method::GET), scope, framed, frame::refused)
}

/// What a form is sent to: does something, and says where its result is to be seen.
pub(crate) fn form(
    path: &'static str,
    scope: Scope,
    act: impl AsyncFn(&Call) -> Result<Link, Problem> + Clone + 'static,
) -> Route {
    let acted = async move |call: &Call| Ok(frame::see_other(act(call).await?.as_str()));
    Route::page((path, Method::POST), scope, acted, frame::refused)
}

/// A file of ours.
pub(crate) fn file(
    path: &'static str,
    (content_type, text): (&'static str, &'static str),
) -> Route {
    let show = async move |_: &Call| {
        let mut response = frame::answer(StatusCode::OK);
        response.insert_header((header::CONTENT_TYPE, content_type));
        Ok(response.body(text))
    };
    Route::page((path, Method::GET), Scope::Read, show, frame::refused)
}
