//! Decides which clients' requests are accepted. Any web page can make a browser send requests to the coordinator, either by DNS rebinding
//! (`Host` then contains a foreign name) or as requests of another origin (`Origin` then contains a foreign site or, since browsers leave it
//! out of most GET requests, `Sec-Fetch-Site` says so). Both kinds are refused.
//!
//! This module also decides which scopes a client has. `route.rs` compares them with those that the route requires.

use crate::guesses::Guesses;
use crate::origin::{check_origin, check_site, single};
use crate::problem::Problem;
use crate::scope::Scopes;
use crate::token::{Credential, Tokens};
use actix_http::RequestHead;
use actix_http::uri::Authority;
use actix_web::http::header::{self, HeaderMap};
use sexton::clock::Date;
use sexton::handle::Requester;
use sexton::refusal::Reason;
use std::net::{IpAddr, Ipv4Addr};

/// The maximum number of cookies of one request that are tried as a login. A browser sends one for each path and domain of that name.
const LOGINS_MAX: usize = 32;

/// The credentials that a path requires over TCP if tokens are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// A token in the `Authorization` header.
    Token,
    /// For pages: a token in the `Authorization` header, or a browser's login cookie.
    Page,
    /// For the login form and the files that it loads: no credentials.
    Open,
}

impl Gate {
    /// Returns the credentials that a path requires.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            "/page.css" | "/page.js" | "/page.svg" | "/page/login" | "/page/enter" => Self::Open,
            "/" => Self::Page,
            path if path.starts_with("/page/") => Self::Page,
            _ => Self::Token,
        }
    }
}

/// The sender of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    /// A TCP client.
    Tcp {
        /// The local address that it connected to.
        local: IpAddr,
        /// Its own address.
        remote: IpAddr,
        /// The user who connected, if that was on this machine and logins are in use.
        user: Option<u32>,
    },
    /// A process on this machine that connected to the Unix socket.
    Socket {
        /// The process's user.
        uid: u32,
        /// The process, if it is visible in the coordinator's PID namespace.
        process: Option<Requester>,
    },
}

/// What requests are checked against: the configuration of the listener, and the current date.
#[derive(Debug)]
pub(crate) struct Rules<'a> {
    /// The host names that `Host` may contain, in addition to `localhost`.
    pub(crate) names: &'a [String],
    /// Whether the mode of the Unix socket admits users other than its owner. If so, the operating system decides who may connect.
    pub(crate) lets_others_in: bool,
    /// The tokens; if `None`, no token is required.
    pub(crate) tokens: Option<&'a Tokens>,
    /// The recent wrong tokens.
    pub(crate) guesses: &'a Guesses,
    /// Whether TCP connections use TLS.
    pub(crate) is_private: bool,
    /// The current date, for the expiry of logins.
    pub(crate) now: Date,
}

/// What an accepted request may do, and why it was accepted.
#[derive(Debug)]
pub(crate) struct Admission {
    /// The scopes of its caller.
    pub(crate) scopes: Scopes,
    /// The token or login by which it was accepted; `None` if it needed none.
    pub(crate) credential: Option<Credential>,
}

/// Checks whether a request is accepted. The error is the refusal.
pub(crate) fn check(
    head: &RequestHead,
    peer: Peer,
    rules: &Rules<'_>,
) -> Result<Admission, Problem> {
    // A browser may reach the Unix socket through a forwarded port, possibly under a foreign host name or from a page of another site.
    let local = match peer {
        Peer::Socket { .. } => Ipv4Addr::LOCALHOST.into(),
        Peer::Tcp { local, .. } => local,
    };
    let host = check_host(head, local, rules.names)?;
    let schemes = match peer {
        Peer::Socket { .. } => &["http", "https"][..],
        Peer::Tcp { .. } if rules.is_private => &["https"],
        Peer::Tcp { .. } => &["http"],
    };
    check_origin(&head.headers, (schemes, host))?;
    check_site(head)?;
    let without_token = |scopes| Ok(Admission { scopes, credential: None });
    match peer {
        Peer::Socket { uid, .. } if is_trusted(uid, rustix::process::geteuid().as_raw()) => {
            without_token(Scopes::All)
        }
        Peer::Socket { .. } if rules.lets_others_in => without_token(Scopes::Plain),
        Peer::Socket { .. } => Err(Problem::new(
            Reason::Foreign,
            "this socket serves only the coordinator's own user: use TCP with a token, or open the socket to a group with --socket-group",
        )),
        Peer::Tcp { local, remote, user } => {
            let Some(tokens) = rules.tokens else {
                return without_token(Scopes::Plain);
            };
            let Some(credential) = check_token(head, host, (tokens, remote, user), rules)? else {
                return without_token(Scopes::None);
            };
            let is_exposed = !rules.is_private && !local.is_loopback();
            let mut scopes = credential.scopes();
            if is_exposed && scopes == Scopes::All {
                scopes = Scopes::Exposed;
            }
            Ok(Admission { scopes, credential: Some(credential) })
        }
    }
}

