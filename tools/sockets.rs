//! Socket activation: takes over listeners that a service manager opened, each named after its protocol.
//!
//! A descriptor with an unknown name is refused rather than ignored, since clients that connect to it would wait forever.

use crate::report::Failure;
use listenfd::ListenFd;
use rustix::net::sockopt::socket_acceptconn;
use sexton::config::{Config, Listeners, Opened};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

const HELP: &str = "give each socket unit a different FileDescriptorName=, one of lockserver, beanstalk, http, socket";

/// Takes the listeners passed by the service manager (`LISTEN_FDS`, `LISTEN_FDNAMES`). Fails if one of them cannot be used. Must be
/// called before any thread starts, because it removes these environment variables, to hide them from child processes.
pub(crate) fn take() -> Result<Listeners, Failure> {
    let names = std::env::var_os("LISTEN_FDNAMES").unwrap_or_default();
    let names = names.to_string_lossy().into_owned();
    let mut names = names.split(':');
    let mut passed = ListenFd::from_env();
    let mut listeners = Listeners::default();
    for index in 0..passed.len() {
        let name = names.next().filter(|name| !name.is_empty());
        let name = name.unwrap_or("unnamed");
        let wrong = |words: &str| {
            let words = format!("failed to use the passed descriptor {index} ({name}): {words}");
            Failure::usage(words).help(HELP)
        };
        let refused = |error: io::Error| wrong(&error.to_string());
        let taken = || wrong("another descriptor already has this name");
        match name {
            "beanstalk" => {
                let opened = take_either(&mut passed, index).map_err(refused)?;
                let opened = opened.ok_or_else(taken)?;
                if listeners.beanstalk.replace(opened).is_some() {
                    return Err(taken());
                }
            }
            "lockserver" | "http" => {
                let listener = passed.take_tcp_listener(index).map_err(refused)?;
                let listener = Arc::new(listener.ok_or_else(taken)?);
                check(&listener).map_err(refused)?;
                let place = match name {
                    "http" => &mut listeners.http,
                    _ => &mut listeners.lockserver,
                };
                if place.replace(listener).is_some() {
                    return Err(taken());
                }
            }
            "socket" => {
                let listener = passed.take_unix_listener(index).map_err(refused)?;
                let listener = Arc::new(listener.ok_or_else(taken)?);
                check(&listener).map_err(refused)?;
                if listeners.socket.replace(listener).is_some() {
                    return Err(taken());
                }
            }
            _ => return Err(wrong("no listener has this name")),
        }
    }
    Ok(listeners)
}

/// Takes the first descriptor that was passed, under any name, for a program with a single listener. Returns `None` if none was passed.
pub(crate) fn take_one() -> Result<Option<Opened>, Failure> {
    let mut passed = ListenFd::from_env();
    if passed.len() == 0 {
        return Ok(None);
    }
    take_either(&mut passed, 0)
        .map_err(|error| Failure::usage(format!("failed to use the passed descriptor: {error}")))
}

/// Takes the TCP or Unix listener at `index`. Returns `None` if it was already taken.
fn take_either(passed: &mut ListenFd, index: usize) -> io::Result<Option<Opened>> {
    let opened = match passed.take_tcp_listener(index) {
        Ok(listener) => listener.map(|listener| Opened::Tcp(Arc::new(listener))),
        Err(_) => {
            let listener = passed.take_unix_listener(index)?;
            listener.map(|listener| Opened::Unix(Arc::new(listener)))
        }
    };
    match &opened {
        Some(Opened::Tcp(listener)) => check(listener)?,
        Some(Opened::Unix(listener)) => check(listener)?,
        None => {}
    }
    Ok(opened)
}

fn check(listener: &Arc<impl AsFd>) -> io::Result<()> {
    if socket_acceptconn(listener)? {
        Ok(())
    } else {
        let words = "it is not a listening socket; a socket unit must have Accept=no";
        Err(io::Error::other(words))
    }
}

/// Replaces the addresses in `config` with the passed listeners.
///
/// # Errors
///
/// Returns an error if a passed listener is turned off in `config`, since clients that connect to it would wait forever, or if its
/// address cannot be determined.
pub(crate) fn open_on(config: &mut Config, listeners: Listeners) -> Result<(), Failure> {
    let off = |listener: &str| {
        let words = format!("failed to use the passed descriptor {listener}: this listener is off");
        Failure::usage(words).help(format!("give {listener} an address, or stop its socket unit"))
    };
    let unusable = |error: io::Error| {
        Failure::unreachable(format!("failed to use a passed descriptor: {error}"))
    };
    if let Some(passed) = &listeners.lockserver {
        let listener = config.lockserver.as_mut().ok_or_else(|| off("lockserver"))?;
        listener.address = passed.local_addr().map_err(unusable)?;
    }
    if let Some(passed) = &listeners.beanstalk {
        let listener = config.beanstalk.as_mut().ok_or_else(|| off("beanstalk"))?;
        listener.address = passed.address().map_err(unusable)?;
    }
    if let Some(passed) = &listeners.http {
        let listener = config.http.as_mut().filter(|http| http.tcp.is_some());
        let listener = listener.ok_or_else(|| off("http"))?;
        listener.tcp = Some(passed.local_addr().map_err(unusable)?);
    }
    if let Some(passed) = &listeners.socket {
        let listener = config.http.as_mut().ok_or_else(|| off("socket"))?;
        let address = passed.local_addr().map_err(unusable)?;
        listener.socket = address.as_pathname().map(ToOwned::to_owned);
    }
    config.listeners = listeners;
    Ok(())
}
