//! Values as the page shows them: names of any bytes, spans, dates, counts; and links, with what they name.
//!
//! Everything is escaped by maud. A name stands in a `bdi`, so that its direction is its own alone.

use crate::actors::lock::Name;
use crate::actors::process::End;
use crate::actors::queue::QueueName;
use crate::clock::{Date, Offset, Timestamp};
use crate::handle::Handle;
use crate::ids::ProcessId;
use crate::text;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

/// What time it is, for spans and dates of one page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    pub(crate) now: Timestamp,
    offset: Offset,
}

impl Here {
    pub(crate) fn of(node: &Handle) -> Self {
        Self {
            now: node.now(),
            offset: node.offset(),
        }
    }

    /// A time without a wall clock.
    #[cfg(test)]
    pub(crate) const fn at(now: Timestamp) -> Self {
        let offset = Offset(0);
        Self { now, offset }
    }

    /// How long ago something was.
    pub(crate) fn since(self, at: Timestamp) -> String {
        text::span(self.now.0.saturating_sub(at.0))
    }

    /// How long ago a date was.
    pub(crate) fn since_date(self, date: Date) -> String {
        self.since(self.offset.time(date))
    }

    /// How long it is until something is; nothing if it is past.
    pub(crate) fn until(self, at: Timestamp) -> Option<String> {
        (at > self.now).then(|| text::span(at.0 - self.now.0))
    }

    /// Node time as a date.
    pub(crate) fn date(self, at: Timestamp) -> Markup {
        self.shown(self.offset.date(at))
    }

    /// A date: its time of day, and its day if that is not today's.
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

/// A date as RFC 3339 has it, in UTC; none if it is no date.
fn rfc3339(date: Date) -> Option<String> {
    let at = jiff::Timestamp::from_millisecond(i64::try_from(date.0).ok()?).ok()?;
    Some(format!("{at:.3}"))
}

/// A name that a client gave.
pub(crate) fn name(bytes: &[u8]) -> Markup {
    if bytes.is_empty() {
        return html! { span.faint { "(empty)" } };
    }
    html! { bdi { (text::escaped(bytes)) } }
}

/// A name, or what an empty one means.
pub(crate) fn name_or(bytes: &[u8], empty: &str) -> Markup {
    if bytes.is_empty() {
        return html! { span.faint { (empty) } };
    }
    name(bytes)
}

/// Words that somebody else wrote.
pub(crate) fn words(text: &str) -> Markup {
    html! { bdi { (text) } }
}

/// Bytes that somebody else wrote, of any lines.
pub(crate) fn lines(bytes: &[u8]) -> Markup {
    let text = String::from_utf8_lossy(bytes);
    let shown = |letter: char| {
        let is_plain = letter == '\n' || letter == '\t' || !text::steers(letter);
        if is_plain { letter } else { '\u{fffd}' }
    };
    let text: String = text.chars().map(shown).collect();
    html! { pre dir="auto" tabindex="0" { (text) } }
}

/// A number with its thousands apart.
pub(crate) fn count(number: impl Into<u64>) -> String {
    text::grouped(number.into())
}

/// A cell with a number in it, faint if it is zero.
pub(crate) fn number(number: impl Into<u64>) -> Markup {
    let number = number.into();
    html! { td.n.faint[number == 0] { (text::grouped(number)) } }
}

/// The same, in a colour if it is not zero.
pub(crate) fn bad(number: impl Into<u64>) -> Markup {
    let number = number.into();
    html! { td.n.faint[number == 0].bad[number > 0] { (text::grouped(number)) } }
}

/// A state as a word in a box, with how it is meant.
pub(crate) fn tag(word: &str, level: &str) -> Markup {
    html! { span class={ "tag " (level) } { (word) } }
}

/// A path with what it is about.
#[derive(Clone, Debug)]
pub(crate) struct Link(String);

impl Link {
    pub(crate) fn to(path: &str) -> Self {
        Self(path.to_owned())
    }

    /// With a member of the query; as base64 if it is no text.
    pub(crate) fn with(mut self, field: &str, bytes: &[u8]) -> Self {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(field);
        let base64 = std::str::from_utf8(bytes)
            .is_err()
            .then(|| STANDARD.encode(bytes));
        if base64.is_some() {
            self.0.push_str("_b64");
        }
        self.0.push('=');
        let value = base64.as_ref().map_or(bytes, |text| text.as_bytes());
        self.0.extend(percent_encode(value, NON_ALPHANUMERIC));
        self
    }