/// Returns whether `uid` is the coordinator's own user, or root, which can become any user.
fn is_trusted(uid: u32, own: u32) -> bool {
    uid == own || uid == 0
}

/// Checks that the `Host` header names this coordinator, and returns the header's value. Accepted are `localhost`, the configured names,
/// the address that the client connected to, and on loopback any loopback address. Addresses are safe, because DNS rebinding works only
/// with names.
fn check_host<'a>(
    head: &'a RequestHead,
    local: IpAddr,
    names: &[String],
) -> Result<&'a str, Problem> {
    let host = single(&head.headers, &header::HOST)
        .ok_or_else(|| Problem::new(Reason::NotHttp, "expected one Host header"))?;
    let known = |host: &str| {
        let name = without_port(host);
        let address = name.trim_start_matches('[').trim_end_matches(']');
        match address.parse::<IpAddr>() {
            Ok(ip) => {
                let ip = ip.to_canonical();
                ip == local || ip.is_loopback() && local.is_loopback()
            }
            Err(_) => {
                name.eq_ignore_ascii_case("localhost")
                    || names.iter().any(|ours| name.eq_ignore_ascii_case(ours))
            }
        }
    };
    // A request target in absolute form also names a host.
    let target = head.uri.authority().map(Authority::as_str);
    if [Some(host), target].into_iter().flatten().all(known) {
        Ok(host)
    } else {
        Err(Problem::new(
            Reason::Misdirected,
            "this Host does not name this coordinator: use its address, or add the name with --http-host",
        ))
    }
}

/// Returns the name of the login cookie, which includes the port because all ports of a host share cookies: so two coordinators do not
/// overwrite each other's. Whoever listens on another port is sent it all the same, which is why a login is bound to a user ([`Tokens`]).
pub(crate) fn cookie_name(host: &str) -> String {
    let port = host.strip_prefix(without_port(host)).unwrap_or_default();
    format!("sexton{}", port.replace(':', "-"))
}

/// Returns the logins in the cookies that a browser sent, of which at most one is valid: whatever else listens on the host, on any port, may
/// have set cookies of the same name with other paths or domains, and others with any bytes. Returns at most [`LOGINS_MAX`].
fn logins<'a>(headers: &'a HeaderMap, host: &str) -> impl Iterator<Item = &'a str> {
    let name = cookie_name(host);
    let cookies = headers.get_all(header::COOKIE);
    let pairs = cookies.flat_map(|it| it.as_bytes().split(|byte| *byte == b';'));
    let values = pairs.filter_map(move |pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        str::from_utf8(value).ok()
    });
    values.take(LOGINS_MAX)
}

/// Checks the token or login that the path requires, and returns it; `None` if the path requires neither.
fn check_token(
    head: &RequestHead,
    host: &str,
    (tokens, remote, user): (&Tokens, IpAddr, Option<u32>),
    rules: &Rules<'_>,
) -> Result<Option<Credential>, Problem> {
    let refused = |detail| {
        Err(Problem::new(Reason::Unauthorized, detail).with(header::WWW_AUTHENTICATE, "Bearer"))
    };
    let headers = &head.headers;
    match Gate::of(head.uri.path()) {
        Gate::Open => return Ok(None),
        Gate::Page if !headers.contains_key(header::AUTHORIZATION) => {
            let mut logins = logins(headers, host);
            let found = logins.find_map(|login| tokens.find_login(login, (rules.now, user)));
            return found.map_or_else(
                || refused("not logged in, or the login has expired"),
                |found| Ok(Some(found)),
            );
        }
        Gate::Page | Gate::Token => {}
    }
    let mut given = headers.get_all(header::AUTHORIZATION);
    let (Some(credentials), None) = (given.next(), given.next()) else {
        return refused("expected one Authorization header with a bearer token");
    };
    match credentials.as_bytes().split_at_checked(7) {
        Some((scheme, offered)) if scheme.eq_ignore_ascii_case(b"bearer ") => {
            let from = (remote, rules.now);
            let found = rules.guesses.compare(from, || tokens.find(offered))?;
            found.map_or_else(|| refused("the token is unknown"), |found| Ok(Some(found)))
        }
        Some(_) | None => refused("expected a bearer token"),
    }
}

/// Returns a host without its port. `[::1]:80` keeps its brackets, and a suffix that is not a port is kept.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        Some(_) | None => host,
    }
}

