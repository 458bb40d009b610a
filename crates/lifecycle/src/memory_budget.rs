//! Which models are in memory, if their memory has a limit and they are loaded when requests ask for them.
//!
//! Inputs are demands for models, the results of loads and unloads, and measured sizes. Outputs are loads, unloads and
//! refusals. The models that go are those that are worth least: the time of another load, multiplied by how often the
//! model was used, for each byte. A use counts half after a minute. What is known of the uses stays when a model goes.
mod budget;
mod budgeted_model;
mod lines;
mod load_times;
mod terms;
mod uses;

pub use budget::MemoryBudget;
pub use lines::{Absence, BudgetLine, BudgetPlace};
pub use terms::{BudgetAction, DemandAnswer, LoadMeasure, ModelNeeds, ModelUse};
