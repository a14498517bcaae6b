//! Large numbers of queues and processes: each page of a list is bounded, and links to the next.

use crate::chromium::{Chromium, Tab};
use crate::served::{RUN_TOKEN, Served, run};
use crate::views::log_in;
use sexton::actors::process::{Identity, Registering, Tags};
use sexton::actors::queue::{Body, Put};
use sexton::bytes::Bytes;
use sexton::clock::Date;
use sexton::persist::journal::Fsync;

/// Returns the number of rows of a list, and whether the list has a link to a next page.
fn listed(tab: &mut Tab<'_>, section: &str) -> (u64, bool) {
    let rows = format!("document.querySelectorAll('{section} tbody tr').length");
    let next = format!("document.querySelector('{section} a[rel=next]') !== null");
    let rows = tab.evaluate(&rows).as_u64().expect("a number");
    (rows, tab.evaluate(&next) == true)
}

fn is_walked(tab: &mut Tab<'_>, url: &str, section: &str) {
    for scripts in [true, false] {
        tab.scripts(scripts);
        tab.load(url);
        tab.shows("As of");
        assert_eq!(listed(tab, section), (100, true), "{url}");
        let first = format!("document.querySelector('{section} tbody tr').innerText");
        let before = tab.evaluate(&first);
        tab.click(&format!("{section} a[rel=next]"));
        crate::patience::until("another page", || {
            let now = tab.evaluate(&first);
            let is_other = now.is_string() && now != before;
            // The first row may be new before all rows have arrived.
            (is_other && listed(tab, section) == (100, true)).then_some(())
        });
    }
    assert_eq!(tab.complaints(), Vec::<String>::new());
}

#[test]
fn a_hundred_thousand_queues_are_shown_page_by_page() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    let served = Served::configured(|config| config.fsync = Fsync::Never);
    let queues = served.handle().queues();
    for thousand in 0..100 {
        let jobs = (0..1000).map(|number| {
            let queue = format!("tenant-{thousand}:type-{number}");
            let queue = queue.as_str().try_into().expect("a valid name");
            Put::new(queue, Body::new(*b"x"))
        });
        run(queues.put_all(jobs.collect())).expect("they are added");
    }
    let mut tab = chromium.tab();
    is_walked(&mut tab, &served.url("/page/queues"), "#queues");
    is_walked(&mut tab, &served.url("/page/queues?tenant=tenant-7"), "#queues");
    tab.load(&served.url("/"));
    tab.shows("100,000");
}

/// Returns a registration of a process that never existed, so that it is soon recorded as gone.
fn record(number: u32) -> Registering {
    let argv = ["import", &format!("--part={number}")].map(|it| Bytes::new(it.as_bytes()));
    Registering {
        identity: Identity { machine: 1, boot: 1, namespace: 1, pid: number, inode: 0, ticks: 1 },
        argv: argv.into(),
        dir: Bytes::new(*b"/"),
        started: Date(1_700_000_000_000),
        tags: Tags::default(),
        ..Registering::default()
    }
}

#[test]
fn ten_thousand_processes_are_shown_page_by_page() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    let served = Served::with_tokens(|config| config.fsync = Fsync::Never);
    let processes = served.handle().processes();
    run(async {
        for number in 1..=10_000 {
            processes.register(record(number)).await.expect("the limit is not reached");
        }
    });
    let mut tab = chromium.tab();
    log_in(&mut tab, &served, RUN_TOKEN);
    is_walked(&mut tab, &served.url("/page/processes?status=all"), "#processes");
    tab.load(&served.url("/page/processes?status=all&search=part%3D9999"));
    tab.shows("--part=9999");
}
