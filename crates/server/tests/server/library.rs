//! Servers inside a C program that loads `libtritonserver.so`: how models come and go there, and what is left of a server
//! that has been deleted.
mod ending;
mod loading;
mod repositories;
mod shell;
