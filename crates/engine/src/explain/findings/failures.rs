//! What is said about requests that have failed, and about processes that have ended.
use super::finding::{ModelFinding, finding};
use crate::{
    explain::words::{counted, duration, share, summary},
    snapshot::{SchedulerKind, ServedSnapshot},
};

/// How requests have ended.
pub(super) fn requests(served: &ServedSnapshot) -> ModelFinding {
    let (succeeded, failures) = (served.statistics.totals.success.count, served.failures);
    let failed = failures.rejected + failures.cancelled + failures.backend + failures.other;
    if succeeded + failed == 0 {
        return finding("requests", "No request has ended since the load.".to_owned(), None);
    }
    let mut fact = format!(
        "Since the load, {} and {}",
        counted(succeeded, "request", ("has succeeded", "have succeeded")),
        counted(failed, "request", ("has failed", "have failed")),
    );
    let reasons = [
        (failures.rejected, "rejected by the queue"),
        (failures.cancelled, "cancelled by clients"),
        (failures.backend, "failed in the backend"),
        (failures.other, "failed for other reasons"),
    ];
    let reasons: Vec<_> = reasons
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if !reasons.is_empty() {
        fact.push_str(&format!(" ({})", reasons.join(", ")));
    }
    fact.push('.');
    let all = succeeded + failed;
    let advice = if share(failures.backend, all) >= 0.01 {
        Some(where_errors_are(served))
    } else if share(failures.rejected, all) >= 0.01 {
        Some(match served.scheduler.kind {
            SchedulerKind::SequenceDirect | SchedulerKind::SequenceOldest => {
                "Sequences wait for a slot for longer than their clients allow (timeout). Add instances, or let clients allow \
                 more."
            }
            _ => {
                "More requests come than the instances can run. Add instances, or allow a longer queue (max_queue_size, \
                 default_timeout_microseconds), in which requests wait longer."
            }
        })
    } else {
        None
    };
    finding("requests", fact, advice)
}

/// The last error, as its client got it.
pub(super) fn last_failure(served: &ServedSnapshot) -> Option<ModelFinding> {
    let (last, ago) = served.last_failure.as_ref()?;
    let fact = format!("The last error, {} ago: {}.", duration(*ago), summary(&last.text));
    Some(finding("error", fact, None))
}

/// Where somebody who looks for errors of the backend finds them.
fn where_errors_are(served: &ServedSnapshot) -> &'static str {
    if served.scheduler.kind == SchedulerKind::Ensemble {
        return "The answers to clients have the errors. Look at the models of the steps.";
    }
    // Only the backend for models in Python has processes. It logs exceptions, and ends of processes. A model that answers
    // with an error decides itself whether it writes a line.
    match served.process_restarts {
        Some(_) => {
            "The answers to clients have the errors. The log has some of them: exceptions of the model, at most one of each \
             instance in ten seconds, and each process that has ended."
        }
        None => "The answers to clients have the errors. The log has only what the backend writes itself.",
    }
}

/// Whether the ends of processes are a cause of the failures.
pub(super) fn loses_processes(served: &ServedSnapshot) -> bool {
    let failures = served.failures;
    let all = served.statistics.totals.success.count
        + failures.rejected
        + failures.cancelled
        + failures.backend
        + failures.other;
    served.process_restarts.is_some_and(|restarts| restarts > 0) && share(failures.backend, all) >= 0.01
}

/// How often processes of the model have ended.
pub(super) fn processes(served: &ServedSnapshot) -> Option<ModelFinding> {
    let restarts = served.process_restarts.filter(|restarts| *restarts > 0)?;
    let times = if restarts == 1 { "once".to_owned() } else { format!("{restarts} times") };
    let fact = format!("Since the load, processes of the model have ended and were started again {times}.");
    let advice = loses_processes(served).then_some(
        "A process that ends fails its requests, and others wait until the next process runs. The log tells how each \
         process has ended. Correct the cause before you add instances.",
    );
    Some(finding("processes", fact, advice))
}
