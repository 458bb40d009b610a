//! The statistics of models as the protocols show them.
use engine::{DurationStatistic, ModelStatistics};
use proto::{InferBatchStatistics, InferStatistics, ModelStatisticsResponse, StatisticDuration};

/// The statistics extension's message, one entry per model version in the given order.
pub fn response(statistics: &[ModelStatistics]) -> ModelStatisticsResponse {
    ModelStatisticsResponse { model_stats: statistics.iter().map(model).collect() }
}

fn model(statistics: &ModelStatistics) -> proto::ModelStatistics {
    proto::ModelStatistics {
        name: statistics.name.to_string(),
        version: statistics.version.to_string(),
        last_inference: statistics.last_inference_ms,
        inference_count: statistics.inference_count,
        execution_count: statistics.execution_count,
        inference_stats: Some(InferStatistics {
            success: duration(statistics.success),
            fail: duration(statistics.fail),
            queue: duration(statistics.queue),
            compute_input: duration(statistics.compute_input),
            compute_infer: duration(statistics.compute_infer),
            compute_output: duration(statistics.compute_output),
            cache_hit: duration(statistics.cache_hit),
            cache_miss: duration(statistics.cache_miss),
        }),
        batch_stats: statistics
            .batches
            .iter()
            .map(|batch| InferBatchStatistics {
                batch_size: batch.batch_size,
                compute_input: duration(batch.compute_input),
                compute_infer: duration(batch.compute_infer),
                compute_output: duration(batch.compute_output),
            })
            .collect(),
        memory_usage: Vec::new(),
        response_stats: std::collections::BTreeMap::new(),
    }
}

// The message marks every field as one that may be absent; ours never is.
#[expect(clippy::unnecessary_wraps, reason = "the shape of the generated fields")]
fn duration(statistic: DurationStatistic) -> Option<StatisticDuration> {
    Some(StatisticDuration { count: statistic.count, ns: statistic.ns })
}
