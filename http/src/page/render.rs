//! Formats values for the page: names of arbitrary bytes, spans of time, dates, counts, and links with their parameters.
//!
//! Everything is escaped by maud. A name is put into a `bdi` element, so that its text direction does not affect its surroundings.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use sexton::actors::lock::Name;
use sexton::actors::process::End;
use sexton::actors::queue::QueueName;
use sexton::clock::{Date, Offset, Timestamp};
use sexton::handle::Handle;
use sexton::ids::ProcessId;
use sexton::text;

/// The current time, for the spans and dates of one page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageClock {
    pub(crate) now: Timestamp,
    offset: Offset,
}

impl PageClock {
    pub(crate) fn of(node: &Handle) -> Self {
        Self { now: node.now(), offset: node.offset() }
    }

    /// Formats the node time that has passed since `at`.
    pub(crate) fn since(self, at: Timestamp) -> String {
        text::span(self.now.0.saturating_sub(at.0))
    }

    /// Formats the node time that has passed since a date.
    pub(crate) fn since_date(self, date: Date) -> String {
        self.since(self.offset.time(date))
    }

    /// Formats the node time until `at`; returns `None` if `at` is not in the future.
    pub(crate) fn until(self, at: Timestamp) -> Option<String> {
        (at > self.now).then(|| text::span(at.0 - self.now.0))
    }

    /// Renders node time as a date.
    pub(crate) fn date(self, at: Timestamp) -> Markup {
        self.shown(self.offset.date(at))
    }

    /// Renders a date: the time of day, preceded by the day unless it is today; or a dash if the date is out of range.
    pub(crate) fn shown(self, date: Date) -> Markup {
        let (Some(whole), Some(now)) = (rfc3339(date), rfc3339(self.offset.date(self.now))) else {
            return html! { "–" };
        };
        let (day, time) = whole.split_once('T').unwrap_or((&whole, ""));
        let time = time.get(..8).unwrap_or(time);
        html! {
            time datetime=(whole) title=(whole) {
                @if !now.starts_with(day) { (day) " " }
                (time)
            }
        }
    }
}

/// Formats a date as RFC 3339, in UTC; returns `None` if the date is out of range.
fn rfc3339(date: Date) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(date.0).ok()?).ok()?;
    Some(format!("{at:.3}"))
}

/// Renders a name chosen by a client, or `(empty)` in place of an empty name.
pub(crate) fn name(bytes: &[u8]) -> Markup {
    if bytes.is_empty() {
        return html! { span.faint { "(empty)" } };
    }
    html! { bdi { (text::escaped(bytes)) } }
}

/// Renders a name, or `empty` in place of an empty name.
pub(crate) fn name_or(bytes: &[u8], empty: &str) -> Markup {
    if bytes.is_empty() {
        return html! { span.faint { (empty) } };
    }
    name(bytes)
}

/// Renders text from an outside source.
pub(crate) fn words(text: &str) -> Markup {
    html! { bdi { (text) } }
}

/// Renders bytes from an outside source as multi-line text, in which control characters other than newlines and tabs are replaced.
pub(crate) fn lines(bytes: &[u8]) -> Markup {
    let text = String::from_utf8_lossy(bytes);
    let shown = |letter: char| {
        let is_plain = letter == '\n' || letter == '\t' || !text::steers(letter);
        if is_plain { letter } else { '\u{fffd}' }
    };
    let text: String = text.chars().map(shown).collect();
    html! { pre dir="auto" tabindex="0" { (text) } }
}

/// Formats a number with thousands separators.
pub(crate) fn count(number: impl Into<u64>) -> String {
    text::grouped(number.into())
}

/// Renders a cell with a number, faint if it is zero.
pub(crate) fn number(number: impl Into<u64>) -> Markup {
    let number = number.into();
    html! { td.n.faint[number == 0] { (text::grouped(number)) } }
}

/// Renders a cell with a number that is highlighted unless it is zero.
pub(crate) fn bad(number: impl Into<u64>) -> Markup {
    let number = number.into();
    html! { td.n.faint[number == 0].bad[number > 0] { (text::grouped(number)) } }
}

/// Renders a state as a boxed word, coloured by `level`.
pub(crate) fn tag(word: &str, level: &str) -> Markup {
    html! { span class={ "tag " (level) } { (word) } }
}

/// A path with query parameters.
#[derive(Clone, Debug)]
pub(crate) struct Link(String);

impl Link {
    pub(crate) fn to(path: &str) -> Self {
        Self(path.to_owned())
    }

