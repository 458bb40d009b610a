//! `nereid replay`: sends the calls of a recording again, and compares their answers.

mod call_target;
mod command;
mod comparison;
mod options;
mod player;
mod recorded_call;
mod report;
mod tensor_values;

pub use self::command::run;
pub use self::options::command_line;
