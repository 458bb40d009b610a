//! Measures how fast a model runs with only the runtime: the baseline of the benchmarks.
//!
//! `bare_loop --model X.onnx --batch N --seconds S [--threads T] [--instances K] [--library PATH]` prints
//! `inferences_per_second=...`. Every row of a batch counts as an inference.
use std::{
    num::NonZeroUsize,
    path::PathBuf,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use backend_onnx::BareLoop;
use native_backend::LibrarySearch;
use vocabulary::Error;

/// Runs between two readings of the clock.
const CHUNK: u32 = 64;

struct Options {
    model: PathBuf,
    batch: u32,
    seconds: f64,
    threads: NonZeroUsize,
    instances: NonZeroUsize,
    search: LibrarySearch,
}

fn main() {
    let result =
        options(std::env::args().skip(1)).and_then(|options| measure(&options).map_err(|e| e.to_string()));
    match result {
        #[expect(clippy::print_stdout, reason = "the result of the program")]
        Ok(rate) => println!("inferences_per_second={rate:.0}"),
        Err(message) => {
            eprintln!("bare_loop: {message}");
            std::process::exit(1);
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let named = std::env::var_os("NEREID_ONNXRUNTIME_LIBRARY").map(PathBuf::from);
    let mut options = Options {
        model: PathBuf::new(),
        batch: 1,
        seconds: 2.0,
        threads: NonZeroUsize::MIN,
        instances: NonZeroUsize::MIN,
        search: LibrarySearch { named, ..LibrarySearch::default() },
    };
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        let refused = |_| format!("{argument} does not take '{value}'");
        match argument.as_str() {
            "--model" => options.model = value.into(),
            "--library" => options.search.named = Some(value.into()),
            "--batch" => options.batch = value.parse().map_err(refused)?,
            "--threads" => options.threads = value.parse().map_err(refused)?,
            "--instances" => options.instances = value.parse().map_err(refused)?,
            "--seconds" => options.seconds = value.parse().map_err(|_| refused_seconds(&value))?,
            _ => return Err(format!("unknown option {argument}")),
        }
    }
    if options.model.as_os_str().is_empty() {
        return Err("--model is needed".to_owned());
    }
    Ok(options)
}

fn refused_seconds(value: &str) -> String {
    format!("--seconds does not take '{value}'")
}

/// Rows per second of all instances together.
fn measure(options: &Options) -> Result<f64, Error> {
    let start = Barrier::new(options.instances.get());
    let duration = Duration::from_secs_f64(options.seconds.clamp(0.1, 3600.0));
    let one = || {
        let bare = BareLoop::open(&options.search, &options.model, options.batch, options.threads);
        let warm = bare.and_then(|mut bare| bare.run(CHUNK).map(|_| bare));
        // Every thread waits at this line, also after an error. Otherwise the others would wait for ever.
        start.wait();
        let mut bare = warm?;
        let (began, mut runs) = (Instant::now(), 0_u64);
        while began.elapsed() < duration {
            runs += u64::from(bare.run(CHUNK)?);
        }
        #[expect(clippy::cast_precision_loss, reason = "far fewer runs than a double counts")]
        let rows = (runs * u64::from(options.batch)) as f64;
        Ok(rows / began.elapsed().as_secs_f64())
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..options.instances.get()).map(|_| scope.spawn(one)).collect();
        running.into_iter().map(|thread| thread.join().expect("a measurement does not panic")).sum()
    })
}
