//! `cargo xtask docs`: makes a book of the pages in `docs` and checks their links.
//!
//! The pages stay readable on a code host. The book in `target/docs` needs no server and loads nothing from elsewhere.
//! Why this is not mdBook: `docs/adr/0047-a-book-of-our-own.md`.

mod code;
mod command;
mod generated;
mod html;
mod links;
mod pages;
mod render;
mod site;
mod summary;

pub(crate) use command::{make, write};