    /// With a member, if there is something to say.
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

/// A link to a lock, which is its name.
pub(crate) fn lock(key: &Name, index: &Name) -> Markup {
    let link = Link::to("/page/lock").with("key", key.as_bytes());
    let link = link.with_some("index", Some(index.as_bytes()));
    html! {
        a href=(link) { (name(key.as_bytes())) }
        @if !index.as_bytes().is_empty() { span.faint { " / " } (name(index.as_bytes())) }
    }
}

/// The path of a queue.
pub(crate) fn queue_link(name: &QueueName) -> Link {
    Link::to("/page/queue").with("queue", name.as_bytes())
}

/// A link to a queue.
pub(crate) fn queue(queue: &QueueName) -> Markup {
    html! { a href=(queue_link(queue)) { (name(queue.as_bytes())) } }
}

/// A link to a job.
pub(crate) fn job(id: u64) -> Markup {
    html! { a href={ "/page/job?id=" (id) } { (id) } }
}

/// A link to a process.
pub(crate) fn process(id: ProcessId) -> Markup {
    let id = id.to_string();
    // The first digits are the time of day: the last say which it is.
    let short = id.get(id.len().saturating_sub(12)..).unwrap_or(&id);
    html! { a href={ "/page/process?id=" (id) } title=(id) { (short) } }
}

/// How a process ended.
pub(crate) fn end(end: End) -> Markup {
    match end {
        End::Code(0) => tag("exit 0", ""),
        End::Code(code) => tag(&format!("exit {code}"), "bad"),
        End::Signal { signal, .. } => tag(&format!("signal {signal}"), "bad"),
        End::Lost(lost) => tag(&format!("lost: {}", lost.name()), "warn"),
    }
}

/// A link to a task.
pub(crate) fn task(id: u64) -> Markup {
    html! { a href={ "/page/task?id=" (id) } { (id) } }
}

/// Where a list goes on.
pub(crate) fn more(next: Option<Link>) -> Markup {
    html! {
        @if let Some(next) = next {
            nav.more aria-label="More of this list" { a href=(next) rel="next" { "Next page" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Date, Here, Link, Offset, Timestamp, lines, name};

    #[test]
    fn names_are_escaped_and_have_a_direction_of_their_own() {
        assert_eq!(
            name(b"<b>&\"").into_string(),
            "<bdi>&lt;b&gt;&amp;&quot;</bdi>"
        );
        assert_eq!(name("שלום".as_bytes()).into_string(), "<bdi>שלום</bdi>");
        assert_eq!(name(b"\xff<").into_string(), "<bdi>\\xff&lt;</bdi>");
        assert_eq!(
            name("a\u{202e}b".as_bytes()).into_string(),
            "<bdi>a\\xe2\\x80\\xaeb</bdi>"
        );
        let shown = lines("a\u{1b}[2J\nb\u{202e}<".as_bytes()).into_string();
        assert!(
            shown.ends_with("a\u{fffd}[2J\nb\u{fffd}&lt;</pre>"),
            "{shown}"
        );
    }

    #[test]
    fn links_name_any_bytes() {
        let link = Link::to("/x").with("a", b"b&c=\"").with("n", b"\xff");
        assert_eq!(link.as_str(), "/x?a=b%26c%3D%22&n_b64=%2Fw%3D%3D");
        let link = Link::to("/x")
            .with_some("a", None)
            .with_some("b", Some(b""));
        assert_eq!(link.as_str(), "/x");
    }

    #[test]
    fn dates_are_of_today_or_say_their_day() {
        let here = Here {
            now: Timestamp(1_763_713_800_007),
            offset: Offset(0),
        };
        let shown = here.date(here.now).into_string();
        assert!(shown.ends_with("\">08:30:00</time>"), "{shown}");
        let shown = here.shown(Date(0)).into_string();
        assert!(shown.ends_with("\">1970-01-01 00:00:00</time>"), "{shown}");
        assert_eq!(here.shown(Date(u64::MAX)).into_string(), "–");
        assert_eq!(here.since(Timestamp(0)), "20413 d 8 h");
        assert_eq!(here.until(Timestamp(0)), None);
    }
}
