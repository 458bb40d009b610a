//! `libtritonserver.so`: everything that the in-process server exports, and nothing else.
#![forbid(unsafe_code)]
extern crate in_process as _;
