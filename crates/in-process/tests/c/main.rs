//! The exported functions as a program in C would call them.
mod allocators;
mod callbacks;
mod options;
mod requests;
mod servers;
mod support;
mod traces;
