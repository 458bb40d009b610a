//! Measures how fast models run that follow each other, with only the runtime: the baseline of an ensemble.
//!
//! `bare_pipeline --step X.onnx:N --step Y.onnx:M .. [--rows R] [--seconds S] [--threads T] [--library PATH]` prints
//! `rows_per_second=...`. Each step has a session and a thread of its own, and runs its number of rows at a time. R rows
//! are on their way: a row that has passed the last step goes to the first step again. Threads pass only the number of
//! rows on, and models compute on zeros. So no tensor is copied between the steps, and a real program is slower.
use std::{
    num::NonZeroUsize,
    path::PathBuf,
    sync::{
        Barrier,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use backend_onnx::BareLoop;
use native_backend::LibrarySearch;
use vocabulary::Error;

/// Runs of each model before the measurement.
const WARM_UP: u32 = 16;

struct Step {
    model: PathBuf,
    rows: u32,
}

/// The place of a step among the others.
struct Stage {
    /// Numbers of rows that the step before has passed on.
    receiver: Receiver<u32>,
    sender: Sender<u32>,
    is_last: bool,
}

struct Options {
    steps: Vec<Step>,
    rows: u32,
    seconds: f64,
    threads: NonZeroUsize,
    search: LibrarySearch,
}

fn main() {
    let result =
        options(std::env::args().skip(1)).and_then(|options| measure(&options).map_err(|e| e.to_string()));
    match result {
        #[expect(clippy::print_stdout, reason = "the result of the program")]
        Ok(rate) => println!("rows_per_second={rate:.1}"),
        Err(message) => {
            eprintln!("bare_pipeline: {message}");
            std::process::exit(1);
        }
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let named = std::env::var_os("NEREID_ONNXRUNTIME_LIBRARY").map(PathBuf::from);
    let mut options = Options {
        steps: Vec::new(),
        rows: 64,
        seconds: 2.0,
        threads: NonZeroUsize::MIN,
        search: LibrarySearch { named, ..LibrarySearch::default() },
    };
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        let refused = || format!("{argument} does not take '{value}'");
        match argument.as_str() {
            "--step" => options.steps.push(step(&value).ok_or_else(refused)?),
            "--rows" => options.rows = value.parse().map_err(|_| refused())?,
            "--seconds" => options.seconds = value.parse().map_err(|_| refused())?,
            "--threads" => options.threads = value.parse().map_err(|_| refused())?,
            "--library" => options.search.named = Some(value.into()),
            _ => return Err(format!("unknown option {argument}")),
        }
    }
    if options.steps.is_empty() {
        return Err("--step is needed".to_owned());
    }
    // Otherwise every step could wait for rows that wait at another step.
    if options.rows <= options.steps.iter().map(|step| step.rows - 1).sum() {
        return Err(format!("{} rows are too few for these steps", options.rows));
    }
    Ok(options)
}

/// Reads `MODEL:ROWS`.
fn step(text: &str) -> Option<Step> {
    let (model, rows) = text.rsplit_once(':')?;
    Some(Step { model: model.into(), rows: rows.parse().ok().filter(|&rows| rows > 0)? })
}

/// Rows per second that pass the last step.
fn measure(options: &Options) -> Result<f64, Error> {
    let start = Barrier::new(options.steps.len());
    let (senders, mut receivers): (Vec<Sender<u32>>, Vec<Receiver<u32>>) =
        options.steps.iter().map(|_| channel()).unzip();
    // The receiver lives in this function, so this cannot fail.
    let _ = senders[0].send(options.rows);
    // Each step sends to the next one, the last step to the first.
    let mut senders: Vec<_> = senders.into_iter().map(Some).collect();
    senders.rotate_left(1);
    thread::scope(|scope| {
        let mut running = Vec::new();
        for ((step, sender), receiver) in options.steps.iter().zip(&mut senders).zip(receivers.drain(..)) {
            let is_last = running.len() + 1 == options.steps.len();
            let stage = Stage { receiver, sender: sender.take().expect("each step has one sender"), is_last };
            let start = &start;
            running.push(scope.spawn(move || run(step, options, start, &stage)));
        }
        let rates = running.into_iter().map(|thread| thread.join().expect("a measurement does not panic"));
        rates.collect::<Result<Vec<f64>, _>>().map(|rates| rates[rates.len() - 1])
    })
}

/// Runs a step until the last one has measured long enough. Returns the rows per second.
fn run(step: &Step, options: &Options, start: &Barrier, stage: &Stage) -> Result<f64, Error> {
    let bare = BareLoop::open(&options.search, &step.model, step.rows, options.threads);
    let warm = bare.and_then(|mut bare| bare.run(WARM_UP).map(|_| bare));
    // Every thread waits at this line, also after an error. Otherwise the others would wait for ever.
    start.wait();
    let mut bare = warm?;
    let duration = Duration::from_secs_f64(options.seconds.clamp(0.1, 3600.0));
    let (began, mut passed, mut waiting) = (Instant::now(), 0_u64, 0);
    while !(stage.is_last && began.elapsed() >= duration) {
        while waiting < step.rows {
            // The last step has ended.
            let Ok(rows) = stage.receiver.recv() else { return Ok(0.0) };
            waiting += rows;
        }
        bare.run(1)?;
        waiting -= step.rows;
        passed += u64::from(step.rows);
        if stage.sender.send(step.rows).is_err() {
            break;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "far fewer rows than a double counts")]
    let rows = passed as f64;
    Ok(rows / began.elapsed().as_secs_f64())
}
