//! Tests of checks of repositories, and of configurations that are written.
mod initial;
mod repositories;
mod table;
mod typos;
mod verdicts;
