//! The JSON form of a log line, for programs that collect logs.
use std::io::Write;

use log::kv::{self, Key, Value, VisitSource};
use log::{Level, Record};

/// The record as a JSON object in one line, with its newline. A text of several lines stays one member. `file` and `at` are
/// its place in the source.
pub(super) fn line(record: &Record<'_>, (file, at): (&str, u32), timestamp: &str, process: u32) -> Vec<u8> {
    let level = match record.level() {
        Level::Error => "ERROR",
        Level::Warn => "WARNING",
        Level::Info => "INFO",
        Level::Debug | Level::Trace => "VERBOSE",
    };
    let mut line = Vec::with_capacity(256);
    let head = write!(
        line,
        "{{\"timestamp\":\"{timestamp}\",\
         \"level\":\"{level}\",\"process\":{process},\"file\":\"{file}\",\"line\":{at}"
    );
    head.expect("a vector takes any text");
    let text = record.args().to_string();
    member(&mut line, "message", text.trim_start_matches('\n'));
    // A field that has no text is left out.
    let _ = record.key_values().visit(&mut LogMembers(&mut line));
    line.extend_from_slice(b"}\n");
    line
}

struct LogMembers<'l>(&'l mut Vec<u8>);

impl<'kvs> VisitSource<'kvs> for LogMembers<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
        member(self.0, key.as_str(), &value.to_string());
        Ok(())
    }
}

fn member(line: &mut Vec<u8>, key: &str, value: &str) {
    line.push(b',');
    string(line, key);
    line.push(b':');
    string(line, value);
}

fn string(line: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(line, text).expect("any string is a JSON string, and a vector takes it");
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "2025-11-21T00:46:54.183347Z";

    fn shown(level: Level, text: &str, fields: &[(&str, &str)]) -> String {
        let arguments = format_args!("{text}");
        let mut record = Record::builder();
        record.level(level).args(arguments).key_values(&fields);
        String::from_utf8(line(&record.build(), ("driver.rs", 25), TIME, 17180)).unwrap()
    }

    #[test]
    fn a_record_is_one_object_with_its_fields() {
        let expected = concat!(
            r#"{"timestamp":"2025-11-21T00:46:54.183347Z","level":"INFO","process":17180,"#,
            r#""file":"driver.rs","line":25,"message":"a \"b\"\nc","model":"m","request_id":"7"}"#,
            "\n"
        );
        assert_eq!(shown(Level::Info, "a \"b\"\nc", &[("model", "m"), ("request_id", "7")]), expected);
    }

    #[test]
    fn a_table_stays_in_its_line() {
        let table = shown(Level::Info, "\n+--+\n|ab|\n+--+", &[]);
        assert!(table.ends_with("\"message\":\"+--+\\n|ab|\\n+--+\"}\n"), "{table}");
    }

    #[test]
    fn each_level_has_its_word() {
        let words = Level::iter().map(|level| {
            let line: serde_json::Value = serde_json::from_str(&shown(level, "", &[])).unwrap();
            line["level"].as_str().unwrap().to_owned()
        });
        let words: Vec<_> = words.collect();
        assert_eq!(words, ["ERROR", "WARNING", "INFO", "VERBOSE", "VERBOSE"]);
    }
}
