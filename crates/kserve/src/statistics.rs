//! The statistics of models in the form of the protocols.
use engine::{ModelStatistics, ResponseStatistic};
use inference::DurationStatistic;
use proto::{
    InferBatchStatistics, InferResponseStatistics, InferStatistics, MemoryUsage, ModelStatisticsResponse,
    StatisticDuration,
};

/// The statistics extension's message, one entry per model version in the given order.
pub fn response(statistics: &[ModelStatistics]) -> ModelStatisticsResponse {
    ModelStatisticsResponse { model_stats: statistics.iter().map(model).collect() }
}

fn model(statistics: &ModelStatistics) -> proto::ModelStatistics {
    proto::ModelStatistics {
        name: statistics.name.to_string(),
        version: statistics.version.to_string(),
        last_inference: statistics.totals.last_inference_ms,
        inference_count: statistics.totals.inference_count,
        execution_count: statistics.totals.execution_count,
        inference_stats: Some(InferStatistics {
            success: duration(statistics.totals.success),
            fail: duration(statistics.totals.fail),
            queue: duration(statistics.totals.queue),
            compute_input: duration(statistics.totals.compute_input),
            compute_infer: duration(statistics.totals.compute_infer),
            compute_output: duration(statistics.totals.compute_output),
            cache_hit: duration(statistics.totals.cache_hit),
            cache_miss: duration(statistics.totals.cache_miss),
        }),
        batch_stats: statistics
            .totals
            .batches
            .iter()
            .map(|batch| InferBatchStatistics {
                batch_size: batch.batch_size,
                compute_input: duration(batch.compute_input),
                compute_infer: duration(batch.compute_infer),
                compute_output: duration(batch.compute_output),
            })
            .collect(),
        memory_usage: statistics
            .memory_usage
            .iter()
            .map(|memory| MemoryUsage {
                r#type: memory.kind.as_str().to_owned(),
                id: memory.id,
                byte_size: memory.byte_size,
            })
            .collect(),
        response_stats: statistics
            .responses
            .iter()
            .map(|responses| (responses.index.to_string(), of_responses(responses)))
            .collect(),
    }
}

fn of_responses(statistics: &ResponseStatistic) -> InferResponseStatistics {
    InferResponseStatistics {
        compute_infer: duration(statistics.compute_infer),
        compute_output: duration(statistics.compute_output),
        success: duration(statistics.success),
        fail: duration(statistics.fail),
        empty_response: duration(statistics.empty_response),
        cancel: duration(statistics.cancel),
    }
}

// The generated message marks every field as optional. The server always sets these fields.
#[expect(clippy::unnecessary_wraps, reason = "the shape of the generated fields")]
fn duration(statistic: DurationStatistic) -> Option<StatisticDuration> {
    Some(StatisticDuration { count: statistic.count, ns: statistic.ns })
}

#[cfg(test)]
mod tests {
    use inference::backend::MemoryUsage;
    use vocabulary::MemoryKind;

    use super::*;

    #[test]
    fn what_backends_report_is_shown_by_position_and_by_kind_of_memory() {
        let times = |count| DurationStatistic { count, ns: 10 * count };
        let responses = ResponseStatistic {
            index: 12,
            compute_infer: times(1),
            compute_output: times(2),
            success: times(3),
            fail: times(4),
            empty_response: times(5),
            cancel: times(6),
        };
        let memory = |kind, id, byte_size| MemoryUsage { kind, id, byte_size };
        let statistics = ModelStatistics {
            responses: vec![responses],
            memory_usage: vec![memory(MemoryKind::CpuPinned, 0, 7), memory(MemoryKind::Gpu, 1, 8)],
            ..ModelStatistics::default()
        };
        let shown = response(&[statistics]).model_stats.remove(0);
        let of = |duration: Option<StatisticDuration>| duration.map(|shown| (shown.count, shown.ns));
        let at_12 = &shown.response_stats["12"];
        let InferResponseStatistics { compute_infer, compute_output, success, fail, empty_response, cancel } =
            *at_12;
        assert_eq!(
            [compute_infer, compute_output, success, fail, empty_response, cancel].map(of),
            [1, 2, 3, 4, 5, 6].map(|count| Some((count, 10 * count)))
        );
        let memory: Vec<_> =
            shown.memory_usage.iter().map(|memory| (&*memory.r#type, memory.id, memory.byte_size)).collect();
        assert_eq!(memory, [("CPU_PINNED", 0, 7), ("GPU", 1, 8)]);
    }
}