    /// Adds a query parameter. A value that is not UTF-8 is encoded in base64, with the suffix `_b64` added to `field`.
    pub(crate) fn with(mut self, field: &str, bytes: &[u8]) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(field);
        let base64 = std::str::from_utf8(bytes).is_err().then(|| STANDARD.encode(bytes));
        if base64.is_some() {
            self.0.push_str("_b64");
        }
        self.0.push('=');
        let value = base64.as_ref().map_or(bytes, |text| text.as_bytes());
        self.0.extend(percent_encode(value, NON_ALPHANUMERIC));
        self
    }

    /// Adds a query parameter if its value is given and not empty.
    pub(crate) fn with_some(self, field: &str, bytes: Option<&[u8]>) -> Self {
        match bytes.filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => self.with(field, bytes),
            None => self,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl maud::Render for Link {
    fn render_to(&self, buffer: &mut String) {
        self.0.render_to(buffer);
    }
}

/// Renders a link to a lock. Its text is the key, followed by the index unless that is empty.
pub(crate) fn lock(key: &Name, index: &Name) -> Markup {
    let link = Link::to("/page/lock").with("key", key.as_bytes());
    let link = link.with_some("index", Some(index.as_bytes()));
    html! {
        a href=(link) { (name(key.as_bytes())) }
        @if !index.as_bytes().is_empty() { span.faint { " / " } (name(index.as_bytes())) }
    }
}

/// Returns the path of a queue's page.
pub(crate) fn queue_link(name: &QueueName) -> Link {
    Link::to("/page/queue").with("queue", name.as_bytes())
}

/// Renders a link to a queue.
pub(crate) fn queue(queue: &QueueName) -> Markup {
    html! { a href=(queue_link(queue)) { (name(queue.as_bytes())) } }
}

/// Renders a link to a job.
pub(crate) fn job(id: u64) -> Markup {
    html! { a href={ "/page/job?id=" (id) } { (id) } }
}

/// Renders a link to a process.
pub(crate) fn process(id: ProcessId) -> Markup {
    let id = id.to_string();
    // The first digits are a timestamp and often alike, so the last ones are shown.
    let short = id.get(id.len().saturating_sub(12)..).unwrap_or(&id);
    html! { a href={ "/page/process?id=" (id) } title=(id) { (short) } }
}

/// Renders how a process ended.
pub(crate) fn end(end: End) -> Markup {
    match end {
        End::Code(0) => tag("exit 0", ""),
        End::Code(code) => tag(&format!("exit {code}"), "bad"),
        End::Signal { signal, .. } => tag(&format!("signal {signal}"), "bad"),
        End::Lost(lost) => tag(&format!("lost: {}", lost.name()), "warn"),
    }
}

/// Renders a link to a task.
pub(crate) fn task(id: u64) -> Markup {
    html! { a href={ "/page/task?id=" (id) } { (id) } }
}

/// Renders a link to the next page of a list; nothing if `next` is `None`.
pub(crate) fn more(next: Option<Link>) -> Markup {
    html! {
        @if let Some(next) = next {
            nav.more aria-label="More of this list" { a href=(next) rel="next" { "Next page" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Date, Link, Offset, PageClock, Timestamp, lines, name};

    #[test]
    fn names_are_escaped_and_have_a_direction_of_their_own() {
        assert_eq!(name(b"<b>&\"").into_string(), "<bdi>&lt;b&gt;&amp;&quot;</bdi>");
        assert_eq!(name("שלום".as_bytes()).into_string(), "<bdi>שלום</bdi>");
        assert_eq!(name(b"\xff<").into_string(), "<bdi>\\xff&lt;</bdi>");
        assert_eq!(name("a\u{202e}b".as_bytes()).into_string(), "<bdi>a\\xe2\\x80\\xaeb</bdi>");
        let shown = lines("a\u{1b}[2J\nb\u{202e}<".as_bytes()).into_string();
        assert!(shown.ends_with("a\u{fffd}[2J\nb\u{fffd}&lt;</pre>"), "{shown}");
    }

    #[test]
    fn links_name_any_bytes() {
        let link = Link::to("/x").with("a", b"b&c=\"").with("n", b"\xff");
        assert_eq!(link.as_str(), "/x?a=b%26c%3D%22&n_b64=%2Fw%3D%3D");
        let link = Link::to("/x").with_some("a", None).with_some("b", Some(b""));
        assert_eq!(link.as_str(), "/x");
    }

    #[test]
    fn dates_are_of_today_or_say_their_day() {
        let here = PageClock { now: Timestamp(1_763_713_800_007), offset: Offset(0) };
        let shown = here.date(here.now).into_string();
        assert!(shown.ends_with("\">08:30:00</time>"), "{shown}");
        let shown = here.shown(Date(0)).into_string();
        assert!(shown.ends_with("\">1970-01-01 00:00:00</time>"), "{shown}");
        assert_eq!(here.shown(Date(u64::MAX)).into_string(), "–");
        assert_eq!(here.since(Timestamp(0)), "20413 d 8 h");
        assert_eq!(here.until(Timestamp(0)), None);
    }
}
