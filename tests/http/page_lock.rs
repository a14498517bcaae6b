//! Locks and leases on the page: holders, the time since when, waiters, names of any bytes, and long lists.

use crate::browser::{Browser, shows, text};
use crate::opened::{Opened, request, run};
use serde_json::json;

#[test]
fn a_lock_is_shown_with_its_holder_and_those_who_wait() {
    let opened = Opened::new();
    let browser = Browser::new(&opened);
    // The first page that is loaded makes the node store events.
    shows(&browser.page("/page/locks"), &["No locks", "No leases"]);
    let items = [b"one", b"two", b"six"].map(|owner| request(b"account", owner));
    run(opened.handle().locks().batch(items.into())).expect("the node answers");
    shows(&browser.page("/page/locks"), &["account", "one", "holder", "waits, 1", "waits, 2"]);
    let page = browser.page("/page/lock?key=account");
    shows(
        &page,
        &["Held by one , for 0 s (since", "waits, 2", "What happened", "granted", "waiting"],
    );
    shows(
        &browser.page("/"),
        &["Locks with the longest waits", "account one 2", "Locks held 1 waiting for locks 2"],
    );
    let filtered = browser.page("/page/locks?key=account&owner=two");
    assert!(text(&filtered).contains("waits, 1") && !text(&filtered).contains("holder"));
    let page = browser.do_and_look("/page/lock/force", "key=account&index=");
    shows(&page, &["Held by two", "released"]);
}

#[test]
fn a_list_of_locks_says_since_when_each_is_held() {
    let opened = Opened::new();
    let browser = Browser::new(&opened);
    run(opened.handle().locks().batch(vec![request(b"a", b"one")])).expect("the node answers");
    // No events were stored when the lock was granted, and it may have been renewed since.
    shows(&browser.page("/page/locks"), &["Owner State Since Expires in", "or before"]);
    let items = vec![request(b"b", b"one")];
    run(opened.handle().locks().batch(items)).expect("the node answers");
    let page = text(&browser.page("/page/locks"));
    assert_eq!(page.matches("or before").count(), 1, "{page}");
}

#[test]
fn the_lock_that_somebody_has_waited_for_longest_comes_first() {
    let opened = Opened::new();
    let wanted: [(&[u8], &[u8]); 5] = [
        (b"first", b"one"),
        (b"first", b"two"),
        (b"busy", b"one"),
        (b"busy", b"two"),
        (b"busy", b"six"),
    ];
    for (key, owner) in wanted {
        run(opened.handle().locks().batch(vec![request(key, owner)])).expect("the node answers");
    }
    let page = text(&Browser::new(&opened).page("/"));
    let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("{words}: {page}"));
    assert!(at("first one 1") < at("busy one 2"), "{page}");
}

#[test]
fn a_grant_of_which_nothing_is_kept_is_named_by_its_token() {
    let opened = Opened::new();
    run(opened.handle().locks().batch(vec![request(b"a", b"one")])).expect("the node answers");
    shows(
        &Browser::new(&opened).page("/page/lock?key=a"),
        &["or before (token", "granted", "From the journal"],
    );
}

#[test]
fn names_are_escaped_whatever_they_are() {
    let opened = Opened::new();
    let html = "<img src=x onerror=alert(1)>\"'&amp;";
    let hebrew = "\u{5e0}\u{5e2}\u{5d5}\u{5dc}";
    let overridden = "a\u{202e}b";
    let bytes = b"\xff\xfe<b>";
    for key in [html.as_bytes(), hebrew.as_bytes(), overridden.as_bytes(), bytes] {
        let items = vec![request(key, b"<script>alert(1)</script>"), request(key, b"two")];
        run(opened.handle().locks().batch(items)).expect("the node answers");
    }
    let browser = Browser::new(&opened);
    for path in ["/page/locks", "/"] {
        let page = browser.page(path);
        assert!(!page.contains("<img") && !page.contains("<script>"), "{page}");
        assert!(!page.contains('\u{202e}'), "{page}");
        assert!(page.contains(&format!("<bdi>{hebrew}</bdi>")), "{page}");
        assert!(page.contains("<bdi>\\xff\\xfe&lt;b&gt;</bdi>"), "{page}");
        shows(&page, &[html.trim_end_matches("&amp;"), "a\\xe2\\x80\\xaeb"]);
    }
    // Every link leads to a page about the item that it names.
    let page = browser.page("/page/locks");
    let links: std::collections::BTreeSet<&str> = page
        .split(" href=\"")
        .skip(1)
        .filter_map(|part| part.split('"').next())
        .filter(|link| link.starts_with("/page/lock?"))
        .collect();
    assert_eq!(links.len(), 4);
    for link in links {
        let page = browser.page(&link.replace("&amp;", "&"));
        shows(&page, &["Held by <script>alert(1)</script>", "Release by force"]);
        let begin = page.find("<form class=\"act\"").expect("it has a form");
        assert!(!page[begin..].contains("<b>"), "{page}");
    }
    let by_bytes = browser.do_and_look("/page/lock/force", "key_b64=%2F%2F48Yj4%3D");
    shows(&by_bytes, &["Held by two"]);
}

#[test]
fn a_long_list_is_shown_page_by_page() {
    let opened = Opened::new();
    let locks: Vec<_> =
        (0..250).map(|number| request(format!("lock-{number}").as_bytes(), b"one")).collect();
    run(opened.handle().locks().batch(locks)).expect("the node answers");
    let browser = Browser::new(&opened);
    let (mut path, mut found) = ("/page/locks".to_owned(), 0);
    loop {
        let page = browser.page(&path);
        let shown = page.matches("/page/lock?key=").count();
        assert!(shown <= 100 && page.len() < 100_000, "{shown}");
        found += shown;
        let Some((before, _)) = page.split_once("\" rel=\"next\"") else {
            break;
        };
        let (_, next) = before.rsplit_once('"').expect("a link");
        path = next.replace("&amp;", "&");
    }
    assert_eq!(found, 250);
}

#[test]
fn a_lease_is_shown_with_its_pass_and_who_is_next() {
    let opened = Opened::new();
    let browser = Browser::new(&opened);
    browser.page("/");
    let claim = json!({"name": "night<ly", "period_ms": 60_000});
    let claimed = opened.post("/v1/leases/claim", &claim).json();
    let page = browser.page("/page/locks");
    shows(&page, &["night<ly", "running", "a client"]);
    let page = browser.page("/page/lease?name=night%3Cly");
    shows(&page, &["Period 1 min 0 s", "Token", "What happened", "began"]);
    shows(&browser.page("/"), &["Leases", "night<ly", "Passes running 1"]);
    drop(claimed);
}
