//! Queues over HTTP, what only looks: which queues and jobs there are, what is known of them, and what holds. The fields are those
//! of `docs/protocols/http.md`, "Queues".
//!
//! Never here: a walk over all there is in one turn of the actor. Long answers are put together of shares.

use crate::actors::queue::{
    Counts, JobSelection, JobView, Phase, QueueSelection, QueueView, Rules, TypeRules,
};
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::protocols::http::caller::Asked;
use crate::protocols::http::field::{Fields, bytes_member};
use crate::protocols::http::listing::{Listing, held};
use crate::protocols::http::problem::Problem;
use crate::protocols::http::queue::{Answer, refusal};
use crate::protocols::http::route::json;
use actix_web::http::StatusCode;
use serde_json::{Map, Value, json};

/// Queues or jobs in an answer, unless more or less are asked for; and at most.
const LISTED: u32 = 100;
const LISTED_MAX: u64 = 1000;

/// Phases by the words that stand for them here and in metrics.
pub(crate) const PHASES: [(&str, Phase); 5] = [
    ("ready", Phase::Ready),
    ("delayed", Phase::Delayed),
    ("claimed", Phase::Claimed),
    ("buried", Phase::Buried),
    ("abandoned", Phase::Abandoned),
];

/// Queues, as many as are asked for, and where to go on.
pub(crate) async fn list(asked: Asked) -> Answer {
    let mut fields = asked.query()?;
    let (from, most) = page(&mut fields)?;
    let wanted = QueueSelection {
        tenant: fields.text("tenant")?,
        kind: fields.text("type")?,
        from,
        most,
    };
    fields.end()?;
    let queues = asked.node.queues();
    let page = async |from, most| {
        let selection = QueueSelection {
            from,
            most,
            ..wanted.clone()
        };
        let page = queues.select_queues(selection).await;
        page.map_err(|error| refusal(&asked, &error))
    };
    let now = asked.node.now();
    let tell = |view: &QueueView| queue_told(view, now);
    let listing = Listing::gather(&asked, (from, most), page, tell).await?;
    Ok(listing
        .sort_by_key(|view| view.name.clone())
        .answer("queues"))
}

/// One queue.
pub(crate) async fn queue(asked: Asked) -> Answer {
    let mut fields = asked.query()?;
    let name = fields.needed_queue("queue")?;
    fields.end()?;
    let view = asked.node.queues().queue(&name).await;
    let view = view.map_err(|error| refusal(&asked, &error))?;
    json(&queue_told(&view, asked.node.now()))
}

/// Jobs, as many as are asked for, and where to go on.
pub(crate) async fn jobs(asked: Asked) -> Answer {
    let mut fields = asked.query()?;
    let (from, most) = page(&mut fields)?;
    let wanted = JobSelection {
        queue: fields.queue("queue")?,
        kind: fields.text("type")?,
        phase: fields.one_of("phase", &PHASES)?,
        from,
        most,
    };
    fields.end()?;
    let queues = asked.node.queues();
    let page = async |from, most| {
        let selection = JobSelection {
            from,
            most,
            ..wanted.clone()
        };
        let page = queues.select_jobs(selection).await;
        page.map_err(|error| refusal(&asked, &error))
    };
    let now = asked.node.now();
    let tell = |view: &JobView| Value::Object(job_told(view, now));
    let listing = Listing::gather(&asked, (from, most), page, tell).await?;
    Ok(listing.sort_by_key(|view| view.id).answer("jobs"))
}

/// One job, with its body.
pub(crate) async fn job(asked: Asked) -> Answer {
    let mut fields = asked.query()?;
    let id = fields.needed_number("id", 0..=u64::MAX)?;
    fields.end()?;
    // Any number of clients may ask for one body, and not read it.
    let place = asked.room().large().await?;
    let found = asked.node.queues().job_with_body(id).await;
    let (view, body) = found.map_err(|error| refusal(&asked, &error))?;
    let mut told = job_told(&view, asked.node.now());
    told.extend([bytes_member("body", body.as_bytes())]);
    Ok(held(format!("{}\n", Value::Object(told)), place))
}

