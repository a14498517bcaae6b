//! A minimal browser: it keeps cookies, sends forms as browsers do, and follows redirects.

use crate::opened::{Answer, Opened};
use std::cell::RefCell;

/// A user of a coordinator's pages.
pub(crate) struct Browser<'o> {
    opened: &'o Opened,
    cookie: RefCell<String>,
}

impl<'o> Browser<'o> {
    pub(crate) fn new(opened: &'o Opened) -> Self {
        Self { opened, cookie: RefCell::default() }
    }

    /// Returns a user who has logged in with this token.
    pub(crate) fn with_token(opened: &'o Opened, token: &str) -> Self {
        let browser = Self::new(opened);
        let answer = browser.send("/page/enter", &format!("token={token}"));
        assert_eq!(answer.status, 303, "{answer:?}");
        browser
    }

    /// Returns the header that it sends with its cookies, if it has any.
    pub(crate) fn headers(&self) -> String {
        let cookie = self.cookie.borrow();
        match cookie.as_str() {
            "" => String::new(),
            cookie => format!("Cookie: other=1; {cookie}\r\n"),
        }
    }

    /// Loads a page.
    pub(crate) fn load(&self, path: &str) -> Answer {
        self.opened.get(path, &self.headers())
    }

    /// Loads a page that must exist. Returns its HTML.
    pub(crate) fn page(&self, path: &str) -> String {
        let answer = self.load(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.body
    }

    /// Sends a form as from one of the coordinator's pages, and keeps the cookie in the answer.
    pub(crate) fn send(&self, path: &str, fields: &str) -> Answer {
        let answer = self.send_from(path, "Origin: http://localhost\r\n", fields);
        if let Some(set) = answer.header("set-cookie") {
            let cookie = set.split(';').next().expect("it has a value");
            let is_over = set.contains("Max-Age=0");
            *self.cookie.borrow_mut() = if is_over { String::new() } else { cookie.to_owned() };
        }
        answer
    }

    /// Sends a form with additional headers.
    pub(crate) fn send_from(&self, path: &str, headers: &str, fields: &str) -> Answer {
        let length = fields.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        );
        let cookie = self.headers();
        let request = format!("{head}{headers}{cookie}Content-Length: {length}\r\n\r\n{fields}");
        self.opened.ask(request.as_bytes())
    }

    /// Sends a form that must be accepted. Returns the page to which the answer redirects.
    pub(crate) fn do_and_look(&self, path: &str, fields: &str) -> String {
        let answer = self.send(path, fields);
        assert_eq!(answer.status, 303, "{path}: {answer:?}");
        self.page(answer.header("location").expect("the answer has a Location"))
    }
}

/// Returns the visible text of a page: without tags, and with escapes replaced.
pub(crate) fn text(page: &str) -> String {
    let mut text = String::new();
    for part in page.split('<') {
        text.push_str(part.split_once('>').map_or(part, |(_, text)| text));
        text.push(' ');
    }
    let text = text.replace("&lt;", "<").replace("&gt;", ">");
    let text = text.replace("&quot;", "\"").replace("&amp;", "&");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asserts that a page shows these texts.
pub(crate) fn shows(page: &str, words: &[&str]) {
    let text = text(page);
    for word in words {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}
