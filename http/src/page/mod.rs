//! The page: a view of the node for operators who troubleshoot with a browser, as specified in `docs/page.md`.
//!
//! HTML is built here from the answers of the typed handles, and is complete without JavaScript; `page.js` makes it live. Nothing is loaded
//! from other sites, and everything shown is escaped. The work for each view is bounded. Access is controlled in `access.rs`.
//!
//! | file | holds |
//! |---|---|
//! | `frame.rs` | the frame around every page, and its headers |
//! | `routing.rs` | the conversion of views, forms and files to routes |
//! | `login.rs` | logging in and out |
//! | `render.rs` | the formatting of values and links |
//! | `plot.rs` | rates as small plots |
//! | `live.rs` | the stream that makes pages reload |
//! | `event_rows.rs` | events as rows |
//! | `now.rs` | the start page |
//! | `locks.rs` `leases.rs` | holders and waiters; the history of a lock, and of a lease |
//! | `queues.rs` `jobs.rs` `job.rs` | queues, their jobs by state, and the history of one job |
//! | `processes.rs` `process.rs` | services, the tree of processes, and the history of one process |
//! | `tasks.rs` | why each task is not running, and the history of one task |
//! | `events.rs` | the last events |
//! | `then.rs` | the state after any entry of the journal, and the entries around it |
//! | `walk.rs` | the collection of lists in several queries |

mod event_rows;
mod events;
pub(crate) mod frame;
mod job;
mod jobs;
mod leases;
mod live;
mod locks;
mod login;
mod now;
mod plot;
mod process;
mod processes;
mod queues;
mod render;
mod routing;
mod tasks;
mod then;
mod walk;

use crate::route::Route;

/// The static files of the page, as pairs of content type and content.
const CSS: (&str, &str) = ("text/css; charset=utf-8", include_str!("page.css"));
const JS: (&str, &str) = ("text/javascript; charset=utf-8", include_str!("page.js"));
const ICON: (&str, &str) = ("image/svg+xml", include_str!("page.svg"));

pub(crate) fn routes() -> Vec<Route> {
    let files = vec![
        routing::file("/page.css", CSS),
        routing::file("/page.js", JS),
        routing::file("/page.svg", ICON),
    ];
    let views = [
        login::routes(),
        live::routes(),
        now::routes(),
        locks::routes(),
        leases::routes(),
        queues::routes(),
        jobs::routes(),
        job::routes(),
        processes::routes(),
        process::routes(),
        tasks::routes(),
        events::routes(),
        then::routes(),
    ];
    views.into_iter().flatten().chain(files).collect()
}
