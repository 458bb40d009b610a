//! The part of the report about the server: what its statistics say about the time that was measured.

use std::io::{self, Write};

use crate::model::ModelTraits;
use crate::statistics::{ModelFigures, ServerPhase, ServerStatistics};

/// Writes the figures of a model, or of an ensemble and its models.
pub(crate) fn write(
    out: &mut dyn Write,
    statistics: &ServerStatistics,
    traits: &ModelTraits,
) -> io::Result<()> {
    if statistics.composing.is_empty() {
        return write_model(out, &statistics.model, traits, "    ");
    }
    let sums = |of: fn(&ModelFigures) -> u64| statistics.composing.iter().map(of).sum::<u64>();
    let queue = sums(|figures| figures.time(ServerPhase::Queue).mean_micros());
    let compute = sums(|figures| figures.compute().mean_micros());
    let total = write_counts(out, &statistics.model, traits, "    ")?;
    let overhead = total.saturating_sub(queue + compute);
    writeln!(out, " (overhead {overhead} usec + queue {queue} usec + compute {compute} usec)")?;
    writeln!(out)?;
    writeln!(out, "  Composing models: ")?;
    for figures in &statistics.composing {
        writeln!(out, "  {}: ", figures.name)?;
        write_model(out, figures, &ModelTraits::default(), "      ")?;
    }
    Ok(())
}

fn write_model(
    out: &mut dyn Write,
    figures: &ModelFigures,
    traits: &ModelTraits,
    indent: &str,
) -> io::Result<()> {
    let total = write_counts(out, figures, traits, indent)?;
    let mean = |phase| figures.time(phase).mean_micros();
    let queue = mean(ServerPhase::Queue);
    let phases = format!(
        "compute input {} usec + compute infer {} usec + compute output {} usec",
        mean(ServerPhase::ComputeInput),
        mean(ServerPhase::ComputeInfer),
        mean(ServerPhase::ComputeOutput)
    );
    if !traits.has_cache {
        let overhead = total.saturating_sub(queue + figures.compute().mean_micros());
        return writeln!(out, " (overhead {overhead} usec + queue {queue} usec + {phases})");
    }
    let (hit, miss) = (figures.time(ServerPhase::CacheHit), figures.time(ServerPhase::CacheMiss));
    let compute = figures.compute();
    let requests = (compute.count + hit.count).max(1);
    let combined = (compute.nanoseconds + hit.nanoseconds + miss.nanoseconds) / requests / 1000;
    let overhead = total.saturating_sub(queue + combined);
    writeln!(out, " (overhead {overhead} usec + queue {queue} usec + cache hit/miss {combined} usec)")?;
    writeln!(out, "{indent}  Average Cache Hit Latency: {} usec", hit.mean_micros())?;
    writeln!(
        out,
        "{indent}  Average Cache Miss Latency: {} usec (cache lookup/insertion {} usec + {phases})",
        miss.mean_micros() + compute.mean_micros(),
        miss.mean_micros()
    )
}

/// Writes the counts and the mean time of a request. Returns this time in microseconds.
fn write_counts(
    out: &mut dyn Write,
    figures: &ModelFigures,
    traits: &ModelTraits,
    indent: &str,
) -> io::Result<u64> {
    let success = figures.time(ServerPhase::Success);
    writeln!(out, "{indent}Inference count: {}", figures.inferences)?;
    writeln!(out, "{indent}Execution count: {}", figures.executions)?;
    if traits.has_cache {
        writeln!(out, "{indent}Cache hit count: {}", figures.time(ServerPhase::CacheHit).count)?;
        writeln!(out, "{indent}Cache miss count: {}", figures.time(ServerPhase::CacheMiss).count)?;
    }
    writeln!(out, "{indent}Successful request count: {}", success.count)?;
    write!(out, "{indent}Avg request latency: {} usec", success.mean_micros())?;
    Ok(success.mean_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(statistics: &ServerStatistics, traits: &ModelTraits) -> String {
        let mut out = Vec::new();
        write(&mut out, statistics, traits).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_ensemble_is_followed_by_its_models() {
        let figures =
            |name: &str| ModelFigures { name: name.into(), executions: 7, ..ModelFigures::default() };
        let composing = vec![figures("first"), figures("second")];
        let text = written(&ServerStatistics { model: figures("whole"), composing }, &ModelTraits::default());
        assert!(text.contains("(overhead 0 usec + queue 0 usec + compute 0 usec)"), "{text}");
        assert!(text.contains("  Composing models: \n  first: \n      Inference count: 0\n"), "{text}");
        assert_eq!(text.matches("Execution count: 7").count(), 3);
    }

    #[test]
    fn a_model_with_a_cache_has_its_hits() {
        let traits = ModelTraits { has_cache: true, ..ModelTraits::default() };
        let text = written(&ServerStatistics::default(), &traits);
        assert!(text.contains("    Cache hit count: 0\n    Cache miss count: 0\n"), "{text}");
        assert!(
            text.contains("Average Cache Miss Latency: 0 usec (cache lookup/insertion 0 usec + compute"),
            "{text}"
        );
    }
}
