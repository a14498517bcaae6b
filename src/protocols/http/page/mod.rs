//! The page: what the API tells programs, for people with a browser and a problem. `docs/page.md` is the text this answers to.
//!
//! HTML is made here, of what the typed handles answer, and is whole without JavaScript; `page.js` makes it live. Nothing is
//! loaded from elsewhere, and everything that is shown is escaped. Never here: a walk over all there is; a rule of what may be asked.
//!
//! | file | holds |
//! |---|---|
//! | `frame.rs` | what is around every page, and its headers |
//! | `goes.rs` | how views, forms and files become routes |
//! | `login.rs` | logging in and out |
//! | `shown.rs` | values as they are shown, and links |
//! | `plot.rs` | rates as small plots |
//! | `live.rs` | the stream that has pages loaded again |
//! | `told.rs` | events as rows |
//! | `now.rs` `trouble/` | the first view, and what is amiss |
//! | `locks.rs` `leases.rs` | who holds what, and who waits; the story of a lock, and of a lease |
//! | `queues.rs` `jobs.rs` `job.rs` | queues, their jobs by what is the matter with them, and the story of one |
//! | `processes.rs` `process.rs` | services, the tree of processes, and the story of one |
//! | `tasks.rs` | why each task does not run, and the story of one |
//! | `events.rs` | what happened |
//! | `walk.rs` | lists of which one question shows a share |

mod events;
pub(crate) mod frame;
mod goes;
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
mod shown;
mod tasks;
mod told;
mod trouble;
mod walk;

use crate::protocols::http::route::Route;

/// The files that a page loads.
const CSS: (&str, &str) = ("text/css; charset=utf-8", include_str!("page.css"));
const JS: (&str, &str) = ("text/javascript; charset=utf-8", include_str!("page.js"));
const ICON: (&str, &str) = ("image/svg+xml", include_str!("page.svg"));

pub(crate) fn routes() -> Vec<Route> {
    let files = vec![
        goes::file("/page.css", CSS),
        goes::file("/page.js", JS),
        goes::file("/page.svg", ICON),
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
    ];
    views.into_iter().flatten().chain(files).collect()
}
