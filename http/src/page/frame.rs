//! The frame of every page: its head, its navigation, and the HTTP headers that forbid loading anything from other sites.

use crate::problem::{HTML, Problem};
use actix_http::RequestHead;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpResponse, HttpResponseBuilder, ResponseError as _};
use maud::{DOCTYPE, Markup, html};
use sexton::refusal::Reason;

/// The content security policy: pages load files from this coordinator only, and submit forms to it only.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A view in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Now,
    Locks,
    Queues,
    Processes,
    Tasks,
    Events,
    Then,
}

impl View {
    const ALL: [Self; 7] = [
        Self::Now,
        Self::Locks,
        Self::Queues,
        Self::Processes,
        Self::Tasks,
        Self::Events,
        Self::Then,
    ];

    const fn path(self) -> &'static str {
        match self {
            Self::Now => "/",
            Self::Locks => "/page/locks",
            Self::Queues => "/page/queues",
            Self::Processes => "/page/processes",
            Self::Tasks => "/page/tasks",
            Self::Events => "/page/events",
            Self::Then => "/page/then",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Now => "Now",
            Self::Locks => "Locks and leases",
            Self::Queues => "Queues",
            Self::Processes => "Processes",
            Self::Tasks => "Tasks",
            Self::Events => "Events",
            Self::Then => "History",
        }
    }
}

/// A page without its frame.
pub(crate) struct Page {
    pub(crate) view: View,
    /// The title; if it is empty, the page has the title of the view.
    pub(crate) title: String,
    pub(crate) main: Markup,
}

/// Facts shown in the frame.
pub(crate) struct FrameFacts {
    /// The time the page was built.
    pub(crate) at: Markup,
    /// Whether to offer logging out.
    pub(crate) is_login: bool,
}

impl Page {
    pub(crate) fn framed(self, around: &FrameFacts) -> HttpResponse {
        let words = self.view.words();
        let title = if self.title.is_empty() { words } else { &self.title };
        let body = html! {
            a.skip href="#main" { "Skip to content" }
            header {
                a.brand href="/" { "sexton" }
                (navigation(Some(self.view)))
                p #live { "As of " (around.at) " UTC" }
                @if around.is_login {
                    form.leave method="post" action="/page/leave" { button { "Log out" } }
                }
            }
            main #main tabindex="-1" { h1 { (title) } (self.main) }
        };
        answer(StatusCode::OK).body(document(title, &body).into_string())
    }
}

/// Renders links to every view, and marks the current one.
fn navigation(current: Option<View>) -> Markup {
    html! {
        nav aria-label="Views" {
            ul {
                @for view in View::ALL {
                    li {
                        a href=(view.path()) aria-current=[(Some(view) == current).then_some("page")] {
                            (view.words())
                        }
                    }
                }
            }
        }
    }
}

/// Renders a refusal as a page. If the request has no valid token, the page asks for one.
pub(crate) fn refused(problem: &Problem, head: &RequestHead) -> HttpResponse {
    let status = problem.status_code();
    let is_login = problem.reason() == Reason::Unauthorized;
    let title = if is_login { "Log in" } else { status.canonical_reason().unwrap_or("Refused") };
    let to = Some(head).filter(|it| it.method == Method::GET);
    let to = to.and_then(|it| it.uri.path_and_query()).map_or("/", |it| it.as_str());
    let main = html! {
        p.problem role="alert" data-busy[problem.reason() == Reason::Busy] { (problem.to_string()) "." }
        @if is_login { (login(to)) } @else { p { a href="/" { "Now" } ": the state of the coordinator" } }
    };
    let mut response = if is_login {
        bare(status, title, &main)
    } else {
        narrow(status, (title, &navigation(None)), &main)
    };
    if let Some(after) = problem.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, after);
    }
    // A program may request a page, too. Unlike a browser, it needs the authentication scheme in the header.
    if is_login {
        let scheme = HeaderValue::from_static("Bearer");
        response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}

/// Renders a page without navigation.
pub(crate) fn bare(status: StatusCode, title: &str, main: &Markup) -> HttpResponse {
    narrow(status, (title, &Markup::default()), main)
}

/// Renders a page that is not a view.
fn narrow(status: StatusCode, (title, navigation): (&str, &Markup), main: &Markup) -> HttpResponse {
    let body = html! {
        header { a.brand href="/" { "sexton" } (navigation) }
        main.narrow #main { h1 { (title) } (main) }
    };
    answer(status).body(document(title, &body).into_string())
}

/// Renders a form that asks for a token and then continues at `to`.
pub(crate) fn login(to: &str) -> Markup {
    html! {
        form.login method="post" action="/page/enter" {
            label for="token" { "Token" }
            input #token name="token" type="password" autocomplete="current-password" required autofocus;
            input type="hidden" name="to" value=(to);
            button { "Log in" }
        }
        p.faint { "Enter one of the tokens in the token file, but not the word " code { "run" } " after it. The login lasts 12 hours, in this browser only." }
    }
}

fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · sexton" }
                link rel="stylesheet" href="/page.css";
                link rel="icon" href="/page.svg" type="image/svg+xml";
                script src="/page.js" defer {}
            }
            body { (body) }
        }
    }
}

/// Starts an answer that has the headers common to all pages.
pub(crate) fn answer(status: StatusCode) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    response.insert_header((header::CONTENT_TYPE, HTML));
    for (name, value) in [
        ("content-security-policy", POLICY),
        // With a stricter policy, browsers would not send the origin of forms.
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-frame-options", "DENY"),
    ] {
        response.insert_header((HeaderName::from_static(name), HeaderValue::from_static(value)));
    }
    response
}

/// Redirects a browser after an action, so that reloading the page does not repeat the action.
pub(crate) fn see_other(to: &str) -> HttpResponse {
    let mut response = answer(StatusCode::SEE_OTHER).finish();
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(header::LOCATION, to);
    response
}
