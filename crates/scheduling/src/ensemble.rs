//! Runs a request through the steps of an ensemble: which step starts when, with which values, and what the client
//! receives.
//!
//! An [`EnsembleGraph`] describes the ensemble. An [`EnsembleRun`] is one request. Its driver reports each event, that
//! is a response or the end of a step, or a failure. After each event the driver performs what
//! [`next`](EnsembleRun::next) returns, until that is `None`.
//!
//! A tensor has a list of values. The numbers of the values are iterations: 0, 1, 2 and so on. An input of the
//! ensemble has iteration 0 only. A step that is not decoupled makes iteration `k` of its outputs from iteration `k`
//! of its inputs. A decoupled step adds any number of iterations to its outputs. A value is *settled* when it is
//! known, or known to be absent or missing:
//! - An *absent* value is one that the client or a step left out. Consumers run without it.
//! - A *missing* value belongs to a step that ended without the response. Consumers do not run, and their outputs are
//!   missing, too.
//!
//! Each consumer of a tensor has its own reference to a value from the time when the value is settled. All work of an
//! event is proportional to the values that the event settles.
mod action;
mod graph;
mod graph_step;
#[cfg(test)]
mod history_tests;
mod iteration_join;
mod iteration_order;
#[cfg(test)]
mod linearity_tests;
mod needs;
mod propagation;
mod run;
#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod turn_history_tests;
mod turns;
mod value;

pub use action::{EnsembleAction, StepRun};
pub use graph::EnsembleGraph;
pub use graph_step::{GraphStep, StepIndex, StepInput, TensorIndex};
pub use run::EnsembleRun;
pub use turns::{SequenceTurns, TurnPlace};
pub use value::TensorValue;
