//! Measures what the wrapper of OpenVINO adds to the bare calls of its C interface, or prints the results of a model.
//!
//! `ov_overhead [--model FILE] [--rows N] [--print]`: one FP32 input, one FP32 output. The input that `--print` uses is
//! `i % 1000 / 500 - 1` for `i` = 0, 7919, 15838 and so on. `NEREID_OPENVINO_LIBRARY` names the library.
use std::path::PathBuf;

use backend_openvino::RunOverhead;
use testing::RunCost;

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut model = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/models/affine.xml"));
    let (mut rows, mut prints) = (1, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--model" => model = arguments.next().unwrap_or_default().into(),
            "--rows" => rows = arguments.next().unwrap_or_default().parse()?,
            "--print" => prints = true,
            _ => return Err(format!("unknown option {argument}").into()),
        }
    }
    let library = std::env::var_os("NEREID_OPENVINO_LIBRARY").ok_or("NEREID_OPENVINO_LIBRARY is not set")?;
    let mut overhead = RunOverhead::open(library.as_ref(), &model, rows)?;
    if prints {
        let input: Vec<f32> =
            (0..overhead.input_len()).map(|at| (at * 7919 % 1000) as f32 / 500.0 - 1.0).collect();
        for value in overhead.compute(&input)? {
            println!("{value:?}");
        }
        return Ok(());
    }
    println!("{}", RunCost::measure(&mut overhead, RunOverhead::run_bare, RunOverhead::run_wrapped)?);
    Ok(())
}
