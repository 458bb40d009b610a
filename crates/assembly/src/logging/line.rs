//! The format of a log line.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::{Level, Record};
use vocabulary::log_target::MULTILINE;

use super::text::{place, with_fields};
use super::{LogFormat, json};

const SECONDS_PER_DAY: u64 = 86_400;

/// What determines the format of a line, apart from the record.
#[derive(Clone, Copy)]
pub(super) struct LogStyle {
    pub(super) format: LogFormat,
    pub(super) escape_messages: bool,
    /// The process id.
    pub(super) process: u32,
}

/// The record as a line of the log, with its newline.
///
/// Some records have several lines on purpose ([`MULTILINE`]). Their first line is the message. If it is empty, as
/// above a table, it is left out. The fields of a record follow its message.
pub(super) fn line(record: &Record<'_>, time: SystemTime, style: LogStyle) -> Vec<u8> {
    if style.format == LogFormat::Json {
        return json::line(record, place(record), &timestamp(time), style.process);
    }
    let mut line = Vec::with_capacity(192);
    push_header(&mut line, record, time, style);
    let text = record.args().to_string();
    let (message, below) = match text.split_once('\n') {
        Some((message, below)) if record.target() == MULTILINE => (message, Some(below)),
        _ => (text.as_str(), None),
    };
    let message = with_fields(message, record);
    if style.escape_messages && !(message.is_empty() && below.is_some()) {
        serde_json::to_writer(&mut line, &message)
            .expect("any string is a JSON string, and a vector takes it");
    } else {
        line.extend_from_slice(message.as_bytes());
    }
    if let Some(below) = below {
        push(&mut line, format_args!("\n{below}"));
    }
    line.push(b'\n');
    line
}

fn push_header(line: &mut Vec<u8>, record: &Record<'_>, time: SystemTime, style: LogStyle) {
    let level = match record.level() {
        Level::Error => 'E',
        Level::Warn => 'W',
        Level::Info | Level::Debug | Level::Trace => 'I',
    };
    let (file, at) = place(record);
    let process = style.process;
    let UtcTime { year, month, day, hour, minute, second, microsecond } = UtcTime::of(time);
    if style.format == LogFormat::Default {
        push(
            line,
            format_args!(
                "{level}{month:02}{day:02} {hour:02}:{minute:02}:{second:02}.{microsecond:06} {process} \
             {file}:{at}] "
            ),
        );
    } else {
        push(
            line,
            format_args!(
                "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z {level} {process} \
             {file}:{at}] "
            ),
        );
    }
}

/// The time of a line in the JSON form: `2025-11-21T00:46:54.183347Z`.
pub fn timestamp(time: SystemTime) -> String {
    let UtcTime { year, month, day, hour, minute, second, microsecond } = UtcTime::of(time);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{microsecond:06}Z")
}

fn push(line: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    line.write_fmt(text).expect("a vector takes any text");
}

/// A time in UTC, split into its parts.
#[derive(Debug, PartialEq, Eq)]
struct UtcTime {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    microsecond: u32,
}

impl UtcTime {
    /// A clock before 1970 reads as 1970.
    fn of(time: SystemTime) -> Self {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let seconds = since_epoch.as_secs();
        let (year, month, day) = date(seconds / SECONDS_PER_DAY);
        let second_of_day = seconds % SECONDS_PER_DAY;
        Self {
            year,
            month,
            day,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
            microsecond: since_epoch.subsec_micros(),
        }
    }
}

