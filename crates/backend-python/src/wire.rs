//! The form of what server and worker send each other: frames, the values in them, and the messages that these are.
pub(crate) mod frames;
pub(crate) mod marshal;
pub(crate) mod messages;
