//! Measures how long predictions of a forest take on one thread.
//!
//! ```text
//! cargo run --release -p forest --example forest_times -- xgboost_ubj model.ubj rows.f32
//! ```
//!
//! The rows are 32-bit floats, little endian, one row after the other. The times are those of the thread's processor,
//! of the fastest of many samples: other work on the machine can only slow a sample down.

use std::error::Error;
use std::time::Duration;

use forest::{Forest, ForestFormat, PredictionScratch, ReadOptions};
use rustix::time::{ClockId, clock_gettime};

/// How many samples the fastest is of.
const SAMPLES: u32 = 20;
/// How long a sample takes about.
const SAMPLE: Duration = Duration::from_millis(20);

#[expect(clippy::print_stdout, reason = "the times are what the program is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [format, model, rows] = &arguments[..] else {
        return Err("usage: forest_times FORMAT MODEL ROWS".into());
    };
    let format = match format.as_str() {
        "xgboost_json" => ForestFormat::XgboostJson,
        "xgboost_ubj" => ForestFormat::XgboostUbjson,
        "lightgbm" => ForestFormat::Lightgbm,
        "treelite_checkpoint" => ForestFormat::TreeliteCheckpoint,
        _ => {
            return Err(
                "the format must be xgboost_json, xgboost_ubj, lightgbm or treelite_checkpoint".into()
            );
        }
    };
    let file = std::fs::read(model)?;
    let begin = processor_time();
    let forest = Forest::read(format, &file, ReadOptions::default())?;
    let read = processor_time() - begin;
    println!(
        "{} trees, {} features, {} outputs, read in {read:.1?}",
        forest.trees(),
        forest.features(),
        forest.outputs()
    );
    let bytes = std::fs::read(rows)?;
    let rows: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    for batch in [1, 8, 64] {
        let time = fastest(&forest, &rows, batch)?;
        println!("batch {batch:>2}: {:.2} us", time.as_secs_f64() * 1e6);
    }
    Ok(())
}

/// The time of a prediction of `batch` rows.
fn fastest(forest: &Forest, rows: &[f32], batch: usize) -> Result<Duration, Box<dyn Error>> {
    let mut scratch = PredictionScratch::default();
    let mut predictions = vec![0.0; batch * forest.outputs()];
    let batches: Vec<&[f32]> = rows.chunks_exact(batch * forest.features()).collect();
    if batches.is_empty() {
        return Err(format!("there must be at least {batch} rows").into());
    }
    let mut predict = |count: u32| -> Result<Duration, Box<dyn Error>> {
        let begin = processor_time();
        for rows in batches.iter().cycle().take(count as usize) {
            forest.predict(rows, &mut predictions, &mut scratch)?;
        }
        Ok((processor_time() - begin) / count)
    };
    let one = predict(100)?.max(Duration::from_nanos(1));
    let count = u32::try_from(SAMPLE.as_nanos() / one.as_nanos())?.max(1);
    let mut fastest = one;
    for _ in 0..SAMPLES {
        fastest = fastest.min(predict(count)?);
    }
    Ok(fastest)
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
