//! What the endpoint says of itself and of the server, for programs and for people.
pub(super) mod openapi;
pub(super) mod page_file;
pub(super) mod status;
