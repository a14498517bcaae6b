//! Every view with data, with and without the page's script, and with names in any writing system.

use crate::chromium::{Chromium, Tab};
use crate::furnished::Furnished;
use crate::served::{RUN_TOKEN, Served, TOKEN};

/// A name that is HTML. `HEBREW` is a right-to-left name with HTML characters.
pub(crate) const HTML: &str = "<img src=x onerror=alert(1)><script>alert(2)</script>";
pub(crate) const HEBREW: &str = "\u{5e0}\u{5e2}\u{5d5}\u{5dc} <\u{5d3}\u{5d5}\u{5d3}>";

/// Logs in through the form.
pub(crate) fn log_in(tab: &mut Tab<'_>, served: &Served, token: &str) {
    tab.load(&served.url("/page/login"));
    tab.evaluate(&format!("document.getElementById('token').value = '{token}'"));
    tab.click("form.login button");
    tab.shows("Log out");
}

/// Starts a browser, and a node with something of every kind. Returns `None` without Chromium.
pub(crate) fn furnished() -> Option<(Chromium, Furnished)> {
    Some((Chromium::start()?, Furnished::new()))
}

#[test]
fn every_view_shows_what_is_there_with_its_script_and_without() {
    let Some((mut chromium, furnished)) = furnished() else {
        return;
    };
    let mut tab = chromium.tab();
    log_in(&mut tab, &furnished.served, RUN_TOKEN);
    for scripts in [true, false] {
        tab.scripts(scripts);
        for view in furnished.views() {
            tab.load(&furnished.served.url(&view.path));
            for words in view.words {
                tab.shows(words);
            }
            let is_live = tab.evaluate("document.getElementById('pause') !== null");
            assert_eq!(is_live, scripts, "{}", view.name);
            assert_eq!(tab.complaints(), Vec::<String>::new(), "{}", view.name);
        }
    }
}

#[test]
fn what_may_not_be_seen_is_not_shown() {
    let Some((mut chromium, furnished)) = furnished() else {
        return;
    };
    let mut tab = chromium.tab();
    for view in furnished.views() {
        tab.load(&furnished.served.url(&view.path));
        tab.shows("not logged in");
    }
    log_in(&mut tab, &furnished.served, TOKEN);
    for view in furnished.views() {
        tab.load(&furnished.served.url(&view.path));
        let is_of_processes = view.name.starts_with("process");
        tab.shows(if is_of_processes { "requires a token with the scope run" } else { "As of" });
        // Only users who may run commands see the output of commands.
        for printed in ["no route to host", "customers read"] {
            let shown = format!("document.body.innerText.includes('{printed}')");
            assert_eq!(tab.evaluate(&shown), false, "{}", view.name);
        }
    }
}

#[test]
fn views_are_live() {
    let Some((mut chromium, furnished)) = furnished() else {
        return;
    };
    let served = &furnished.served;
    let mut tab = chromium.tab();
    log_in(&mut tab, served, RUN_TOKEN);
    let work = || serde_json::json!({"launch": {"command": ["true"]}, "name": "late", "group": "late", "work": "late"});
    let add = || drop(served.post("/v1/tasks/add", &work()));
    let launch = || {
        let launched = serde_json::json!({"command": ["true", "late"]});
        drop(served.post("/v1/processes/launch", &launched));
    };
    let cases: [(&str, &dyn Fn(), &str); 5] = [
        ("/page/locks", &|| served.lock(b"late", b"one"), "late"),
        ("/page/queues", &|| served.push("late", &["x"]), "late"),
        ("/page/tasks", &add, "late"),
        ("/page/processes?status=all", &launch, "true late"),
        ("/page/events", &|| served.lock(b"last", b"one"), "last"),
    ];
    for (path, act, words) in cases {
        tab.load(&served.url(path));
        tab.shows("As of");
        tab.evaluate("window.mark = 1");
        act();
        tab.shows(words);
        assert_eq!(tab.evaluate("window.mark"), 1, "{path} is the same page");
    }
    assert_eq!(tab.complaints(), Vec::<String>::new());
}

#[test]
fn names_of_any_script_are_shown_as_they_are_in_every_view() {
    let Some((mut chromium, furnished)) = furnished() else {
        return;
    };
    let mut tab = chromium.tab();
    log_in(&mut tab, &furnished.served, RUN_TOKEN);
    let paths = furnished.name([HTML, HEBREW]);
    for scripts in [true, false] {
        tab.scripts(scripts);
        for (path, name) in &paths {
            tab.load(&furnished.served.url(path));
            tab.shows(name);
            let elements =
                "document.querySelectorAll('img, script:not([src=\"/page.js\"])').length";
            assert_eq!(tab.evaluate(elements), 0, "{path}");
            // A right-to-left name must not change the direction of the text around it.
            let turned = "[...document.querySelectorAll('td, dd, p, li')].filter((it) => getComputedStyle(it).direction !== 'ltr').length";
            assert_eq!(tab.evaluate(turned), 0, "{path}");
            assert_eq!(tab.complaints(), Vec::<String>::new(), "{path}");
        }
    }
}
