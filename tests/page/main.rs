//! Tests the page in Chromium, with and without its script. Reports tests as skipped where Chromium is not available
//! (`SEXTON_CHROMIUM` names another program than `chromium`).

mod chromium;
mod contrast;
mod forms;
mod furnished;
mod looks;
mod many;
mod served;
mod then;
mod views;

#[path = "../support/left_out.rs"]
mod left_out;
#[path = "../support/lock_request.rs"]
mod lock_request;
#[path = "../support/patience.rs"]
mod patience;

use chromium::Chromium;
use served::{Served, TOKEN};
use views::{HEBREW, HTML};

#[test]
fn a_page_becomes_live_and_shows_names_as_they_are() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    let served = Served::open();
    let mut tab = chromium.tab();
    tab.load(&served.url("/page/locks"));
    tab.shows("No locks");
    // The mark is lost if the page is loaded again, which must not happen from here on.
    tab.evaluate("window.mark = 1");
    served.lock(HTML.as_bytes(), b"one");
    tab.shows(HTML);
    served.lock(HEBREW.as_bytes(), b"one");
    tab.shows(HEBREW);
    served.lock(b"\xff\xfe", b"one");
    tab.shows("\\xff\\xfe");
    assert_eq!(tab.evaluate("window.mark"), 1, "it was not loaded as a whole");
    assert_eq!(tab.evaluate("document.querySelectorAll('img').length"), 0);
    assert_eq!(tab.evaluate("document.querySelectorAll('script').length"), 1);
    // A right-to-left name must not change the direction of the cell around it.
    let turned = "[...document.querySelectorAll('bdi')].filter((it) => getComputedStyle(it.closest('td')).direction !== 'ltr').length";
    assert_eq!(tab.evaluate(turned), 0);
    assert_eq!(tab.complaints(), Vec::<String>::new());
}

#[test]
fn a_page_goes_on_when_the_coordinator_is_back() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    let mut served = Served::open();
    let mut tab = chromium.tab();
    tab.load(&served.url("/page/locks"));
    tab.shows("As of");
    served.stop();
    tab.shows("Not connected");
    served.start();
    served.lock(b"after", b"one");
    tab.shows("after");
    tab.shows("As of");
    // Check that the page is updated continuously again, and was not only loaded once.
    served.lock(b"later", b"one");
    tab.shows("later");
    tab.evaluate("document.getElementById('pause').click()");
    tab.shows("Paused");
}

#[test]
fn somebody_logs_in_and_out_by_the_keyboard() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    let served = Served::with_tokens(|_| {});
    let mut tab = chromium.tab();
    tab.load(&served.url("/page/locks?key=a"));
    tab.shows("Log in");
    assert_eq!(tab.evaluate("document.activeElement.id"), "token");
    tab.write(TOKEN);
    tab.press("Enter");
    tab.shows("No locks");
    assert_eq!(tab.evaluate("location.pathname + location.search"), "/page/locks?key=a");
    assert_eq!(tab.evaluate("document.cookie"), "", "scripts cannot read it");
    // The first Tab stop is a link that skips the navigation.
    tab.press("Tab");
    assert_eq!(tab.evaluate("document.activeElement.textContent"), "Skip to content");
    let is_seen = "document.activeElement.getBoundingClientRect().left >= 0";
    assert_eq!(tab.evaluate(is_seen), true);
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(tab.evaluate(outline), "solid");
    // Every field has a name, and every table has a head.
    let unnamed = "[...document.querySelectorAll('input:not([type=hidden]), select')].filter((it) => !it.labels?.length).length";
    assert_eq!(tab.evaluate(unnamed), 0);
    tab.evaluate("document.querySelector('form.leave button').click()");
    tab.shows("Log in");
    tab.load(&served.url("/"));
    tab.shows("not logged in");
}
