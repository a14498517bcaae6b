//! The slider of *Then*, the view of an earlier state. It loads the state of another entry without loading the whole
//! page.

use crate::chromium::{Chromium, Tab};
use crate::patience::until;
use crate::served::Served;
use serde_json::json;

/// Loads *Then*, and waits until the journal has been read. Returns the sequence number of the last entry.
fn load(tab: &mut Tab<'_>, served: &Served) -> u64 {
    tab.load(&served.url("/page/then"));
    let last = until("the slider is there", || {
        let last = tab.evaluate("document.querySelector('input[type=range]')?.value");
        last.as_str().and_then(|last| last.parse().ok())
    });
    tab.evaluate("window.mark = 1");
    last
}

/// Returns the state that the page shows.
fn state(tab: &mut Tab<'_>) -> String {
    let shown = tab.evaluate("document.getElementById('state')?.innerText ?? ''");
    shown.as_str().unwrap_or_default().to_owned()
}

/// Waits until the page shows the state after an entry.
fn stands_at(tab: &mut Tab<'_>, entry: u64, last: u64) {
    tab.shows(&format!("Entry {entry} of {last}"));
    assert_eq!(
        tab.evaluate("location.search"),
        format!("?at={entry}"),
        "the address can be passed on"
    );
    assert_eq!(tab.evaluate("window.mark"), 1, "it is the same page");
}

/// Moves the slider to an entry, as a pointer would.
fn slide(tab: &mut Tab<'_>, entry: u64) {
    tab.evaluate(&format!(
        "(() => {{ const slider = document.querySelector('input[type=range]'); slider.value = {entry}; slider.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
    ));
}

/// Gives this answer to each request of the page, until `window.fetch` is set to `window.ask` again.
fn answer_all(tab: &mut Tab<'_>, status: u16, html: &str) {
    let (status, html) = (json!(status), json!(html));
    tab.evaluate(&format!(
        "(() => {{ window.ask = window.fetch; window.calls = 0; window.fetch = async () => {{ window.calls += 1; return new Response({html}, {{ status: {status} }}); }}; }})()"
    ));
}

#[test]
fn the_slider_shows_the_state_of_another_entry() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    let served = Served::open();
    for key in ["first", "second", "third"] {
        served.lock(key.as_bytes(), b"one");
    }
    let mut tab = chromium.tab();
    let last = load(&mut tab, &served);
    let now = state(&mut tab);
    assert!(now.contains("first") && now.contains("third"), "{now}");
    // Move the slider with the keyboard.
    tab.evaluate("document.querySelector('input[type=range]').focus()");
    tab.press("ArrowLeft");
    stands_at(&mut tab, last - 1, last);
    let before = state(&mut tab);
    assert!(before.contains("second") && !before.contains("third"), "{before}");
    let number = "document.getElementById('at').value";
    assert_eq!(tab.evaluate(number), (last - 1).to_string());
    // Move the slider back and forth, as a pointer would.
    slide(&mut tab, 1);
    stands_at(&mut tab, 1, last);
    assert!(!state(&mut tab).contains("first"));
    slide(&mut tab, last);
    stands_at(&mut tab, last, last);
    assert_eq!(state(&mut tab), now);
    // The number field also moves the slider.
    tab.evaluate("(() => { const it = document.getElementById('at'); it.value = 2; it.dispatchEvent(new Event('input')); })()");
    let slider = "document.querySelector('input[type=range]').value";
    assert_eq!(tab.evaluate(slider), "2");
    assert_eq!(tab.complaints(), Vec::<String>::new());
}

#[test]
fn a_moment_that_is_not_ready_is_waited_for() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    let served = Served::open();
    served.lock(b"first", b"one");
    served.lock(b"second", b"one");
    let mut tab = chromium.tab();
    let last = load(&mut tab, &served);
    let live = |tab: &mut Tab<'_>| tab.evaluate("document.getElementById('live').innerText");
    let reading = "<p data-again role=status>Reading the journal: entry 1 of 2.</p>";
    let busy = "<p class=problem data-busy>too many requests about the past are waiting.</p>";
    let cases: [(u16, &str, &str, u64); 2] = [
        (200, reading, "Reading the journal", last - 1),
        (503, busy, "too many requests about the past", last),
    ];
    for (status, html, words, entry) in cases {
        answer_all(&mut tab, status, html);
        slide(&mut tab, entry);
        tab.shows(words);
        assert!(live(&mut tab).as_str().is_some_and(|it| it.contains(words)));
        tab.evaluate("(() => { window.fetch = window.ask; })()");
        stands_at(&mut tab, entry, last);
        let stamp = live(&mut tab);
        let stamp = stamp.as_str().expect("a string");
        assert!(stamp.starts_with("As of"), "{stamp}");
    }
    assert!(state(&mut tab).contains("second"));
    assert_eq!(tab.complaints(), Vec::<String>::new());
}

#[test]
fn a_page_whose_story_is_still_being_read_is_not_loaded_again_and_again() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    let served = Served::open();
    served.lock(b"first", b"one");
    let mut tab = chromium.tab();
    tab.load(&served.url("/page/locks"));
    tab.shows("first");
    // The same as on the page of an item whose history is only in the journal.
    let reading = "<p data-again role=status>Reading the journal: entry 1 of 2.</p>";
    answer_all(&mut tab, 200, reading);
    tab.evaluate(&format!(
        "(() => {{ window.mark = 1; document.getElementById('main').insertAdjacentHTML('beforeend', '{reading}'); }})()"
    ));
    served.lock(b"second", b"one");
    until("it was requested again", || {
        let calls = tab.evaluate("window.calls ?? 0").as_u64();
        let is_same = tab.evaluate("window.mark") == 1;
        assert!(is_same, "it is the same page");
        calls.filter(|calls| *calls >= 3)
    });
    assert_eq!(tab.complaints(), Vec::<String>::new());
}
