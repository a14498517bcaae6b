//! Logging in and out: a browser sends a token once, and stores a login in a cookie that no script can read.

use crate::access::{Peer, cookie_name};
use crate::call::Call;
use crate::page::frame::{self, see_other};
use crate::problem::Problem;
use crate::route::Route;
use crate::scope::Scope;
use actix_web::HttpResponse;
use actix_web::http::header::{self, HeaderValue};
use actix_web::http::{Method, StatusCode};
use maud::html;
use serde::Deserialize;
use sexton::refusal::Reason;

/// How long a login is valid, in seconds.
const LASTS_S: u64 = 12 * 3600;

pub(crate) fn routes() -> Vec<Route> {
    let refused = frame::refused;
    vec![
        Route::page(("/page/login", Method::GET), Scope::Open, ask, refused),
        Route::page(("/page/enter", Method::POST), Scope::Open, enter, refused),
        Route::page(("/page/leave", Method::POST), Scope::Read, leave, refused),
    ]
}

/// Returns whether a caller can log in and out, that is, whether it uses TCP and tokens are configured.
pub(crate) fn is_login(call: &Call) -> bool {
    matches!(call.peer(), Peer::Tcp { .. }) && call.shared.tokens().is_some()
}

async fn ask(call: &Call) -> Result<HttpResponse, Problem> {
    if !is_login(call) {
        return Ok(see_other("/"));
    }
    let main = html! { (frame::login("/")) };
    Ok(frame::bare(StatusCode::OK, "Log in", &main))
}

#[derive(Deserialize)]
struct Entering {
    token: String,
    /// The page to show next.
    #[serde(default)]
    to: String,
}

async fn enter(call: &Call) -> Result<HttpResponse, Problem> {
    let Some(tokens) = call.shared.tokens().filter(|_| is_login(call)) else {
        return Ok(see_other("/"));
    };
    let Entering { token, to } = call.form()?;
    let until = call.shared.date().plus_ms(LASTS_S * 1000);
    let Peer::Tcp { remote, user, .. } = call.peer() else {
        return Ok(see_other("/"));
    };
    let from = (remote, call.shared.date());
    let compare = || tokens.login(token.as_bytes(), (until, user));
    let login = call.shared.guesses.compare(from, compare)?;
    let login = login.ok_or_else(|| Problem::new(Reason::Unauthorized, "the token is unknown"))?;
    let mut response = see_other(if is_ours(&to) { &to } else { "/" });
    set_cookie(call, &mut response, (&login, LASTS_S));
    Ok(response)
}

async fn leave(call: &Call) -> Result<HttpResponse, Problem> {
    let mut response = see_other("/page/login");
    set_cookie(call, &mut response, ("", 0));
    Ok(response)
}

/// Returns whether `to` is a page of this coordinator, to which a browser may be redirected after logging in.
fn is_ours(to: &str) -> bool {
    let is_page = to == "/" || to.starts_with("/?") || to.starts_with("/page/");
    is_page && to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

fn set_cookie(call: &Call, response: &mut HttpResponse, (login, seconds): (&str, u64)) {
    let host = call.header("host").and_then(|host| std::str::from_utf8(host).ok());
    let name = cookie_name(host.unwrap_or_default());
    let secure = if call.shared.is_private() { "; Secure" } else { "" };
    let cookie =
        format!("{name}={login}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    // Always valid: the port in the cookie's name has been checked, and a login consists of digits and base64.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use super::is_ours;

    #[test]
    fn nobody_is_sent_elsewhere() {
        for ours in ["/", "/?x=1", "/page/lock?key=a%20b"] {
            assert!(is_ours(ours), "{ours}");
        }
        for foreign in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example/",
            "/page/\r\nSet-Cookie: a=b",
            "/v1/status",
            "page/locks",
        ] {
            assert!(!is_ours(foreign), "{foreign:?}");
        }
    }
}
