//! What a record says: its message with its fields, and its place in the source.

use std::fmt::Write as _;

use log::Record;
use log::kv::{self, Key, Value, VisitSource};

/// A message, and the fields of its record behind it.
pub(super) fn with_fields(message: &str, record: &Record<'_>) -> String {
    let fields = fields(record);
    if fields.is_empty() { message.to_owned() } else { format!("{message} [{fields}]") }
}

/// The fields of a record: `model: m, version: 1, request_id: r`.
fn fields(record: &Record<'_>) -> String {
    struct Fields(String);

    impl<'kvs> VisitSource<'kvs> for Fields {
        fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
            let comma = if self.0.is_empty() { "" } else { ", " };
            write!(self.0, "{comma}{key}: {value}").map_err(|_| kv::Error::msg("a field has no text"))
        }
    }

    let mut fields = Fields(String::new());
    // A field that has no text is left out.
    let _ = record.key_values().visit(&mut fields);
    fields.0
}

/// The file, without its directory, and the line of the source.
pub(super) fn place<'r>(record: &Record<'r>) -> (&'r str, u32) {
    let path = record.file().unwrap_or("unknown");
    (path.rsplit('/').next().unwrap_or(path), record.line().unwrap_or(0))
}
