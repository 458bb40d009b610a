//! What an ensemble costs: beside a program without a server and beside a client that calls the members itself, for each
//! step, and in memory.

mod executed_time;
mod memory;
mod part_result;
mod parts;
mod pipeline;
mod step;

pub(super) use parts::run;
