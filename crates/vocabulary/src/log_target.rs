//! Targets with a special meaning for the log.

/// The text of the record has several lines. The first line is the message. The other lines follow it unchanged. Such
/// a text must not contain data from clients, because a client could forge further records.
pub const MULTILINE: &str = "multiline";

/// A plug-in, or the program that embeds the server, has logged the record.
pub const PLUGIN: &str = "plugin";

/// The record goes to stderr, and also to the file of the log if there is one: it tells that lines are lost, perhaps those of
/// that file.
pub const STDERR: &str = "stderr";
