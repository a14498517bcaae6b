//! The pages without the content of their views: their headers, logging in, and the forms that they accept.

use crate::browser::{Browser, shows};
use crate::left_out::left_out;
use crate::opened::{Answer, Opened, TOKEN, answers, read_all, request, run, write_private};
use std::io::Write as _;
use std::os::unix::net::UnixStream;

/// The paths of all views that do not contain a name.
pub(crate) const VIEWS: [&str; 7] =
    ["/", "/page/locks", "/page/queues", "/page/jobs", "/page/tasks", "/page/events", "/page/then"];

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

fn is_page(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    for (header, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("content-security-policy", POLICY),
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(answer.header(header), Some(value), "{header}");
    }
}

/// Returns the values of all attributes with this name.
fn attributes<'p>(page: &'p str, name: &str) -> Vec<&'p str> {
    let begin = format!(" {name}=\"");
    let parts = page.split(begin.as_str()).skip(1);
    parts.filter_map(|part| part.split('"').next()).collect()
}

#[test]
fn every_view_has_the_headers_and_loads_nothing_from_elsewhere() {
    let opened = Opened::new();
    for path in VIEWS {
        let answer = opened.get(path, "");
        is_page(&answer, 200);
        let page = &answer.body;
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.contains("<script src=\"/page.js\" defer></script>"));
        for inline in ["<style", " style=", " onclick=", " onload=", "javascript:"] {
            assert!(!page.contains(inline), "{path} has {inline}");
        }
        for of in ["href", "src", "action"] {
            for target in attributes(page, of) {
                let is_ours = target.starts_with('/') && !target.starts_with("//");
                assert!(is_ours || target == "#main", "{path}: {target}");
            }
        }
        for part in ["<html lang=\"en\">", "<main id=\"main\"", "href=\"#main\"", "<h1>"] {
            assert!(page.contains(part), "{path}: {part}");
        }
        let head =
            opened.exchange(format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        let posted =
            opened.ask(format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        assert_eq!(posted.status, 405);
    }
}

#[test]
fn what_a_page_loads_is_served_with_its_type() {
    let opened = Opened::with_token();
    for (path, content_type) in [
        ("/page.css", "text/css; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/page.svg", "image/svg+xml"),
    ] {
        let answer = opened.get(path, "");
        assert_eq!(answer.status, 200, "{path} requires no token");
        assert_eq!(answer.header("content-type"), Some(content_type));
        assert_eq!(answer.header("content-security-policy"), Some(POLICY));
        assert!(!answer.body.contains("http://") || path == "/page.svg", "{path}");
    }
}

#[test]
fn a_browser_without_a_login_is_asked_for_a_token() {
    let opened = Opened::with_token();
    let browser = Browser::new(&opened);
    for path in ["/", "/page/locks?key=a&after=1"] {
        let answer = browser.load(path);
        is_page(&answer, 401);
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
        shows(&answer.body, &["Log in", "Token", "not logged in"]);
        let to = path.replace('&', "&amp;");
        assert!(attributes(&answer.body, "value").contains(&to.as_str()), "{answer:?}");
    }
    is_page(&browser.load("/page/login"), 200);
    let wrong = browser.send("/page/enter", "token=correct-horse-battery-stapl");
    is_page(&wrong, 401);
    assert_eq!(wrong.header("set-cookie"), None);
    assert!(!wrong.body.contains("staple") && !wrong.body.contains("correct"));
    for malformed in ["", "token=", "to=/", "token=a&token=b", "token=%ff", "other=1&token=a"] {
        is_page(&browser.send("/page/enter", malformed), 400);
    }
    // Streams and pages that do not exist are refused in the same way.
    assert_eq!(browser.load("/page/changes").status, 401);
    assert_eq!(browser.load("/page/absent").status, 401);
}

#[test]
fn a_token_logs_in_by_a_cookie_until_it_is_left_or_gone() {
    let opened = Opened::with_token();
    let browser = Browser::new(&opened);
    let entered =
        browser.send("/page/enter", &format!("token={TOKEN}&to=%2Fpage%2Flocks%3Fkey%3Da"));
    assert_eq!((entered.status, entered.header("location")), (303, Some("/page/locks?key=a")));
    let set = entered.header("set-cookie").expect("the answer sets the header").to_owned();
    let mut parts = set.split("; ");
    let login = parts.next().expect("it has a value").to_owned();
    assert!(login.starts_with("sexton=") && !login.contains("staple"), "{login}");
    let rest: Vec<&str> = parts.collect();
    assert_eq!(rest, ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"]);
    is_page(&browser.load("/"), 200);
    assert!(browser.page("/").contains("action=\"/page/leave\""));
    // The cookie is accepted only for pages.
    let cookie = format!("Cookie: {login}\r\n");
    for path in ["/v1/status", "/v1/events", "/metrics", "/v1/locks"] {
        opened.get(path, &cookie).problem(401);
    }
    opened.get("/", &format!("Cookie: {login}x\r\n"));
    assert_eq!(opened.get("/", &format!("Cookie: {login}x\r\n")).status, 401);
    // A program may send its token in the header here, too.
    let bearer =
        |token: &str| opened.get("/", &format!("Authorization: Bearer {token}\r\n{cookie}")).status;
    assert_eq!((bearer(TOKEN), bearer("wrong")), (200, 401));
    // Logging in never redirects to another site.
    for to in ["https%3A%2F%2Fevil.example", "%2F%2Fevil.example", "%2Fv1%2Fstatus"] {
        let entered = browser.send("/page/enter", &format!("token={TOKEN}&to={to}"));
        assert_eq!(entered.header("location"), Some("/"), "{to}");
    }
    let left = browser.send("/page/leave", "");
    assert_eq!((left.status, left.header("location")), (303, Some("/page/login")));
    is_page(&browser.load("/"), 401);
    // A login ends when its token is removed.
    assert_eq!(opened.get("/", &cookie).status, 200);
    write_private(&opened.directory.path().join("token"), "another-token-of-the-right-length\n");
    opened.listener().reload_token().expect("the token file is readable");
    assert_eq!(opened.get("/", &cookie).status, 401);
}

#[test]
fn without_tokens_there_is_nothing_to_log_in_to() {
    let opened = Opened::new();
    let browser = Browser::new(&opened);
    assert!(!browser.page("/").contains("/page/leave"));
    for answer in [browser.load("/page/login"), browser.send("/page/enter", "token=x")] {
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")));
        assert_eq!(answer.header("set-cookie"), None);
    }
}

#[test]
fn a_form_is_taken_from_a_page_of_ours_alone() {
    let opened = Opened::new();
    let held = || {
        let owner = run(opened
            .handle()
            .locks()
            .owner(&"a".try_into().expect("a valid name"), &"".try_into().expect("a valid name")));
        owner.expect("the node answers").is_some()
    };
    run(opened.handle().locks().batch(vec![request(b"a", b"one")])).expect("the node answers");
    let browser = Browser::new(&opened);
    let force = |headers: &str| browser.send_from("/page/lock/force", headers, "key=a");
    for headers in [
        "",
        "Sec-Fetch-Site: none\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
    ] {
        is_page(&force(headers), 403);
    }
    for origin in ["null", "http://evil.example", "http://localhost:81"] {
        assert_eq!(force(&format!("Origin: {origin}\r\n")).status, 403, "{origin}");
    }
    assert!(held());
    // `Origin` is checked even where no token is required: a proxy may forward a browser to the socket.
    let mut stream = UnixStream::connect(opened.socket()).expect("it listens");
    let kind = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 5";
    let head = "POST /page/lock/force HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let foreign = format!("{head}Origin: http://evil.example\r\n{kind}\r\n\r\nkey=a");
    stream.write_all(foreign.as_bytes()).expect("connected");
    let answer = answers(&read_all(&mut stream)).pop().expect("an answer");
    is_page(&answer, 403);
    assert!(held());
    // A page is not shown on the socket either if the request names another host.
    is_page(&opened.get_over_socket_as("/", "x"), 421);
    // A body that is not a form is refused.
    let json = "Origin: http://localhost\r\nContent-Type: application/json\r\nHost: localhost\r\n";
    let posted = opened.ask(
        format!(
            "POST /page/lock/force HTTP/1.1\r\n{json}Content-Length: 11\r\n\r\n{{\"key\":\"a\"}}"
        )
        .as_bytes(),
    );
    is_page(&posted, 400);
    assert!(held());
    let forced = force("Sec-Fetch-Site: same-origin\r\n");
    assert_eq!((forced.status, forced.header("location")), (303, Some("/page/lock?key=a")));
    assert!(!held());
    is_page(&browser.send("/page/lock/force", "key=a"), 404);
}

#[test]
fn a_refusal_is_a_page_and_says_why() {
    let opened = Opened::new();
    let browser = Browser::new(&opened);
    let refused = browser.load("/page/locks?nonsense=%3Cb%3E");
    is_page(&refused, 400);
    shows(&refused.body, &["the field nonsense is unknown"]);
    is_page(&browser.load("/page/lock"), 400);
    is_page(&browser.load("/page/lease?name=absent"), 404);
    is_page(&browser.load("/page/locks?after=x"), 400);
}

#[test]
fn a_path_without_a_view_is_answered_with_the_navigation() {
    let opened = Opened::new();
    let browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    for (path, headers) in [("/page/nosuch", browser), ("/page/nosuch", ""), ("/nosuch", browser)] {
        let answer = opened.get(path, headers);
        is_page(&answer, 404);
        shows(&answer.body, &["nothing is served at this path"]);
        for view in VIEWS.iter().filter(|view| **view != "/page/jobs") {
            let link = format!("<a href=\"{view}\">");
            assert!(answer.body.contains(&link), "{path}: {link}");
        }
    }
    for (path, headers) in [("/nosuch", "Accept: */*\r\n"), ("/v1/nosuch", browser)] {
        opened.get(path, headers).because(404, "not-found");
    }
}

/// A browser sends the cookies of all ports of a host, which may be more than a head may have.
#[test]
fn a_browser_with_too_many_cookies_is_shown_what_to_do() {
    let opened = Opened::new();
    let cookies = format!("Cookie: other={}\r\n", "x".repeat(20_000));
    for path in ["/", "/page/locks?after=1", "/page/login"] {
        let answer = opened.get(path, &cookies);
        is_page(&answer, 431);
        shows(&answer.body, &["delete those of this host in the browser"]);
    }
    opened.get("/v1/status", &cookies).because(431, "head-too-large");
}

#[test]
fn what_a_browser_loads_is_refused_with_a_page() {
    let opened = Opened::new();
    let foreign = "Origin: https://evil.example\r\n";
    for path in ["/", "/page/locks", "/page/login", "/page.css"] {
        is_page(&opened.get(path, foreign), 403);
    }
    opened.get("/v1/status", foreign).problem(403);
}

/// A browser sends its cookies to every port of the host, on which another user of the machine may listen.
#[test]
fn a_login_is_of_no_use_to_another_user_of_the_machine() {
    if !rustix::process::geteuid().is_root() {
        return left_out("a cookie in the hands of another user: only root can become one");
    }
    let opened = Opened::with_token();
    let browser = Browser::with_token(&opened, TOKEN);
    is_page(&browser.load("/"), 200);
    let (address, headers) = (opened.address(), browser.headers());
    let stolen = move || {
        // This changes only the user of the thread.
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534))
            .expect("root may do this");
        let mut stream = std::net::TcpStream::connect(address).expect("it listens");
        let request =
            format!("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("connected");
        read_all(&mut stream)
    };
    let answer = std::thread::scope(|scope| scope.spawn(stolen).join().expect("no panic"));
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    is_page(&browser.load("/"), 200);
}
