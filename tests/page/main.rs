//! The page in a browser: Chromium loads it, with its script and without, and looks at what comes of it. Says what is left out where
//! there is no Chromium (`SEXTON_CHROMIUM` names another than `chromium`).

#![cfg(feature = "http")]

mod chromium;
mod contrast;
#[path = "../support/left_out.rs"]
mod left_out;
#[path = "../support/patience.rs"]
mod patience;

use chromium::{Chromium, Tab};
use patience::until;
use sexton::actors::lock::{LockMachine, Message, Name};
use sexton::config::{Config, HttpConfig};
use sexton::node::Node;
use sexton::spine::delivery::Item;
use std::net::SocketAddr;

const HTML: &str = "<img src=x onerror=alert(1)><script>alert(2)</script>";
const HEBREW: &str = "\u{5e0}\u{5e2}\u{5d5}\u{5dc} <\u{5d3}\u{5d5}\u{5d3}>";

/// A node on a port that it keeps when it is started anew.
struct Served {
    node: Option<Node>,
    config: Config,
    address: SocketAddr,
    directory: tempfile::TempDir,
}

impl Served {
    fn new(token: Option<&str>) -> Self {
        let directory = tempfile::tempdir().expect("a directory can be made");
        let mut http = HttpConfig {
            tcp: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            ..HttpConfig::default()
        };
        http.token_file = token.map(|token| {
            use std::os::unix::fs::PermissionsExt as _;
            let file = directory.path().join("token");
            std::fs::write(&file, token).expect("it can be written");
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&file, mode).expect("it is ours");
            file
        });
        let mut config = Config {
            http: Some(http),
            ..Config::at(directory.path().join("data"))
        };
        let node = Node::open(config.clone()).expect("the node opens");
        let address = node.handle().doors().http.expect("it listens");
        config.http.as_mut().expect("it has one").tcp = Some(address);
        Self {
            node: Some(node),
            config,
            address,
            directory,
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn stop(&mut self) {
        let node = self.node.take().expect("it runs");
        node.stop().expect("it stops well");
    }

    fn start(&mut self) {
        self.node = Some(Node::open(self.config.clone()).expect("it opens again"));
    }

    /// Takes a lock, or waits for it.
    fn lock(&self, key: &[u8], owner: &[u8]) {
        let handle = self.node.as_ref().expect("it runs").handle();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let done = runtime
            .expect("a runtime")
            .block_on(handle.locks().batch(vec![request(key, owner)]));
        done.expect("it runs");
    }
}

fn request(key: &[u8], owner: &[u8]) -> Item<LockMachine> {
    let name = |bytes: &[u8]| Name::new(bytes).expect("it is short");
    Item::Message(Message::Request {
        key: name(key),
        index: name(b""),
        owner: name(owner),
        ttl: 6000,
        ttw: 6000,
        priority: 0,
    })
}

/// Waits until a tab shows something.
fn shows(tab: &mut Tab<'_>, what: &str) {
    let shown = format!(
        "document.body?.innerText.includes({})",
        serde_json::json!(what)
    );
    until(what, || (tab.evaluate(&shown) == true).then_some(()));
}

#[test]
fn a_page_becomes_live_and_shows_names_as_they_are() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    let served = Served::new(None);
    let mut tab = chromium.tab();
    tab.load(&served.url("/page/locks"));
    shows(&mut tab, "No such lock is held");
    // Nothing is loaded again by hand from here on.
    tab.evaluate("window.mark = 1");
    served.lock(HTML.as_bytes(), b"one");
    shows(&mut tab, HTML);
    served.lock(HEBREW.as_bytes(), b"one");
    shows(&mut tab, HEBREW);
    served.lock(b"\xff\xfe", b"one");
    shows(&mut tab, "\\xff\\xfe");
    assert_eq!(
        tab.evaluate("window.mark"),
        1,
        "it was not loaded as a whole"
    );
    assert_eq!(tab.evaluate("document.querySelectorAll('img').length"), 0);
    assert_eq!(
        tab.evaluate("document.querySelectorAll('script').length"),
        1
    );
    // A name that runs from right to left turns nothing beside it: its cell begins where the others do.
    let turned = "[...document.querySelectorAll('bdi')].filter((it) => getComputedStyle(it.closest('td')).direction !== 'ltr').length";
    assert_eq!(tab.evaluate(turned), 0);
    assert_eq!(tab.complaints(), Vec::<String>::new());
}

#[test]
fn a_page_is_whole_without_its_script() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    let served = Served::new(None);
    served.lock(b"account", b"one");
    served.lock(b"account", b"two");
    let mut tab = chromium.tab();
    tab.without_scripts();
    for (path, words) in [
        ("/", "Locks waited for"),
        ("/page/locks", "waits, 1"),
        ("/page/queues", "There is no such queue"),
        ("/page/tasks", "There are no such tasks"),
        ("/page/events", "Events"),
        ("/page/lock?key=account", "Held by one"),
    ] {
        tab.load(&served.url(path));
        shows(&mut tab, words);
        assert_eq!(
            tab.evaluate("document.getElementById('pause')"),
            serde_json::Value::Null
        );
    }
    // A form is sent and answered.
    tab.evaluate("document.querySelector('form.act button').click()");
    shows(&mut tab, "Held by two");
    assert_eq!(tab.complaints(), Vec::<String>::new());
}

#[test]
fn a_page_goes_on_when_the_coordinator_is_back() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    let mut served = Served::new(None);
    let mut tab = chromium.tab();
    tab.load(&served.url("/page/locks"));
    shows(&mut tab, "As of");
    served.stop();
    shows(&mut tab, "Not connected");
    served.start();
    served.lock(b"after", b"one");
    shows(&mut tab, "after");
    shows(&mut tab, "As of");
    // It is live again, and not only loaded once.
    served.lock(b"later", b"one");
    shows(&mut tab, "later");
    tab.evaluate("document.getElementById('pause').click()");
    shows(&mut tab, "Paused");
}

#[test]
fn somebody_logs_in_and_out_by_the_keyboard() {
    let Some(mut chromium) = Chromium::start() else {
        return;
    };
    let served = Served::new(Some("correct-horse-battery-staple"));
    let mut tab = chromium.tab();
    tab.load(&served.url("/page/locks?key=a"));
    shows(&mut tab, "Log in");
    assert_eq!(tab.evaluate("document.activeElement.id"), "token");
    tab.write("correct-horse-battery-staple");
    tab.press("Enter");
    shows(&mut tab, "No such lock is held");
    assert_eq!(
        tab.evaluate("location.pathname + location.search"),
        "/page/locks?key=a"
    );
    assert_eq!(tab.evaluate("document.cookie"), "", "no script can read it");
    // The first stop leads past the views.
    tab.press("Tab");
    assert_eq!(
        tab.evaluate("document.activeElement.textContent"),
        "Skip to content"
    );
    let is_seen = "document.activeElement.getBoundingClientRect().left >= 0";
    assert_eq!(tab.evaluate(is_seen), true);
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(tab.evaluate(outline), "solid");
    // Every field has a name, and every table a head.
    let unnamed = "[...document.querySelectorAll('input:not([type=hidden]), select')].filter((it) => !it.labels?.length).length";
    assert_eq!(tab.evaluate(unnamed), 0);
    tab.evaluate("document.querySelector('form.leave button').click()");
    shows(&mut tab, "Log in");
    tab.load(&served.url("/"));
    shows(&mut tab, "not logged in");
    drop(served.directory);
}