#[cfg(test)]
mod tests {
    use super::{Gate, LOGINS_MAX, Peer, Rules, check, cookie_name, is_trusted};
    use crate::guesses::Guesses;
    use crate::origin::tests::head;
    use crate::scope::Scopes;
    use crate::token::Tokens;
    use actix_web::ResponseError as _;
    use actix_web::http::header::{HeaderName, HeaderValue};
    use sexton::clock::Date;

    /// Returns a client that connected to this address, from the same address.
    fn tcp(local: &str) -> Peer {
        let local = local.parse().unwrap();
        Peer::Tcp { local, remote: local, user: None }
    }

    fn status(
        local: &str,
        headers: &[(&'static str, &'static str)],
        tokens: Option<&Tokens>,
    ) -> u16 {
        let names = ["ledger.example".to_owned()];
        let rules = Rules {
            names: &names,
            lets_others_in: false,
            tokens,
            guesses: &Guesses::default(),
            is_private: false,
            now: Date(0),
        };
        let peer = tcp(local);
        check(&head(headers), peer, &rules)
            .map_or_else(|problem| problem.status_code().as_u16(), |_| 200)
    }

    #[test]
    fn a_token_starts_processes_if_its_line_says_so_and_nobody_can_read_it() {
        let tokens = Tokens::parse(b"0123456789abcdef\nfedcba9876543210 run\n").unwrap();
        let running = |local: &str, token: &'static str, is_private| {
            let headers = [("host", "ledger.example"), ("authorization", token)];
            let rules = Rules {
                names: &["ledger.example".to_owned()],
                lets_others_in: false,
                tokens: Some(&tokens),
                guesses: &Guesses::default(),
                is_private,
                now: Date(0),
            };
            let peer = tcp(local);
            check(&head(&headers), peer, &rules).unwrap().scopes
        };
        let (plain, runs) = ("Bearer 0123456789abcdef", "Bearer fedcba9876543210");
        for (local, is_private, expected) in [
            ("127.0.0.1", false, Scopes::All),
            ("::1", false, Scopes::All),
            ("10.0.0.7", false, Scopes::Exposed),
            ("10.0.0.7", true, Scopes::All),
        ] {
            assert_eq!(running(local, runs, is_private), expected, "{local}");
            assert_eq!(running(local, plain, is_private), Scopes::Plain);
        }
    }

    #[test]
    fn a_host_is_an_address_of_ours_or_a_name_given_to_us() {
        let on = |local, host| status(local, &[("host", host)], None);
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1:1",
            "127.0.0.1",
            "[::1]:11380",
            "[::1]",
            "Ledger.Example:1",
        ] {
            assert_eq!(on("127.0.0.1", host), 200, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.7",
            "",
            ":80",
            "127.0.0.1.evil.example",
            "localhost:80:80",
            "localhost:x",
        ] {
            assert_eq!(on("127.0.0.1", host), 421, "{host}");
        }
        assert_eq!(on("10.0.0.7", "10.0.0.7:11380"), 200);
        assert_eq!(on("10.0.0.7", "10.0.0.8:11380"), 421);
        assert_eq!(status("127.0.0.1", &[], None), 400);
        assert_eq!(status("127.0.0.1", &[("host", "localhost"), ("host", "localhost")], None), 400);
    }

    #[test]
    fn an_origin_is_ours_or_foreign() {
        let from =
            |origin| status("127.0.0.1", &[("host", "localhost:11380"), ("origin", origin)], None);
        assert_eq!(from("http://localhost:11380"), 200);
        for origin in [
            "null",
            "",
            "http://evil.example",
            "http://localhost",
            "http://localhost:3000",
            "https://localhost:11380",
            "localhost:11380",
        ] {
            assert_eq!(from(origin), 403, "{origin}");
        }
    }

    #[test]
    fn a_token_is_asked_for_when_there_is_one() {
        let token = Tokens::parse(b"0123456789abcdef").unwrap();
        let with = |given| {
            status("127.0.0.1", &[("host", "localhost"), ("authorization", given)], Some(&token))
        };
        assert_eq!(with("Bearer 0123456789abcdef"), 200);
        assert_eq!(with("bearer 0123456789abcdef"), 200);
        for given in [
            "Bearer 0123456789abcdeg",
            "Bearer",
            "Bearer ",
            "",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            assert_eq!(with(given), 401, "{given}");
        }
        assert_eq!(status("127.0.0.1", &[("host", "localhost")], Some(&token)), 401);
    }

    /// Returns whether a request for `path` on port 80 with these cookies is accepted.
    fn is_logged_in(tokens: &Tokens, path: &str, cookies: &[Vec<u8>]) -> bool {
        let mut head = head(&[("host", "localhost:80")]);
        head.uri = path.parse().unwrap();
        for cookie in cookies {
            let name = HeaderName::from_static("cookie");
            head.headers.append(name, HeaderValue::from_bytes(cookie).unwrap());
        }
        let rules = Rules {
            names: &[],
            lets_others_in: false,
            tokens: Some(tokens),
            guesses: &Guesses::default(),
            is_private: false,
            now: Date(0),
        };
        let peer = tcp("127.0.0.1");
        check(&head, peer, &rules).is_ok()
    }

    #[test]
    fn a_login_counts_whatever_other_cookies_of_its_name_are_sent() {
        let tokens = Tokens::parse(b"0123456789abcdef").unwrap();
        let login = tokens.login(b"0123456789abcdef", (Date(1), None)).unwrap();
        let ours = format!("sexton-80={login}");
        let wrong = ["x", "", "1.AAAA", "sexton-80", "\u{e9}"].map(|it| format!("sexton-80={it}"));
        let before = wrong.join("; ");
        let accepted = |cookies: &[String]| {
            let cookies: Vec<_> = cookies.iter().map(|it| it.clone().into_bytes()).collect();
            is_logged_in(&tokens, "/", &cookies)
        };
        assert!(accepted(&[format!("{before}; {ours}")]));
        assert!(accepted(&[format!("{ours}; {before}")]));
        assert!(accepted(&[before.clone(), ours.clone()]), "in several headers");
        let foreign = [b"other=\xff; ".as_slice(), ours.as_bytes()].concat();
        assert!(is_logged_in(&tokens, "/", &[foreign]), "of another program, with any bytes");
        let many = |count| [vec!["sexton-80=x".to_owned(); count], vec![ours.clone()]].concat();
        assert!(accepted(&many(LOGINS_MAX - 1)));
        assert!(!accepted(&many(LOGINS_MAX)), "more are not tried");
        assert!(!accepted(&[before]));
    }

    #[test]
    fn a_login_is_heard_on_pages_alone() {
        let tokens = Tokens::parse(b"0123456789abcdef").unwrap();
        let login = tokens.login(b"0123456789abcdef", (Date(1), None)).unwrap();
        let with = |path: &str, cookie: String| is_logged_in(&tokens, path, &[cookie.into_bytes()]);
        let ours = format!("a=b; sexton-80={login}; c=d");
        assert!(with("/", ours.clone()) && with("/page/locks?key=a", ours.clone()));
        for path in ["/v1/status", "/v1/events", "/metrics", "/page", "/pages", "/page.css/"] {
            assert!(!with(path, ours.clone()), "{path}");
        }
        assert!(!with("/", format!("sexton-81={login}")));
        assert!(!with("/", format!("sexton-80={login}x")));
        for path in ["/page.css", "/page.js", "/page.svg", "/page/login", "/page/enter"] {
            assert_eq!(Gate::of(path), Gate::Open);
            assert!(with(path, String::new()), "{path}");
        }
        assert_eq!(cookie_name("[::1]:80"), "sexton-80");
        assert_eq!(cookie_name("ledger.example"), "sexton");
    }

    #[test]
    fn the_socket_answers_its_own_user_and_root_or_whom_its_mode_lets_in() {
        assert!(is_trusted(1000, 1000) && is_trusted(0, 1000));
        assert!(!is_trusted(1001, 1000) && !is_trusted(1000, 0));
        let stranger = Peer::Socket { uid: u32::MAX - 1, process: None };
        for lets_others_in in [false, true] {
            let rules = Rules {
                names: &[],
                lets_others_in,
                tokens: None,
                guesses: &Guesses::default(),
                is_private: true,
                now: Date(0),
            };
            let asked = head(&[("host", "localhost")]);
            let heard = check(&asked, stranger, &rules).ok();
            let scopes = heard.map(|admission| admission.scopes);
            assert_eq!(scopes, lets_others_in.then_some(Scopes::Plain));
            // A browser may reach the socket through a forwarded port.
            for (host, origin) in [
                ("localhost:8080", "http://evil.example"),
                ("localhost:8080", "http://localhost:80"),
                ("localhost:8080", "null"),
                ("evil.example:8080", "http://evil.example:8080"),
            ] {
                let asked = head(&[("host", host), ("origin", origin)]);
                assert!(check(&asked, stranger, &rules).is_err(), "{host} {origin}");
            }
            assert!(check(&head(&[("host", "evil.example")]), stranger, &rules).is_err());
            let image = head(&[("host", "localhost"), ("sec-fetch-site", "cross-site")]);
            assert!(check(&image, stranger, &rules).is_err());
            assert!(check(&head(&[]), stranger, &rules).is_err());
            let page = [("host", "localhost:8080"), ("origin", "http://localhost:8080")];
            assert_eq!(check(&head(&page), stranger, &rules).is_ok(), lets_others_in);
        }
    }
}
