//! Servers inside a C program that loads `libtritonserver.so`: how models come and go there, and what is left of a server
//! that has been deleted.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
mod ending;
mod loading;
mod repositories;
mod shell;
