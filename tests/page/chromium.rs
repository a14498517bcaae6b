//! Drives Chromium through a pair of pipes, over the part of the `DevTools` protocol that the tests need.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::left_out::left_out;
use crate::patience::until;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

/// A browser with its own profile; dropping it ends the browser.
pub(crate) struct Chromium {
    child: Child,
    to: File,
    from: BufReader<File>,
    next: u64,
    complaints: Vec<String>,
    profile: tempfile::TempDir,
}

/// A tab of the browser.
pub(crate) struct Tab<'c> {
    chromium: &'c mut Chromium,
    session: String,
}

impl Chromium {
    /// Starts the browser. If Chromium is not available, reports what is skipped and returns `None`.
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
        let profile = tempfile::tempdir().expect("a temporary directory");
        let [to, from] = ["to", "from"].map(|name| profile.path().join(name));
        for pipe in [&to, &from] {
            let made = Command::new("mkfifo").arg(pipe).status();
            assert!(made.expect("mkfifo is installed").success(), "a pipe can be made");
        }
        // The browser communicates over descriptors 3 and 4, which a shell opens for it.
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
            .args(["--remote-debugging-pipe", "--disable-background-networking", "--lang=en"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .env("TO", &to)
            .env("FROM", &from)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command starts");
        let to = OpenOptions::new().write(true).open(to).expect("Chromium opens the pipe");
        let from = File::open(from).expect("the file exists");
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
        let session = attached["sessionId"].as_str().expect("a session").to_owned();
        let mut tab = Tab { chromium: self, session };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.ask(&format!("{domain}.enable"), &json!({}));
        }
        tab
    }

    /// Sends a command that must succeed, and returns its result.
    fn ask(&mut self, session: Option<&str>, method: &str, parameters: &Value) -> Value {
        let answer = self.try_ask(session, method, parameters);
        answer.unwrap_or_else(|refusal| panic!("{method}: {refusal}"))
    }

    /// Sends a command, and returns its result. Returns the error if the browser refused the command.
    fn try_ask(
        &mut self,
        session: Option<&str>,
        method: &str,
        parameters: &Value,
    ) -> Result<Value, Value> {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the process reads its input");
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).expect("Chromium answers");
            assert_eq!(bytes.pop(), Some(0), "it ended during {method}");
            let mut told: Value = serde_json::from_slice(&bytes).expect("valid JSON");
            if told["id"] == self.next {
                let refusal = told["error"].take();
                return if refusal.is_null() { Ok(told["result"].take()) } else { Err(refusal) };
            }
            self.receive(&told);
        }
    }

    /// Records an error that the browser reports.
    fn receive(&mut self, told: &Value) {
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
        // The process may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
        // The browser's child processes may still write to the profile for a moment.
        drop(std::fs::remove_dir_all(self.profile.path()));
    }
}

impl Tab<'_> {
    fn try_ask(&mut self, method: &str, parameters: &Value) -> Result<Value, Value> {
        let session = self.session.clone();
        self.chromium.try_ask(Some(&session), method, parameters)
    }

    fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        let session = self.session.clone();
        self.chromium.ask(Some(&session), method, parameters)
    }

    /// Navigates to a page, and waits until it is loaded, with its script.
    pub(crate) fn load(&mut self, url: &str) {
        // Mark the previous page, which may still be shown for a moment, so that it is not taken for the new one.
        self.evaluate("window.isLeft = true");
        let gone = self.ask("Page.navigate", &json!({"url": url}));
        assert!(gone["errorText"].is_null(), "{url}: {gone}");
        until(url, || {
            let state = self.evaluate("window.isLeft ? 'left' : document.readyState");
            (state == "complete").then_some(())
        });
    }

    /// Waits until the page shows a text.
    pub(crate) fn shows(&mut self, what: &str) {
        let shown = format!("document.body?.innerText.includes({})", json!(what));
        until(what, || {
            if self.evaluate(&shown) == true {
                return Some(());
            }
            self.reload_unfinished();
            None
        });
    }

    /// Loads the page again if the journal was still being read for it and no script does so.
    fn reload_unfinished(&mut self) {
        let unfinished = "document.querySelector('[data-again]') && !document.getElementById('pause') ? location.href : null";
        if let Some(url) = self.evaluate(unfinished).as_str() {
            self.load(url);
        }
    }

    /// Clicks a button, after checking the required checkboxes of its form.
    pub(crate) fn click(&mut self, button: &str) {
        let button = json!(button);
        let found = format!(
            "(() => {{ const it = document.querySelector({button}); it?.form?.querySelectorAll('[type=checkbox]:required').forEach((box) => box.checked = true); it?.click(); return it !== null; }})()"
        );
        assert_eq!(self.evaluate(&found), true, "there is no {button}");
    }

    /// Sets the width of the page, and the preferred color scheme: `light` or `dark`.
    pub(crate) fn looks(&mut self, width: u32, colours: &str) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", &size);
        self.ask("Emulation.setScrollbarsHidden", &json!({"hidden": true}));
        let prefers = json!([{"name": "prefers-color-scheme", "value": colours}]);
        self.ask("Emulation.setEmulatedMedia", &json!({"features": prefers}));
    }

    /// Takes a screenshot of the whole page, as a PNG file.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let metrics = self.ask("Page.getLayoutMetrics", &json!({}));
        let size = &metrics["cssContentSize"];
        let clip =
            json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        let asked = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let taken = self.ask("Page.captureScreenshot", &asked);
        let data = taken["data"].as_str().expect("a picture");
        base64::Engine::decode(&base64::engine::general_purpose::STANDARD, data)
            .expect("it is base64")
    }

    /// Clears all cookies, and with them every login.
    pub(crate) fn forget(&mut self) {
        self.ask("Network.clearBrowserCookies", &json!({}));
    }

    /// Evaluates an expression in the page; a promise is awaited.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        // This fails while one page is replaced by another.
        let told = self.try_ask("Runtime.evaluate", &asked);
        told.map_or(Value::Null, |mut told| told["result"]["value"].take())
    }

    /// Sets whether the browser runs the page's script.
    pub(crate) fn scripts(&mut self, run: bool) {
        let disabled = json!({"value": !run});
        self.ask("Emulation.setScriptExecutionDisabled", &disabled);
    }

    /// Types text into the focused element.
    pub(crate) fn write(&mut self, text: &str) {
        self.ask("Input.insertText", &json!({"text": text}));
    }

    /// Presses a key.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "ArrowLeft" => (37, ""),
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

    /// Returns what the browser reported since the last call: script errors, violations of the page's policy, dialogs.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        self.evaluate("0");
        std::mem::take(&mut self.chromium.complaints)
    }
}
