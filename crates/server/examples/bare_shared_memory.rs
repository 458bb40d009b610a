//! Measures how fast a graph of one input and one output runs over shared memory, with only the runtime: the baseline of
//! the benchmark of clients' shared memory.
//!
//! `bare_shared_memory --model X.onnx --bytes N --seconds S` prints `p50_us=...`: the median time of a run that reads its
//! input from a region and writes its output to the region. Both have N bytes.
use std::{
    fs::OpenOptions,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use backend_onnx::BareLoop;
use native_backend::LibrarySearch;
use shared_memory::{ClientRegions, SharedMemoryOptions, SystemRegistration};

struct Options {
    model: PathBuf,
    bytes: u64,
    seconds: f64,
}

/// The object of the measurement. It is unlinked when this is dropped.
struct Object(PathBuf);

impl Drop for Object {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn main() -> Result<()> {
    let options = options(std::env::args().skip(1))?;
    println!("p50_us={:.1}", measure(&options)?);
    Ok(())
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options { model: PathBuf::new(), bytes: 0, seconds: 2.0 };
    while let Some(argument) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{argument} needs a value"))?;
        let refused = || format!("{argument} does not take '{value}'");
        match argument.as_str() {
            "--model" => options.model = value.into(),
            "--bytes" => options.bytes = value.parse().with_context(refused)?,
            "--seconds" => options.seconds = value.parse().with_context(refused)?,
            _ => bail!("unknown option {argument}"),
        }
    }
    Ok(options)
}

/// The median time of a run, in microseconds.
fn measure(Options { model, bytes, seconds }: &Options) -> Result<f64> {
    let key = format!("nereid_bare_{}", std::process::id());
    let object = Object(Path::new("/dev/shm").join(&key));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&object.0)?;
    file.set_len(2 * bytes)?;
    let regions = ClientRegions::allowed(SharedMemoryOptions { in_place: true, ..Default::default() });
    let (name, byte_size) = ("bare".to_owned(), 2 * bytes);
    regions.register_system(&SystemRegistration { name, key, offset: 0, byte_size })?;
    let (input, output) = (regions.memory("bare", 0, *bytes)?, regions.memory("bare", *bytes, *bytes)?);
    output.write(&vec![1; usize::try_from(*bytes)?].into())?;

    let named = std::env::var_os("NEREID_ONNXRUNTIME_LIBRARY").map(PathBuf::from);
    let search = LibrarySearch { named, ..LibrarySearch::default() };
    let mut bare = BareLoop::open(&search, model, 1, NonZeroUsize::MIN)?;
    bare.run_in_place(&input, &output, 20)?;
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < Duration::from_secs_f64(*seconds) {
        let run = Instant::now();
        bare.run_in_place(&input, &output, 1)?;
        times.push(run.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}
