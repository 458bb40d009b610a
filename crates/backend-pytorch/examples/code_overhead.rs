//! Measures what the wrapper of PyTorch's C interface adds to the bare calls.
//!
//! `code_overhead PACKAGE DIM...`: a package of AOTInductor with one FP32 input of these dims and one output.
//! `NEREID_TORCH_LIBRARY` names `libtorch_cpu.so`.
use std::path::PathBuf;

use backend_pytorch::CodeOverhead;
use testing::RunCost;

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let package: PathBuf = arguments.next().ok_or("name a package")?.into();
    let shape = arguments.map(|dim| dim.parse()).collect::<Result<Vec<i64>, _>>()?;
    let library = std::env::var_os("NEREID_TORCH_LIBRARY").ok_or("NEREID_TORCH_LIBRARY is not set")?;
    let mut overhead = CodeOverhead::open(library.as_ref(), &package, &shape)?;
    println!("{}", RunCost::measure(&mut overhead, CodeOverhead::run_bare, CodeOverhead::run_wrapped)?);
    Ok(())
}
