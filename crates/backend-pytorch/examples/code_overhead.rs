//! Measures what the wrapper of PyTorch's C interface adds to the bare calls.
//!
//! `code_overhead PACKAGE DIM...`: a package of AOTInductor with one FP32 input of these dims and one output.
//! `NEREID_TORCH_LIBRARY` names `libtorch_cpu.so`.
use std::{path::PathBuf, time::Instant};

use backend_pytorch::CodeOverhead;
use vocabulary::Error;

const ROUNDS: u32 = 300;
const REPETITIONS: usize = 300;

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let package: PathBuf = arguments.next().ok_or("name a package")?.into();
    let shape = arguments.map(|dim| dim.parse()).collect::<Result<Vec<i64>, _>>()?;
    let library = std::env::var_os("NEREID_TORCH_LIBRARY").ok_or("NEREID_TORCH_LIBRARY is not set")?;
    let mut overhead = CodeOverhead::open(library.as_ref(), &package, &shape)?;
    let mut best = [f64::MAX; 2];
    for _ in 0..REPETITIONS {
        best[0] = best[0].min(per_round(|| overhead.run_bare(ROUNDS))?);
        best[1] = best[1].min(per_round(|| overhead.run_wrapped(ROUNDS))?);
    }
    let [bare, wrapped] = best;
    println!("bare_ns={bare:.0} wrapped_ns={wrapped:.0} added_ns={:.0}", wrapped - bare);
    Ok(())
}

/// Nanoseconds for each of the rounds that `work` runs.
fn per_round(work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS))
}
