//! Where a browser's request comes from: `Origin` names the page that sent it, and `Sec-Fetch-Site` says how that page is related to this
//! coordinator. Other clients send neither.

use crate::problem::Problem;
use actix_http::{Method, RequestHead};
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use sexton::refusal::Reason;

/// Refuses a request whose `Origin` header names another scheme, host or port than this coordinator's, that is, a request from a page that
/// this coordinator did not serve. On the Unix socket, which a browser may reach through a proxy with TLS, both schemes are ours. Only
/// browsers send this header, so a request without it is accepted.
pub(crate) fn check_origin(
    headers: &HeaderMap,
    (schemes, host): (&[&str], &str),
) -> Result<(), Problem> {
    let ours = |origin: &HeaderValue| {
        let origin = origin.to_str().ok()?;
        let (scheme, authority) = origin.split_once("://")?;
        let is_ours = schemes.iter().any(|it| it.eq_ignore_ascii_case(scheme));
        (is_ours && authority.eq_ignore_ascii_case(host)).then_some(())
    };
    if headers.get_all(header::ORIGIN).all(|origin| ours(origin).is_some()) {
        return Ok(());
    }
    Err(Problem::new(Reason::Foreign, "requests from pages of another origin are not accepted"))
}

/// Refuses a request that a browser sends for a page of another origin, or of another port of this host, unless it is for a document of its
/// own, as when a link is followed. Only browsers send these headers, and only to loopback addresses and over TLS.
pub(crate) fn check_site(head: &RequestHead) -> Result<(), Problem> {
    let site = HeaderName::from_static("sec-fetch-site");
    let mode = HeaderName::from_static("sec-fetch-mode");
    let dest = HeaderName::from_static("sec-fetch-dest");
    let is_ours = |it: &HeaderValue| matches!(it.as_bytes(), b"same-origin" | b"none");
    let follows_link = || {
        let headers = &head.headers;
        matches!(head.method, Method::GET | Method::HEAD)
            && single(headers, &mode) == Some("navigate")
            && single(headers, &dest) == Some("document")
    };
    if head.headers.get_all(&site).all(is_ours) || follows_link() {
        return Ok(());
    }
    Err(Problem::new(Reason::Foreign, "requests for pages of another origin are not accepted"))
}

/// Refuses a form that was not sent from a page of this coordinator; `access.rs` has compared its `Origin`, if it has one. This also applies
/// to the Unix socket, which a browser may reach through a forwarded port. Browsers state where a form comes from in `Origin` or
/// `Sec-Fetch-Site`; a form with neither is refused.
pub(crate) fn check_form(headers: &HeaderMap) -> Result<(), Problem> {
    let is_ours = match single(headers, &header::ORIGIN) {
        Some(_) => {
            let is_ours = |host| check_origin(headers, (&["http", "https"], host)).is_ok();
            single(headers, &header::HOST).is_some_and(is_ours)
        }
        None => {
            let site = HeaderName::from_static("sec-fetch-site");
            !headers.contains_key(header::ORIGIN) && single(headers, &site) == Some("same-origin")
        }
    };
    let words = "forms are accepted only from pages of this coordinator, in a browser that sends Origin or Sec-Fetch-Site";
    is_ours.then_some(()).ok_or_else(|| Problem::new(Reason::Foreign, words))
}

/// Returns the value of a header if it occurs exactly once and is text.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name);
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{check_form, check_site};
    use actix_http::{Method, RequestHead};
    use actix_web::http::header::{HeaderName, HeaderValue};

    /// Returns the head of a request with these headers.
    pub(crate) fn head(headers: &[(&'static str, &'static str)]) -> RequestHead {
        let mut head = RequestHead::default();
        for (name, value) in headers {
            let name = HeaderName::from_static(name);
            head.headers.append(name, HeaderValue::from_static(value));
        }
        head
    }

    #[test]
    fn what_a_page_of_another_origin_loads_is_refused() {
        let asked = |method: Method, headers: &[(&'static str, &'static str)]| {
            let mut head = head(headers);
            head.method = method;
            check_site(&head).is_ok()
        };
        assert!(asked(Method::GET, &[]), "not a browser");
        for ours in ["same-origin", "none"] {
            assert!(asked(Method::GET, &[("sec-fetch-site", ours)]));
        }
        let (mode, dest) = (("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document"));
        for foreign in ["cross-site", "same-site"] {
            let site = ("sec-fetch-site", foreign);
            assert!(!asked(Method::GET, &[site]));
            assert!(!asked(Method::GET, &[("sec-fetch-site", "none"), site]));
            assert!(!asked(
                Method::GET,
                &[site, ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")]
            ));
            assert!(!asked(Method::GET, &[site, mode, ("sec-fetch-dest", "iframe")]));
            assert!(!asked(Method::POST, &[site, mode, dest]));
            assert!(asked(Method::GET, &[site, mode, dest]), "a link");
        }
    }

    #[test]
    fn a_form_comes_from_a_page_of_ours() {
        let from = |headers: &[(&'static str, &'static str)]| {
            let all: Vec<_> = [("host", "localhost:80")].iter().chain(headers).copied().collect();
            check_form(&head(&all).headers).is_ok()
        };
        assert!(from(&[("origin", "http://localhost:80")]));
        assert!(from(&[("sec-fetch-site", "same-origin")]));
        for foreign in [
            &[][..],
            &[("origin", "null")],
            &[("origin", "http://localhost:81")],
            &[("origin", "null"), ("sec-fetch-site", "same-origin")],
            &[("origin", "http://localhost:80"), ("origin", "http://localhost:80")],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "none")],
        ] {
            assert!(!from(foreign), "{foreign:?}");
        }
    }
}
