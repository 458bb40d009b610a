//! The command line of `nereid perf` as one value without contradictions.
//!
//! The options are those of `perf_analyzer`, with their meaning, and some of Nereid's own. Options of `perf_analyzer` that
//! Nereid does not have are in [`refused`].

mod arguments;
mod load;
mod read;
mod refused;
mod settings;
#[cfg(test)]
mod tests;
mod text;

pub use arguments::command as command_line;
pub(crate) use read::parse;
pub(crate) use settings::{
    Distribution, GivenParameter, InputContent, Load, PerfOptions, PointWarmUp, Protocol, SequenceOptions,
    TextContent, Until, Windows,
};
