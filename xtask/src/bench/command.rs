//! Measures the wanted parts one after the other.

use anyhow::Result;

use super::options::{BenchOptions, BenchPart, PARTS};
use super::setup::BenchSetup;
use super::{
    adversary, cache, ensemble, frameworks, growth, instructions, load, micro, observe, peers, processors,
    promises, python_models, reload, replicas, shared_memory, tune, worst_inputs,
};

/// Measures and prints. Returns true if every request of every row was answered.
pub(crate) fn run(options: &BenchOptions) -> Result<bool> {
    let mut good = true;
    for (_, part) in PARTS {
        if options.only.is_none_or(|only| only == part) {
            good &= run_part(part, options)?;
        }
    }
    Ok(good)
}

fn run_part(part: BenchPart, options: &BenchOptions) -> Result<bool> {
    let prepare = || BenchSetup::prepare(options);
    match part {
        BenchPart::Load => load::run(&prepare()?),
        BenchPart::Adversary => {
            let setup = prepare()?;
            let inputs = worst_inputs::run(&setup)?;
            Ok(adversary::run(&setup)? && inputs)
        }
        BenchPart::Reload => reload::run(&prepare()?),
        BenchPart::Ensemble => ensemble::run(&prepare()?),
        BenchPart::Cache => cache::run(&prepare()?),
        BenchPart::Observe => observe::run(&prepare()?),
        BenchPart::SharedMemory => shared_memory::run(&prepare()?),
        BenchPart::Python => python_models::run(&prepare()?),
        BenchPart::Tune => tune::run(&prepare()?),
        BenchPart::Promises => promises::run(options),
        BenchPart::Growth => growth::run(options),
        BenchPart::Replicas => replicas::run(options),
        BenchPart::Peers => peers::run(options),
        BenchPart::Frameworks => frameworks::run(options),
        BenchPart::Processors => processors::run(&prepare()?),
        BenchPart::Instructions => instructions::run(options).map(|()| true),
        BenchPart::Micro => micro::run().map(|()| true),
    }
}
