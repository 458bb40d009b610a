//! The codes by which terminals colour text.

/// Errors.
pub const BOLD_RED: &str = "\x1b[1;31m";
/// Warnings in what a program prints.
pub const BOLD_YELLOW: &str = "\x1b[1;33m";
/// Warnings in the log.
pub const YELLOW: &str = "\x1b[33m";
/// Notes.
pub const BOLD_CYAN: &str = "\x1b[1;36m";
/// Headings, and what a reader looks for.
pub const BOLD: &str = "\x1b[1m";
/// What a reader may skip.
pub const DIM: &str = "\x1b[2m";
/// Ends each of the others.
pub const PLAIN: &str = "\x1b[0m";
