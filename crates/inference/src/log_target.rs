//! Targets of log records that mean something to the log.

/// The text has several lines: the first one is the message, the others follow below it as they are. Nothing that a
/// client has sent may be in such a text, because it could forge further records.
pub const MULTILINE: &str = "multiline";