/// The Gregorian date of a day counted from 1 January 1970.
///
/// Years are counted from 1 March, so that the leap day is the last of its year and months have a fixed
/// pattern of lengths: day `d` of such a year lies in month `(5d + 2) / 153`.
fn date(days_since_epoch: u64) -> (u64, u64, u64) {
    const DAYS_PER_400_YEARS: u64 = 146_097;
    const DAYS_FROM_YEAR_0_MARCH_TO_EPOCH: u64 = 719_468;
    let days = days_since_epoch + DAYS_FROM_YEAR_0_MARCH_TO_EPOCH;
    let (era, day_of_era) = (days / DAYS_PER_400_YEARS, days % DAYS_PER_400_YEARS);
    let leap_days = day_of_era / 1_460 + day_of_era / 146_096 - day_of_era / 36_524;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STYLE: LogStyle = LogStyle { format: LogFormat::Default, escape_messages: true, process: 17180 };

    fn at(seconds: u64, micros: u32) -> SystemTime {
        UNIX_EPOCH + Duration::new(seconds, micros * 1000)
    }

    fn text(level: Level, target: &str, message: &str, style: LogStyle) -> String {
        let arguments = format_args!("{message}");
        let mut record = Record::builder();
        record
            .level(level)
            .target(target)
            .args(arguments)
            .file(Some("crates/engine/src/model/driver.rs"))
            .line(Some(2598));
        String::from_utf8(line(&record.build(), at(1_763_686_014, 183_347), style)).unwrap()
    }

    #[test]
    fn the_default_form_is_that_of_glog() {
        assert_eq!(
            text(Level::Info, "x", "message", STYLE),
            "I1121 00:46:54.183347 17180 driver.rs:2598] \"message\"\n"
        );
        assert!(text(Level::Warn, "x", "", STYLE).starts_with("W1121 "));
        assert!(text(Level::Error, "x", "", STYLE).starts_with("E1121 "));
        assert!(text(Level::Debug, "x", "", STYLE).starts_with("I1121 "));
    }

    #[test]
    fn the_iso_form_has_whole_seconds() {
        let style = LogStyle { format: LogFormat::Iso8601, ..STYLE };
        assert_eq!(
            text(Level::Info, "x", "message", style),
            "2025-11-21T00:46:54Z I 17180 driver.rs:2598] \"message\"\n"
        );
    }

    #[test]
    fn a_message_is_escaped_unless_the_operator_wants_it_raw() {
        assert!(text(Level::Info, "x", "a \"b\"\nc\\", STYLE).ends_with("] \"a \\\"b\\\"\\nc\\\\\"\n"));
        let raw = LogStyle { escape_messages: false, ..STYLE };
        assert!(text(Level::Info, "x", "a \"b\"", raw).ends_with("] a \"b\"\n"));
    }

    #[test]
    fn further_lines_follow_a_message_only_where_they_are_meant() {
        let table = text(Level::Info, MULTILINE, "\n+--+\n|ab|\n+--+", STYLE);
        assert!(table.ends_with("driver.rs:2598] \n+--+\n|ab|\n+--+\n"), "{table}");
        let report = text(Level::Error, MULTILINE, "a \"b\":\n  c: 1\n  ^", STYLE);
        assert!(report.ends_with("] \"a \\\"b\\\":\"\n  c: 1\n  ^\n"), "{report}");
        assert!(text(Level::Info, MULTILINE, "one", STYLE).ends_with("] \"one\"\n"));
        assert!(text(Level::Info, "x", "a\nb", STYLE).ends_with("] \"a\\nb\"\n"));
    }

    #[test]
    fn the_fields_of_a_record_follow_its_message() {
        let fields = [("model", "m"), ("request_id", "a\"b")];
        let record = |text| {
            let arguments = format_args!("{text}");
            let mut builder = Record::builder();
            builder.level(Level::Info).args(arguments).key_values(&fields);
            String::from_utf8(line(&builder.build(), at(0, 0), STYLE)).unwrap()
        };
        let line = record("message");
        assert!(line.ends_with("unknown:0] \"message [model: m, request_id: a\\\"b]\"\n"), "{line}");
    }

    #[test]
    fn dates_are_right_around_leap_days_and_centuries() {
        for (day, expected) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (789, (1972, 2, 29)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_453, (2025, 12, 31)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(day), expected, "day {day}");
        }
    }
}
