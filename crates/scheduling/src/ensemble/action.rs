//! What the driver of an ensemble performs.
use super::StepIndex;

/// One execution of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepRun {
    /// The step.
    pub step: StepIndex,
    /// The iteration of the step's inputs that this execution uses.
    pub iteration: u64,
}

/// What the driver performs next for a request.
///
/// Each request gets exactly one of `Respond` with `is_last`, `Finish`, `Deadlock` and `Fail`, and nothing afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnsembleAction<V, E> {
    /// Send the request of a step.
    Start {
        /// The execution. Report its events with this value.
        run: StepRun,
        /// One value for each input of the step, in order. The request leaves an input out if its value is `None`.
        inputs: Vec<Option<V>>,
    },
    /// Send the client a response.
    Respond {
        /// The outputs of the response, as positions in the outputs of the graph, in order. Absent outputs are left
        /// out.
        outputs: Vec<(usize, V)>,
        /// Whether the request ends with this response.
        is_last: bool,
    },
    /// End the request without another response. Only decoupled ensembles end in this way.
    Finish,
    /// End the request with an error: no step can run, and a requested output has no value. The ensemble is not
    /// decoupled.
    Deadlock,
    /// End the request with this error.
    Fail(E),
}
