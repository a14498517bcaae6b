//! Chromium, driven over a pair of pipes by its protocol for developers: what a test needs of it, and no more.

#![expect(
    clippy::indexing_slicing,
    reason = "an answer that lacks a part fails the test"
)]

use crate::left_out::left_out;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

/// A browser with a profile of its own, which ends with this.
pub(crate) struct Chromium {
    child: Child,
    to: File,
    from: BufReader<File>,
    next: u64,
    complaints: Vec<String>,
    profile: tempfile::TempDir,
}

/// A tab of it.
pub(crate) struct Tab<'c> {
    chromium: &'c mut Chromium,
    session: String,
}

impl Chromium {
    /// Starts it; none where there is none, which is said.
    pub(crate) fn start() -> Option<Self> {
        let program = std::env::var_os("SEXTON_CHROMIUM").unwrap_or_else(|| "chromium".into());
        let found = Command::new(&program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !found.is_ok_and(|status| status.success()) {
            left_out("the page in a browser: there is no chromium here");
            return None;
        }
        let profile = tempfile::tempdir().expect("a directory can be made");
        let [to, from] = ["to", "from"].map(|name| profile.path().join(name));
        for pipe in [&to, &from] {
            let made = Command::new("mkfifo").arg(pipe).status();
            assert!(made.expect("it runs").success(), "a pipe can be made");
        }
        // It speaks on the descriptors 3 and 4, which a shell opens for it.
        let script = "exec \"$0\" \"$@\" 3<\"$TO\" 4>\"$FROM\"";
        let child = Command::new("sh")
            .args(["-c", script])
            .arg(&program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args([
                "--remote-debugging-pipe",
                "--disable-background-networking",
                "--lang=en",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("TO", &to)
            .env("FROM", &from)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let to = OpenOptions::new().write(true).open(to).expect("it is read");
        let from = File::open(from).expect("it is written");
        Some(Self {
            child,
            to,
            from: BufReader::new(from),
            next: 0,
            complaints: Vec::new(),
            profile,
        })
    }

    /// Opens a tab.
    pub(crate) fn tab(&mut self) -> Tab<'_> {
        let target = self.ask(None, "Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = self.ask(None, "Target.attachToTarget", &attach);
        let session = attached["sessionId"]
            .as_str()
            .expect("a session")
            .to_owned();
        let mut tab = Tab {
            chromium: self,
            session,
        };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.ask(&format!("{domain}.enable"), &json!({}));
        }
        tab
    }

    /// Asks for something, and gives its answer.
    fn ask(&mut self, session: Option<&str>, method: &str, parameters: &Value) -> Value {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("it reads");
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).expect("it can be read");
            assert_eq!(
                bytes.pop(),
                Some(0),
                "it ended while it was asked for {method}"
            );
            let mut told: Value = serde_json::from_slice(&bytes).expect("it is JSON");
            if told["id"] == self.next {
                assert!(told["error"].is_null(), "{method}: {told}");
                return told["result"].take();
            }
            self.hear(&told);
        }
    }

    /// Notes what the browser complains about.
    fn hear(&mut self, told: &Value) {
        let entry = &told["params"]["entry"];
        let is_complaint = match told["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Page.javascriptDialogOpening") => true,
            Some("Log.entryAdded") => entry["level"] == "error" || entry["source"] == "security",
            _ => false,
        };
        if is_complaint {
            self.complaints.push(told.to_string());
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
        // Its helpers may still write there for a moment.
        drop(std::fs::remove_dir_all(self.profile.path()));
    }
}

impl Tab<'_> {
    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        let session = self.session.clone();
        self.chromium.ask(Some(&session), method, parameters)
    }

    /// Goes to a page.
    pub(crate) fn load(&mut self, url: &str) {
        let gone = self.ask("Page.navigate", &json!({"url": url}));
        assert!(gone["errorText"].is_null(), "{url}: {gone}");
    }

    /// What an expression comes to in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true});
        let mut told = self.ask("Runtime.evaluate", &asked);
        told["result"]["value"].take()
    }

    /// Has the page run no script of its own.
    pub(crate) fn without_scripts(&mut self) {
        self.ask(
            "Emulation.setScriptExecutionDisabled",
            &json!({"value": true}),
        );
    }

    /// Writes where the focus is.
    pub(crate) fn write(&mut self, text: &str) {
        self.ask("Input.insertText", &json!({"text": text}));
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            other => panic!("no code of {other} is known here"),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut event =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = text.into();
            }
            self.ask("Input.dispatchKeyEvent", &event);
        }
    }

    /// What the browser complained about: errors of scripts, what the policy of the page forbids, dialogs.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        self.evaluate("0");
        std::mem::take(&mut self.chromium.complaints)
    }
}
