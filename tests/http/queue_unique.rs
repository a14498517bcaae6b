//! Jobs that are unique for a time.

use crate::opened::Opened;
use crate::queue::{PUSH, act, pop};
use serde_json::json;

#[test]
fn a_key_is_remembered_for_a_time_whatever_becomes_of_its_job() {
    let opened = Opened::new();
    let push = |body: &str, ms: u64| {
        let fields = json!({"queue": "q", "body": body, "dedup": "k", "unique_for_ms": ms});
        opened.post(PUSH, &fields).json()
    };
    let first = push("x", 60_000);
    assert_eq!(first["new"], true);
    let claim = pop(&opened, "q");
    let ack = json!({"id": claim["id"], "token": claim["token"]});
    assert_eq!(act(&opened, "ack", &ack).status, 200);
    for ms in [60_000, 0] {
        let again = push("y", ms);
        assert_eq!((&again["id"], &again["new"]), (&first["id"], &json!(false)));
    }
    let both =
        json!({"jobs": [{"queue": "q", "body": "z", "dedup": "k"}, {"queue": "q", "body": "w"}]});
    let added = act(&opened, "push-all", &both).json();
    assert_eq!(added["jobs"][0]["new"], false, "{added}");
    assert_eq!(added["jobs"][1]["new"], true, "{added}");
    let fields = json!({"queue": "q", "body": "x", "unique_for_ms": 31_622_400_001_u64});
    let problem = opened.post(PUSH, &fields).because(400, "field");
    assert_eq!(problem["field"], "unique_for_ms");
}
