//! Submits the forms of the page in a browser, with and without permission, and from another origin.

use crate::chromium::Chromium;
use crate::furnished::Furnished;
use crate::served::{RUN_TOKEN, Served, TOKEN};
use crate::views::{furnished, log_in};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};

/// A form: its page, its button, and a text that is shown once it was accepted.
struct Form {
    path: String,
    button: &'static str,
    words: &'static str,
}

/// Returns all forms of the furnished node, in an order in which each is still there after the ones before it were
/// submitted.
fn forms(furnished: &Furnished) -> Vec<Form> {
    let form = |path: &str, button, words| Form { path: path.to_owned(), button, words };
    let [first, second] = furnished.abandoned;
    let job = |id: u64| format!("/page/job?id={id}");
    let task = format!("/page/task?id={}", furnished.waiting);
    vec![
        form(
            "/page/lock?key=account%3A42",
            "[action='/page/lock/force'] button",
            "Held by worker-2",
        ),
        form(
            "/page/queue?queue=shop%3Amail",
            "[action='/page/queue/pause'] button",
            "End the pause",
        ),
        form(&job(first), "[action='/page/job/retry'] button", "shop:mail ready"),
        form(&job(second), "[action='/page/job/discard'] button", "1 job discarded."),
        form(&job(furnished.claimed), "[action='/page/job/cancel'] button", "shop:mail abandoned"),
        form(
            "/page/jobs?queue=billing%3Ainvoices",
            "[action='/page/jobs/retry'] button",
            "1 job made ready.",
        ),
        form(
            "/page/jobs?queue=archive%3Aold",
            "[action='/page/jobs/discard'] button",
            "1 job discarded.",
        ),
        form(&task, "[value=pause]", "it is paused"),
        form(&task, "[value=resume]", "is under way"),
        form(&task, "[value=terminate]", "Ended:"),
        form(&task, "[value=restart]", "Terminate"),
    ]
}

/// An expression for the state of the item that a page shows, without parts that change with time alone.
const STANDS: &str = "(document.querySelector('.subject')?.innerText ?? '') + document.querySelectorAll('#jobs tbody tr').length";

/// Returns the form on a page that only some tokens may view.
fn stop(furnished: &Furnished) -> Form {
    Form {
        path: format!("/page/process?id={}", furnished.process),
        button: "[action='/page/process/stop'] button",
        words: "Stopped by",
    }
}

/// What a page shows to those who may not run commands.
const REFUSED: &str = "requires a token with the scope run";

fn pressed_with(token: &str, scripts: bool) {
    let Some((mut chromium, furnished)) = furnished() else {
        return;
    };
    let served = &furnished.served;
    let mut tab = chromium.tab();
    log_in(&mut tab, served, token);
    tab.scripts(scripts);
    for form in forms(&furnished) {
        // The page shows the buttons of a task only to those who may press them.
        if token != RUN_TOKEN && form.path.starts_with("/page/task?") {
            continue;
        }
        tab.load(&served.url(&form.path));
        tab.click(form.button);
        tab.shows(form.words);
    }
    let stop = stop(&furnished);
    tab.load(&served.url(&stop.path));
    if token == RUN_TOKEN {
        tab.click(stop.button);
        tab.shows(stop.words);
    } else {
        tab.shows(REFUSED);
    }
    assert_eq!(served.owner("account:42").as_deref(), Some("worker-2"));
}

#[test]
fn forms_are_taken_from_those_who_may() {
    pressed_with(TOKEN, true);
    pressed_with(RUN_TOKEN, false);
}

#[test]
fn forms_of_those_who_are_logged_out_do_nothing() {
    let Some((mut chromium, furnished)) = furnished() else {
        return;
    };
    let served = &furnished.served;
    let mut tab = chromium.tab();
    let mut all = forms(&furnished);
    // Leave out the forms whose buttons only appear after another form was submitted.
    all.retain(|form| !form.button.contains("value=re"));
    all.push(stop(&furnished));
    for form in all {
        log_in(&mut tab, served, RUN_TOKEN);
        tab.load(&served.url(&form.path));
        let before = tab.evaluate(STANDS);
        tab.forget();
        tab.click(form.button);
        tab.shows("not logged in");
        log_in(&mut tab, served, RUN_TOKEN);
        tab.load(&served.url(&form.path));
        let after = tab.evaluate(STANDS);
        assert_eq!(before, after, "{}", form.button);
    }
    assert_eq!(served.owner("account:42").as_deref(), Some("worker-7"));
}

/// Serves a page of another origin, with a form that submits to `to`. Returns its address.
fn elsewhere(to: SocketAddr) -> SocketAddr {
    let page = format!(
        "<!doctype html><title>elsewhere</title><form method=post action='http://{to}/page/lock/force'><input name=key value='account:42'><button>Win</button></form>"
    );
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let address = listener.local_addr().expect("an address");
    let serve = move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let lines = BufReader::new(&stream).lines();
            let rest = lines.take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty()));
            let lines = rest.count();
            let length = page.len();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
            if lines > 0 {
                let answer = format!("{head}Content-Length: {length}\r\n\r\n{page}");
                drop(stream.write_all(answer.as_bytes()));
            }
        }
    };
    let thread = std::thread::Builder::new().name("elsewhere".to_owned());
    drop(thread.spawn(serve).expect("a new thread"));
    address
}

#[test]
fn forms_of_other_pages_are_not_taken() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    for served in [Served::open(), Served::with_tokens(|_| {})] {
        for owner in [b"one", b"two"] {
            served.lock(b"account:42", owner);
        }
        let port = elsewhere(served.address).port();
        let mut tab = chromium.tab();
        tab.load(&served.url("/page/login"));
        if tab.evaluate("document.getElementById('token') !== null") == true {
            log_in(&mut tab, &served, RUN_TOKEN);
        }
        // Once from the same site, so that the cookie is sent, and once from another.
        for host in ["127.0.0.1", "localhost"] {
            tab.load(&format!("http://{host}:{port}/"));
            tab.click("button");
            tab.shows("requests from pages of another origin are not accepted");
            assert_eq!(served.owner("account:42").as_deref(), Some("one"));
        }
    }
}
