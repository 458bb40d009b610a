//! Completions of the command line for shells, made from the tables of the server and of the commands.

mod bash;
mod fish;
mod parts;
mod shells;
#[cfg(test)]
mod tests;
mod zsh;

pub use shells::{SHELLS, completions};
