//! A service that embeds a node, so that only one worker at a time makes bookings in an account.
//!
//! Clerks are plain threads that wait for their turn. The audit is an async task that holds the lock for a long time, and is notified if
//! it loses the lock.
//!
//! Run it with `cargo run --example service`.

use sexton::ids::Token;
use sexton::node::{Entry, Locks, Terms};
use sexton::{Config, Node, block_on};
use std::error::Error;
use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

const TERMS: Terms = Terms { ttl: 60, wait: 30, priority: 0 };

type Failure = Box<dyn Error + Send + Sync>;

/// The data that the lock guards: a balance, and the latest token that came with a booking. A client with an earlier token
/// has lost the lock, even if it has not noticed yet.
#[derive(Default)]
struct Account(Mutex<(i64, Option<Token>)>);

impl Account {
    /// Books an amount, and returns the new balance. Fails if there has been a booking with a newer token.
    fn book(&self, token: Token, amount: i64) -> Result<i64, Failure> {
        let mut account = self.0.lock().expect("no thread panics while it holds the mutex");
        if account.1.is_some_and(|newest| token < newest) {
            return Err("another client has acquired the lock since".into());
        }
        *account = (account.0 + amount, Some(token));
        Ok(account.0)
    }
}

/// Waits in line for the lock for at most half a minute, books the amount, and releases the lock. Returns the new balance.
fn clerk(locks: &Locks, account: &Account, name: &str, amount: i64) -> Result<i64, Failure> {
    let entry = Entry::new("account 42", name)?;
    let token = block_on(locks.acquire(&entry, TERMS))?;
    let balance = account.book(token, amount)?;
    block_on(locks.release(&entry, Some(token)))?;
    Ok(balance)
}

/// Audits the account, which takes a long time: renews the lock meanwhile, and stops once the lock is lost. Signals through `began` that it
/// has acquired the lock, and returns the token with which it held the lock.
async fn audit(locks: &Locks, began: Sender<()>) -> Result<Token, Failure> {
    let entry = Entry::new("account 42", "audit")?;
    let token = locks.acquire(&entry, TERMS).await?;
    began.send(())?;
    let mut pages = tokio::time::interval(Duration::from_secs(20));
    let audited = async {
        while locks.renew(&entry, Some(token)).await.is_ok() {
            pages.tick().await; // a real audit would read the next page of the account here
        }
    };
    tokio::select! {
        () = audited => {}
        lost = locks.lost(&entry, token) => lost?,
    }
    Ok(token)
}

pub(crate) fn run(out: &mut impl Write) -> Result<(), Failure> {
    let node = Node::open(Config::in_memory())?; // with Config::at("/var/lib/bank"), locks outlive a crash
    let (locks, account) = (&node.handle().locks(), &Account::default());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    thread::scope(|scope| {
        let (began, begun) = channel();
        let audit = scope.spawn(move || runtime.block_on(audit(locks, began)));
        begun.recv()?;
        let ann = scope.spawn(move || clerk(locks, account, "ann", 70)); // waits for the audit
        block_on(locks.release_all(&"audit".try_into()?))?; // an operator ends the audit's lock
        ann.join().expect("the clerk does not panic")?;
        let balance = clerk(locks, account, "bob", -30)?;
        let old = audit.join().expect("the audit does not panic")?;
        writeln!(out, "the audit lost its lock, and stopped")?;
        if let Err(refused) = account.book(old, 1_000_000) {
            writeln!(out, "its late booking was refused: {refused}")?;
        }
        writeln!(out, "balance: {balance}")?;
        Ok(())
    })
}

fn main() -> Result<(), Failure> {
    run(&mut std::io::stdout())
}
