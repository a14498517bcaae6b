//! Dates of schedules across clock changes, and rejected expressions.

use super::{EXPRESSION_BYTES_MAX, Schedule, ScheduleError, ZONE_BYTES_MAX};
use crate::clock::Date;
use jiff::{Span, Timestamp, civil};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest,
};

const BERLIN: Option<&str> = Some("Europe/Berlin");

fn date(text: &str) -> Date {
    let at: Timestamp = text.parse().expect("the text is a timestamp");
    Date(u64::try_from(at.as_millisecond()).expect("the timestamp is after 1970"))
}

fn text(date: Date) -> String {
    let ms = i64::try_from(date.0).expect("the date is in range");
    let at = Timestamp::from_millisecond(ms).expect("the date is in range");
    at.to_string()
}

/// Returns the next `count` dates after `after`.
fn following(expression: &str, zone: Option<&str>, after: &str, count: usize) -> Vec<String> {
    let schedule = Schedule::new(expression, zone).expect("the schedule is valid");
    let next = |date: &Date| schedule.next(*date);
    let dates = std::iter::successors(schedule.next(date(after)), next);
    dates.take(count).map(text).collect()
}

#[test]
fn a_date_is_strictly_later_and_a_whole_minute() {
    let daily = Schedule::new("0 3 * * *", None).expect("the schedule is valid");
    for (after, next) in [
        ("2026-11-23T02:59:59.999Z", "2026-11-23T03:00:00Z"),
        ("2026-11-23T03:00:00Z", "2026-11-24T03:00:00Z"),
        ("2026-11-23T03:00:00.001Z", "2026-11-24T03:00:00Z"),
        ("2026-12-31T23:00:00Z", "2027-01-01T03:00:00Z"),
    ] {
        assert_eq!(daily.next(date(after)).map(text).as_deref(), Some(next));
    }
    assert_eq!(daily.next(Date(u64::MAX)), None);
    assert_eq!(daily.next(date("9999-12-30T00:00:00Z")), None);
}

