//! Every POST request honours an idempotency key or refuses it; none ignores it. `docs/protocols/http.md` lists those that honour it.

use crate::opened::Opened;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns the paths of POST requests, each with whether it is described to accept a key.
pub(crate) fn posts() -> Vec<(String, bool)> {
    let description = sexton_http::description();
    let paths = description["paths"].as_object().expect("paths");
    let posts = paths.iter().filter_map(|(path, operations)| {
        let parameters = operations.get("post")?["parameters"].as_array();
        let is_key = |parameter: &Value| parameter["name"] == "Idempotency-Key";
        Some((path.clone(), parameters.is_some_and(|all| all.iter().any(is_key))))
    });
    posts.collect()
}

#[test]
fn a_request_honours_a_key_or_refuses_it() {
    let opened = Opened::new();
    let mut refusing = 0;
    for (path, accepts) in posts() {
        // A key that is not allowed is noticed by a request that accepts keys, and any key by one that does not.
        let answer = opened.post_with(&path, "Idempotency-Key: a b\r\n", &json!({}));
        let refusal = answer.because(400, "field");
        assert_eq!(refusal["field"], "Idempotency-Key", "{path}");
        if !accepts {
            let answer = opened.post_with(&path, "Idempotency-Key: k\r\n", &json!({}));
            let refusal = answer.because(400, "field");
            assert_eq!(refusal["field"], "Idempotency-Key", "{path}");
            refusing += 1;
        }
    }
    assert!(refusing > 0, "some requests refuse keys");
}

#[test]
fn the_documentation_lists_the_requests_that_accept_a_key() {
    let page = include_str!("../../docs/protocols/http.md");
    let (_, rest) = page.split_once("### Idempotency-Key").expect("the section");
    let (_, rest) = rest.split_once("These requests accept it:").expect("the list");
    let (list, _) = rest.split_once("\n\n").expect("the list ends");
    let listed: BTreeSet<&str> = list.split('`').skip(1).step_by(2).collect();
    let accepting = posts().into_iter().filter(|(_, accepts)| *accepts);
    let accepting: BTreeSet<String> = accepting.map(|(path, _)| path).collect();
    let accepting: BTreeSet<&str> = accepting.iter().map(String::as_str).collect();
    assert_eq!(listed, accepting, "docs/protocols/http.md");
}
