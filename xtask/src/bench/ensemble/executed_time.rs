//! The time that executions of a model take.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::bench::server_contender::ServerContender;
use crate::loopback;

/// What the executions of a model have taken since it was loaded, by the server's statistics.
#[derive(Clone, Copy)]
pub(super) struct ExecutedTime {
    executions: f64,
    /// From the begin of the preparation of inputs to the end of that of outputs.
    microseconds: f64,
}

impl ExecutedTime {
    pub(super) fn of(contender: &ServerContender, model: &str) -> Result<ExecutedTime> {
        let (status, body) = loopback::http_get(contender.http_port, &format!("/v2/models/{model}/stats"))?;
        ensure!(status == 200, "the statistics of {model} were answered with {status}: {body}");
        ExecutedTime::from_json(&body).with_context(|| format!("statistics of {model}: {body}"))
    }

    fn from_json(body: &str) -> Option<ExecutedTime> {
        let statistics: Value = serde_json::from_str(body).ok()?;
        let model = &statistics["model_stats"][0];
        let nanoseconds = |part: &str| model["inference_stats"][part]["ns"].as_f64();
        let all =
            nanoseconds("compute_input")? + nanoseconds("compute_infer")? + nanoseconds("compute_output")?;
        Some(ExecutedTime { executions: model["execution_count"].as_f64()?, microseconds: all / 1e3 })
    }

    /// Microseconds of an execution since then. No execution is an error.
    pub(super) fn each_since(self, before: ExecutedTime) -> Result<f64> {
        let executions = self.executions - before.executions;
        ensure!(executions > 0.0, "the model has not been executed");
        Ok((self.microseconds - before.microseconds) / executions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATISTICS: &str = r#"{"model_stats":[{"execution_count":4,"inference_stats":{"success":{"ns":9000000},
        "compute_input":{"ns":1000},"compute_infer":{"ns":6000},"compute_output":{"ns":1000}}}]}"#;

    #[test]
    fn the_time_of_an_execution_is_that_of_the_executions_since_then() {
        let now = ExecutedTime::from_json(STATISTICS).unwrap();
        let before = ExecutedTime { executions: 2.0, microseconds: 5.0 };
        assert_eq!(now.each_since(before).unwrap(), 1.5);
        assert!(now.each_since(now).is_err());
        assert!(ExecutedTime::from_json("{}").is_none());
    }
}
