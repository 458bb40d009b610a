//! The messages of calls: how the frames of a call become messages, and the codecs of their contents.
pub(super) mod contents;
pub(super) mod decode;
pub(super) mod encode;
pub(super) mod framing;
pub(super) mod generated;
pub(super) mod parameters;
pub(super) mod prefix;
pub(super) mod wire;