#[test]
fn a_time_that_the_clocks_skip_runs_once_right_after_the_gap() {
    let night = "2026-03-28T12:00:00Z"; // 02:00 becomes 03:00 at 01:00 UTC
    let daily = following("30 2 * * *", BERLIN, night, 2);
    assert_eq!(daily, ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
    let often = following("*/10 2 * * *", BERLIN, night, 2);
    assert_eq!(often, ["2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"]);
    // The end of the gap (03:00) is itself a match, and coincides with the run for the skipped times.
    let both = following("0,30 2,3 * * *", BERLIN, night, 3);
    let expected = ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z", "2026-03-30T00:00:00Z"];
    assert_eq!(both, expected);
    // Samoa had no 30 December 2011: it moved across the date line.
    let apia = following("0 12 30 12 *", Some("Pacific/Apia"), "2011-12-01T00:00:00Z", 1);
    assert_eq!(apia, ["2011-12-30T10:00:00Z"]);
}

#[test]
fn a_time_that_the_clocks_repeat_runs_the_first_time() {
    let evening = "2026-10-24T12:00:00Z"; // 03:00 becomes 02:00 at 01:00 UTC
    let daily = following("30 2 * * *", BERLIN, evening, 2);
    assert_eq!(daily, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
    let often = following("*/30 2-3 * * *", BERLIN, evening, 5);
    let expected = [
        "2026-10-25T00:00:00Z",
        "2026-10-25T00:30:00Z",
        "2026-10-25T02:00:00Z",
        "2026-10-25T02:30:00Z",
        "2026-10-26T01:00:00Z",
    ];
    assert_eq!(often, expected);
    // The search begins in the second run of the repeated hour. The clocks will show 02:30 again, but it already ran the first time.
    let asked = following("30 2 * * *", BERLIN, "2026-10-25T01:10:00Z", 1);
    assert_eq!(asked, ["2026-10-26T01:30:00Z"]);
}

#[test]
fn what_runs_by_the_hour_runs_every_hour_that_passes() {
    for (from, change) in [
        ("2026-03-28T22:00:00Z", "2026-03-29T01:00:00Z"),
        ("2026-10-24T22:00:00Z", "2026-10-25T01:00:00Z"),
    ] {
        let hours = following("0 * * * *", BERLIN, from, 6);
        let first = date(from);
        let each = (1..=6).map(|hour| text(first.plus_ms(hour * 3_600_000)));
        assert_eq!(hours, each.collect::<Vec<_>>());
        assert!(hours.contains(&change.to_owned()));
        assert_eq!(hours, following("@hourly", BERLIN, from, 6));
    }
    let quarters = following("*/15 * * * *", BERLIN, "2026-10-24T23:40:00Z", 9);
    assert_eq!(quarters.last().map(String::as_str), Some("2026-10-25T01:45:00Z"));
    // Every other hour: 02:00 is skipped in spring and shown twice in autumn.
    let spring = following("0 */2 * * *", BERLIN, "2026-03-28T23:00:00Z", 1);
    assert_eq!(spring, ["2026-03-29T02:00:00Z"]);
    let autumn = following("0 */2 * * *", BERLIN, "2026-10-24T22:00:00Z", 3);
    let expected = ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T03:00:00Z"];
    assert_eq!(autumn, expected);
}

#[test]
fn clocks_that_change_around_midnight_lose_no_day() {
    // 00:00 becomes 01:00 in Cairo, and became 23:00 of the day before in São Paulo.
    let cairo = following("0 0 * * *", Some("Africa/Cairo"), "2026-04-23T12:00:00Z", 2);
    assert_eq!(cairo, ["2026-04-23T22:00:00Z", "2026-04-24T21:00:00Z"]);
    let paulo = Some("America/Sao_Paulo");
    let late = following("30 23 * * *", paulo, "2019-02-16T12:00:00Z", 2);
    assert_eq!(late, ["2019-02-17T01:30:00Z", "2019-02-18T02:30:00Z"]);
    let hours = following("30 * * * *", paulo, "2019-02-17T01:00:00Z", 3);
    let expected = ["2019-02-17T01:30:00Z", "2019-02-17T02:30:00Z", "2019-02-17T03:30:00Z"];
    assert_eq!(hours, expected);
}

#[test]
fn days_of_month_and_week_are_as_crontab_has_them() {
    let leap = following("0 0 29 2 *", None, "2096-03-01T00:00:00Z", 1);
    assert_eq!(leap, ["2104-02-29T00:00:00Z"]);
    let hourly = following("0 * 29 feb *", BERLIN, "2096-03-01T00:00:00Z", 1);
    assert_eq!(hourly, ["2104-02-28T23:00:00Z"]);
    let either = following("0 0 13 * FRI", None, "2026-11-09T00:00:00Z", 3);
    let expected = ["2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z", "2026-11-27T00:00:00Z"];
    assert_eq!(either, expected);
    for sunday in ["0 0 * * 0", "0 0 * * 7", "0 0 * * Sun", "@weekly"] {
        let next = following(sunday, None, "2026-11-23T00:00:00Z", 1);
        assert_eq!(next, ["2026-11-29T00:00:00Z"], "{sunday}");
    }
    for (word, next) in [
        ("@hourly", "2026-11-23T05:00:00Z"),
        ("@daily", "2026-11-24T00:00:00Z"),
        ("@midnight", "2026-11-24T00:00:00Z"),
        ("@monthly", "2026-12-01T00:00:00Z"),
        ("@yearly", "2027-01-01T00:00:00Z"),
        ("@annually", "2027-01-01T00:00:00Z"),
    ] {
        assert_eq!(following(word, None, "2026-11-23T04:40:00Z", 1), [next]);
    }
}

#[test]
fn what_is_no_schedule_is_an_error_that_says_why() {
    for (expression, why) in [
        ("", "five fields (minute, hour, day of month, month, day of week), but this one has 0"),
        ("0 3 * *", "has 4"),
        ("0 0 3 * * *", "has 6"),
        ("60 3 * * *", "`60` is not a valid minute: expected 0 to 59"),
        ("0 24 * * *", "`24` is not a valid hour: expected 0 to 23"),
        ("0 3 0 * *", "`0` is not a valid day of the month: expected 1 to 31"),
        ("0 3 * 13 *", "`13` is not a valid month: expected 1 to 12 or jan"),
        ("0 3 * mon *", "`mon` is not a valid month"),
        ("0 3 * * jan", "`jan` is not a valid day of the week"),
        ("0 3 * * 8", "`8` is not a valid day of the week"),
        ("0 3 * * montue", "`montue` is not a valid day"),
        ("0 3 L * *", "`L` is not a valid day of the month"),
        ("0 3 * * 5#2", "`5#2` is not a valid day of the week"),
        ("0 3 ? * *", "`?` is not a valid day of the month"),
        ("*/0 3 * * *", "`*/0` is not a valid minute"),
        ("5-1 3 * * *", "`5-1` is not a valid minute"),
        ("1, 3 * * *", "`1,` is not a valid minute"),
        ("- 3 * * *", "`-` is not a valid minute"),
        ("1/2/3 3 * * *", "`1/2/3` is not a valid minute"),
        ("99999999999999999999 3 * * *", "is not a valid minute"),
        ("0 3 * * \u{130}", "is not a valid day of the week"),
        ("@reboot", "`@reboot` is not a schedule: the valid words are"),
        ("@daily 5", "`@daily 5` is not a schedule"),
        ("0 0 30 2 *", "`0 0 30 2 *` never matches"),
        ("0 0 31 4,6,9,11 *", "never matches"),
    ] {
        let error = Schedule::new(expression, None).expect_err(expression).to_string();
        assert!(error.contains(why), "{expression}: {error}");
    }
    let long = "0,".repeat(EXPRESSION_BYTES_MAX / 2) + "0 * * * *";
    let error = Schedule::new(&long, None).expect_err("the expression is too long");
    assert!(matches!(error, ScheduleError::TooLong { limit: EXPRESSION_BYTES_MAX, .. }));
    for zone in ["", "Europe/Berlim", "Etc/Unknown", "../../etc/passwd", "CET-1CEST"] {
        let error = Schedule::new("@daily", Some(zone)).expect_err(zone);
        assert_eq!(error, ScheduleError::Zone(zone.to_owned()));
    }
    let error = Schedule::new("@daily", Some(&"a".repeat(ZONE_BYTES_MAX + 1)));
    assert!(error.is_err_and(|error| error.to_string().contains("at most 64 bytes")));
    // This also matches on Mondays, which occur in February.
    assert!(Schedule::new("0 0 30 2 1", None).is_ok());
}

#[test]
fn the_text_form_says_all_and_is_what_is_stored() {
    for (expression, zone, form) in [
        ("0 3 * * *", None, "0 3 * * *"),
        ("0 3 * * *", Some("utc"), "0 3 * * *"),
        ("  0\t3 *  * *  ", Some("europe/berlin"), "0 3 * * * Europe/Berlin"),
        ("@daily", Some("Asia/Kolkata"), "@daily Asia/Kolkata"),
    ] {
        let schedule = Schedule::new(expression, zone).expect("the schedule is valid");
        assert_eq!(schedule.to_string(), form);
        let stored = rmp_serde::to_vec(&schedule).expect("it encodes");
        assert_eq!(stored, rmp_serde::to_vec(form).expect("it encodes"));
        let read: Schedule = rmp_serde::from_slice(&stored).expect("it is read");
        assert_eq!(read, schedule);
        let again = Schedule::new(schedule.expression(), Some(schedule.zone()));
        assert_eq!(again, Ok(schedule));
    }
    for unknown in ["", "0 3", "@never", "0 3 * * * Mars/Olympus", "0 3 30 2 *"] {
        let stored = rmp_serde::to_vec(unknown).expect("it encodes");
        let read: Schedule = rmp_serde::from_slice(&stored).expect("any text can be deserialized");
        assert_eq!(read.next(Date(0)), None, "{unknown}");
    }
}

/// A second implementation of the rules of crontab(5) for one field: which of the values from `low` to `high` it lists.
fn listed(field: &str, low: i8, high: i8) -> Vec<i8> {
    let number = |text: &str| -> i8 { text.parse().expect("a generated field has numbers") };
    let mut values = Vec::new();
    for item in field.split(',') {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let (from, to) = match range.split_once('-') {
            Some((from, to)) => (number(from), number(to)),
            None if range == "*" => (low, high),
            None => (number(range), number(range)),
        };
        values.extend((from..=to).step_by(step.parse().expect("a step is a number")));
    }
    values
}

/// Returns whether a crontab line with these fields runs on a day, according to crontab(5): "If both fields are restricted (i.e., do not
/// contain the `*` character), the command will be run when either field matches the current time". Debian's cron looks only at the first
/// character of each field.
fn runs_on(fields: &[&str; 5], day: civil::Date) -> bool {
    let weekday = day.weekday().to_sunday_zero_offset();
    let of_month = listed(fields[2], 1, 31).contains(&day.day());
    let mut weekdays = listed(fields[4], 0, 7).into_iter();
    let of_week = weekdays.any(|it| it % 7 == weekday);
    let days = if fields[2].starts_with('*') || fields[4].starts_with('*') {
        of_month && of_week
    } else {
        of_month || of_week
    };
    days && listed(fields[3], 1, 12).contains(&day.month())
}

#[test]
fn a_day_field_that_begins_with_a_star_is_no_restriction() {
    // Every other day of the month, but only Mondays; the first Saturday; not every day of the first week, and every Saturday.
    for (line, dates) in [
        ("0 0 */2 * 1", ["2026-11-09", "2026-11-23", "2026-12-07"]),
        ("0 0 */100,1-7 * 6", ["2026-11-07", "2026-12-05", "2027-01-02"]),
        ("0 0 1-7 * */6", ["2026-11-01", "2026-11-07", "2026-12-05"]),
        ("0 0 1-2 * 6", ["2026-11-01", "2026-11-02", "2026-11-07"]),
        ("0 0 1-2,* * 6", ["2026-11-01", "2026-11-02", "2026-11-03"]),
    ] {
        let dates = dates.map(|date| format!("{date}T00:00:00Z"));
        assert_eq!(following(line, None, "2026-10-31T12:00:00Z", 3), dates, "{line}");
    }
    let error = Schedule::new("0 0 30 2 */2", None).expect_err("February has no 30th");
    assert!(error.to_string().contains("never matches"), "{error}");
    let leap = following("0 0 29 2 */6", None, "2096-03-01T00:00:00Z", 1);
    assert_eq!(leap, ["2116-02-29T00:00:00Z"], "a Saturday");
}

/// Generates day fields, half of which begin with `*`.
fn day_fields(low: u8, high: u8) -> impl Strategy<Value = String> {
    let value = low..=high;
    let item = prop_oneof![
        Just("*".to_owned()),
        (2..=9u8).prop_map(|step| format!("*/{step}")),
        Just("*/100".to_owned()),
        value.clone().prop_map(|value| value.to_string()),
        (value.clone(), value.clone()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        (value.clone(), value, 1..=4u8).prop_map(|(a, b, step)| format!(
            "{}-{}/{step}",
            a.min(b),
            a.max(b)
        )),
    ];
    proptest::collection::vec(item, 1..=3).prop_map(|items| items.join(","))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn dates_are_those_of_cron(
        month in prop_oneof!["\\*", "\\*/5", "2", "4-11/3"],
        days in (day_fields(1, 31), day_fields(0, 7)),
        hours in prop_oneof!["5", "\\*/23"],
    ) {
        let fields = ["7", &hours, &days.0, &month, &days.1];
        let line = fields.join(" ");
        let Ok(schedule) = Schedule::new(&line, None) else {
            let is_late = |it: &str| it.starts_with("30") || it.starts_with("31");
            prop_assert!(month == "2" && days.0.split(',').all(is_late), "{}", line);
            return Ok(());
        };
        let mut dates = Vec::new();
        let begin = civil::date(2027, 12, 1);
        for day in (0..200).map(|count| begin + Span::new().days(count)) {
            let hours = listed(&hours, 0, 23).into_iter();
            let times = hours.map(|hour| format!("{day}T{hour:02}:07:00Z"));
            dates.extend(times.filter(|_| runs_on(&fields, day)));
        }
        let next = |date: &Date| schedule.next(*date);
        let found = std::iter::successors(schedule.next(date("2027-11-30T23:59:00Z")), next);
        let found: Vec<String> = found.take(dates.len()).map(text).collect();
        prop_assert_eq!(&found, &dates, "{}", line);
    }
}

/// Generates expressions: mostly five plausible fields, otherwise arbitrary text.
fn expressions() -> impl Strategy<Value = String> {
    let field = |max: u16| {
        prop_oneof![
            Just("*".to_owned()),
            (0..=max).prop_map(|value| value.to_string()),
            (0..=max, 0..=max).prop_map(|(from, to)| format!("{from}-{to}")),
            (1..=max).prop_map(|step| format!("*/{step}")),
        ]
    };
    let fields = (field(59), field(23), field(31), field(12), field(7));
    prop_oneof![
        4 => fields.prop_map(|(a, b, c, d, e)| format!("{a} {b} {c} {d} {e}")),
        1 => "[-0-9*/,@LW#+? a-z]{0,40}",
        1 => any::<String>(),
    ]
}

proptest! {
    #[test]
    fn any_schedule_goes_on_and_any_text_is_answered(
        expression in expressions(),
        zone in prop_oneof!["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "UTC"],
        after in 0..4_102_444_800_000u64,
    ) {
        if let Ok(schedule) = Schedule::new(&expression, Some(&zone)) {
            let next = schedule.next(Date(after)).expect("no schedule ends before 2100");
            prop_assert!(next > Date(after));
            prop_assert_eq!(next.0 % 60_000, 0);
            // A search that begins between `after` and that date finds it, too: no date was skipped.
            let between = after + (next.0 - after) / 2;
            prop_assert_eq!(schedule.next(Date(between)), Some(next));
            prop_assert_eq!(schedule.next(Date(next.0 - 1)), Some(next));
        }
    }
}
