//! How the backend made one response of a decoupled request, as the backend reports it
//! (`TRITONBACKEND_ModelInstanceReportResponseStatistics`).
use std::time::Duration;

use scheduling::Timestamp;
use vocabulary::{Error, ErrorCode};

/// How the backend made one response. The variant determines which times the statistics count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseReport {
    /// The backend sent it, with outputs.
    Success {
        /// From the start of the work to the first output.
        compute_infer: Duration,
        /// From the first output until the backend sent the response.
        compute_output: Duration,
    },
    /// It failed.
    Failure {
        /// From the start of the work to the first output, or to the end if there was no output.
        compute_infer: Duration,
        /// From the first output until the backend sent the error; zero if there was no output.
        compute_output: Duration,
    },
    /// It had no outputs. The last response of a request may have none.
    Empty {
        /// From the start of the work until the backend sent the response.
        compute_infer: Duration,
    },
    /// The backend stopped, because the request was cancelled.
    Cancelled {
        /// From the start of the work until the backend saw the cancellation.
        after: Duration,
    },
}

impl ResponseReport {
    /// The report of a response. Work on it began at `start`, and the backend sent it at `end`. If the response had
    /// outputs, the backend wrote them from `compute_output_start`. `error` is set if the backend sent an error. As
    /// Triton: infer_stats.cc, UpdateResponseSuccess and related functions.
    ///
    /// # Errors
    /// INVALID_ARG if the times that count are not in order.
    pub fn new(
        start: Timestamp,
        compute_output_start: Option<Timestamp>,
        end: Timestamp,
        error: Option<ErrorCode>,
    ) -> Result<Self, Error> {
        let whole = || between(start, end, "Response start cannot happen after response end");
        let parts = |written| -> Result<_, Error> {
            let infer = between(start, written, "Response start cannot happen after compute output start")?;
            Ok((infer, between(written, end, "Compute output start cannot happen after response end")?))
        };
        Ok(match (error, compute_output_start) {
            (Some(ErrorCode::Cancelled), _) => Self::Cancelled { after: whole()? },
            (None, None) => Self::Empty { compute_infer: whole()? },
            (None, Some(written)) => {
                let (compute_infer, compute_output) = parts(written)?;
                Self::Success { compute_infer, compute_output }
            }
            (Some(_), Some(written)) => {
                let (compute_infer, compute_output) = parts(written)?;
                Self::Failure { compute_infer, compute_output }
            }
            (Some(_), None) => Self::Failure { compute_infer: whole()?, compute_output: Duration::ZERO },
        })
    }
}

/// The time between two times that must be in that order.
fn between(first: Timestamp, second: Timestamp, otherwise: &'static str) -> Result<Duration, Error> {
    if first > second { Err(Error::invalid(otherwise)) } else { Ok(second - first) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(
        start: u64,
        written: u64,
        end: u64,
        error: Option<ErrorCode>,
    ) -> Result<ResponseReport, String> {
        let written = Some(written).filter(|at| *at > 0).map(Timestamp::from_nanos);
        ResponseReport::new(Timestamp::from_nanos(start), written, Timestamp::from_nanos(end), error)
            .map_err(|error| error.with_code())
    }

    fn ns(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }

    #[test]
    fn outputs_and_errors_determine_the_kind_of_a_response() {
        let internal = Some(ErrorCode::Internal);
        assert_eq!(
            report(10, 13, 18, None),
            Ok(ResponseReport::Success { compute_infer: ns(3), compute_output: ns(5) })
        );
        assert_eq!(
            report(10, 13, 18, internal),
            Ok(ResponseReport::Failure { compute_infer: ns(3), compute_output: ns(5) })
        );
        assert_eq!(
            report(10, 0, 18, internal),
            Ok(ResponseReport::Failure { compute_infer: ns(8), compute_output: ns(0) })
        );
        assert_eq!(report(10, 0, 18, None), Ok(ResponseReport::Empty { compute_infer: ns(8) }));
        for written in [0, 13] {
            let cancelled = report(10, written, 18, Some(ErrorCode::Cancelled));
            assert_eq!(cancelled, Ok(ResponseReport::Cancelled { after: ns(8) }));
        }
    }

    #[test]
    fn times_that_run_backwards_are_refused() {
        let early_output = "Invalid argument: Response start cannot happen after compute output start";
        let late_output = "Invalid argument: Compute output start cannot happen after response end";
        let early_end = "Invalid argument: Response start cannot happen after response end";
        for error in [None, Some(ErrorCode::Internal)] {
            assert_eq!(report(10, 9, 18, error), Err(early_output.to_owned()));
            assert_eq!(report(10, 19, 18, error), Err(late_output.to_owned()));
            assert_eq!(report(10, 0, 9, error), Err(early_end.to_owned()));
        }
        // The start of the outputs does not count for a cancelled response.
        assert!(report(10, 99, 18, Some(ErrorCode::Cancelled)).is_ok());
        assert_eq!(report(10, 0, 9, Some(ErrorCode::Cancelled)), Err(early_end.to_owned()));
    }
}