/// A queue from which something can be claimed, by chance.
pub(crate) async fn next(asked: Asked) -> Answer {
    let mut fields = asked.query()?;
    let kinds = fields.text("types")?.unwrap_or_default();
    fields.end()?;
    let kinds = kinds.split(',').filter(|kind| !kind.is_empty());
    let kinds: Vec<String> = kinds.map(str::to_owned).collect();
    let chosen = asked.node.queues().next(&kinds).await;
    let chosen = chosen.map_err(|error| refusal(&asked, &error))?;
    let name = chosen.ok_or_else(|| {
        let words = "nothing can be claimed from any such queue";
        Problem::new(StatusCode::NOT_FOUND, words).because("absent")
    })?;
    let (tenant, kind) = (text(name.tenant()), text(name.kind()));
    json(&json!({ "queue": name, "tenant": tenant, "type": kind }))
}

/// What holds for every type that has an entry, and for the others; or for one type.
pub(crate) async fn config(asked: Asked) -> Answer {
    let mut fields = asked.query()?;
    let kind = fields.queue("type")?;
    fields.end()?;
    let rules = asked.node.queue_rules();
    let Rules {
        jobs_max,
        bytes_max,
        queues_max,
        body_bytes_max,
        roots_max,
        default: _,
        types: _,
    } = rules;
    let types: Vec<Held<'_>> = match &kind {
        Some(kind) => vec![Held {
            kind: text(kind.kind()),
            from: rules.entry(kind),
            rules: rules.of(kind),
        }],
        None => {
            let own = |(kind, rules)| Held {
                kind,
                from: kind,
                rules,
            };
            rules.entries().map(own).collect()
        }
    };
    json(&json!({
        "limits": {
            "jobs_max": jobs_max,
            "bytes_max": bytes_max,
            "queues_max": queues_max,
            "body_bytes_max": body_bytes_max,
            "roots_max": roots_max,
        },
        "types": types,
    }))
}

/// What holds for a type, and the entry that says so.
#[derive(serde::Serialize)]
struct Held<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    from: &'a str,
    #[serde(flatten)]
    rules: &'a TypeRules,
}

/// Where a list begins, and how long it is at most.
fn page(fields: &mut Fields) -> Result<(Slot, u32), Problem> {
    let from = fields.number("after", 0..=u32::MAX.into())?.unwrap_or(0);
    let most = fields.number("limit", 1..=LISTED_MAX)?.unwrap_or(LISTED);
    Ok((Slot(from), most))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

fn queue_told(view: &QueueView, now: Timestamp) -> Value {
    let QueueView {
        name,
        jobs,
        total,
        using,
        watching,
        waiting,
        deletes,
        pauses,
        pause_ms: _,
        paused_until,
    } = view;
    let Counts {
        urgent,
        ready,
        delayed,
        claimed,
        buried,
        abandoned,
    } = jobs;
    json!({
        "queue": name,
        "tenant": text(name.tenant()),
        "type": text(name.kind()),
        "ready": ready,
        "urgent": urgent,
        "delayed": delayed,
        "claimed": claimed,
        "buried": buried,
        "abandoned": abandoned,
        "waiting": waiting,
        "using": using,
        "watching": watching,
        "total": total,
        "deletes": deletes,
        "pauses": pauses,
        "paused_ms": paused_until.map(|until| until.0.saturating_sub(now.0)),
    })
}

fn job_told(view: &JobView, now: Timestamp) -> Map<String, Value> {
    let JobView {
        id,
        queue,
        phase,
        priority,
        created,
        until,
        delay_ms,
        ttr_ms,
        attempts,
        reserves,
        timeouts,
        releases,
        buries,
        kicks,
        token,
        retries,
        passing,
        bytes,
    } = view;
    let members = [
        ("id", json!(id)),
        ("queue", json!(queue)),
        ("phase", json!(phase)),
        ("priority", json!(priority)),
        ("age_ms", json!(now.0.saturating_sub(created.0))),
        (
            "remaining_ms",
            json!(until.map(|until| until.0.saturating_sub(now.0))),
        ),
        ("delay_ms", json!(delay_ms)),
        ("ttr_ms", json!(ttr_ms)),
        ("attempts", json!(attempts)),
        ("claims", json!(reserves)),
        ("timeouts", json!(timeouts)),
        ("releases", json!(releases)),
        ("buries", json!(buries)),
        ("kicks", json!(kicks)),
        ("token", json!(token)),
        ("retries", json!(retries)),
        ("durable", json!(!passing)),
        ("bytes", json!(bytes)),
    ];
    let members = members.map(|(field, value)| (field.to_owned(), value));
    members.into_iter().collect()
}
