//! A client from crates.io, unchanged, against the beanstalkd listener of the real program.

use crate::daemon::Daemon;
use beanstalkc::{Beanstalkc, BeanstalkcResult};
use std::collections::HashMap;
use std::time::Duration;

fn connected(daemon: &Daemon) -> Beanstalkc {
    let address = daemon.beanstalk();
    Beanstalkc::new()
        .host(&address.ip().to_string())
        .port(address.port())
        .connect()
        .expect("connected")
}

fn said<'a>(stats: &'a HashMap<String, String>, key: &str) -> &'a str {
    stats.get(key).map_or("nothing", String::as_str)
}

fn work_and_look(client: &mut Beanstalkc) -> BeanstalkcResult<()> {
    assert_eq!(client.use_tube("mails")?, "mails");
    assert_eq!(client.watch("mails")?, 2);
    assert_eq!(client.ignore("default")?, 1);
    assert_eq!(client.watching()?, ["mails"]);
    let (soon, long) = (Duration::ZERO, Duration::from_mins(1));
    assert_eq!(client.put(b"later", 5, long, long)?, 1);
    assert_eq!(client.put(b"less urgent", 9, soon, long)?, 2);
    assert_eq!(client.put(b"\r\nurgent\0", 1, soon, long)?, 3);
    assert_eq!(client.peek_delayed()?.body(), b"later");
    let mut job = client.reserve()?;
    assert_eq!((job.id(), job.body()), (3, &b"\r\nurgent\0"[..]));
    job.touch()?;
    job.bury(7)?;
    assert_eq!(client.peek_buried()?.id(), 3);
    assert_eq!(client.kick(10)?, 1);
    let mut job = client.reserve_with_timeout(soon)?;
    assert_eq!(job.id(), 3, "its priority is 7 now");
    job.release(99, soon)?;
    let mut job = client.reserve_with_timeout(soon)?;
    assert_eq!(job.id(), 2);
    let stats = job.stats()?;
    assert_eq!(said(&stats, "state"), "reserved");
    assert_eq!(said(&stats, "tube"), "mails");
    job.delete()?;
    client.kick_job(1)?;
    let tube = client.stats_tube("mails")?;
    assert_eq!(said(&tube, "current-jobs-ready"), "2");
    assert_eq!(said(&tube, "total-jobs"), "3");
    client.pause_tube("mails", long)?;
    client.reserve_with_timeout(soon).expect_err("nothing while it is paused");
    client.pause_tube("mails", soon)?;
    assert_eq!(client.reserve_with_timeout(soon)?.body(), b"later");
    client.delete(77).expect_err("there is no such job");
    assert_eq!(said(&client.stats()?, "current-jobs-reserved"), "1");
    Ok(())
}

#[test]
fn a_client_from_crates_io_works_and_its_end_gives_jobs_back() {
    let daemon = Daemon::serve(&["--memory", "--beanstalk", "127.0.0.1:0"]);
    let mut client = connected(&daemon);
    work_and_look(&mut client).expect("every answer is understood");
    drop(client);
    let mut other = connected(&daemon);
    other.watch("mails").expect("it is watched");
    // The job of the closed connection is ready again, and is the most urgent one.
    let job = other.reserve().expect("it comes back");
    assert_eq!((job.id(), job.body()), (1, &b"later"[..]));
}
