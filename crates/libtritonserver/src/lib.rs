//! `libtritonserver.so`: everything that the in-process server exports, and nothing else.
extern crate in_process as _;
