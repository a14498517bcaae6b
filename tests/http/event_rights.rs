//! Which events each caller sees: those of processes and services are for callers who may start and end processes, like the routes that show
//! processes.

use crate::browser::Browser;
use crate::listener::Listener;
use crate::opened::{Opened, TOKEN};
use serde_json::json;

#[test]
fn events_of_processes_are_seen_by_those_who_may_see_processes() {
    for (suffix, expected) in [(" read", false), ("", false), (" run", true)] {
        let opened = Opened::with_tokens(&format!("{TOKEN}{suffix}\n"));
        let mut listener = Listener::new(&opened, "/v1/events", "");
        let mine = json!({"pid": std::process::id()});
        let post = |path: &str, body| opened.post_as_owner(path, body).json();
        let process = post("/v1/processes/register", &mine)["id"].clone();
        post("/v1/processes/register", &mine);
        post("/v1/locks/acquire", &json!({"key": "k", "owner": "o"}));
        let expected_kinds: &[&str] =
            if expected { &["registered", "granted"] } else { &["granted"] };
        listener.receive(expected_kinds);
        let browser = Browser::with_token(&opened, TOKEN);
        let id = process.as_str().expect("a string");
        // The history is read by a thread of its own.
        let then = crate::patience::until("the history is read", || {
            let page = browser.page("/page/then");
            page.contains("State after entry").then_some(page)
        });
        for page in [browser.page("/page/events"), then] {
            assert!(page.contains("granted"), "{page}");
            assert_eq!(page.contains(id), expected, "{suffix}: {page}");
        }
        let asked = |query: &str| {
            let head = format!("HEAD /v1/events?{query} HTTP/1.1\r\nHost: localhost\r\n");
            let token = format!("Authorization: Bearer {TOKEN}\r\n");
            opened.exchange(format!("{head}{token}\r\n").as_bytes())
        };
        let refused = if expected { "HTTP/1.1 200" } else { "HTTP/1.1 403" };
        for query in ["actor=process", "kind=registered", "kind=registered,service-ended"] {
            assert!(asked(query).starts_with(refused), "{suffix}: {query}");
        }
        // Other actors have events of this kind as well.
        for query in ["actor=lock", "kind=started", "kind=registered,granted"] {
            assert!(asked(query).starts_with("HTTP/1.1 200"), "{suffix}: {query}");
        }
    }
}
