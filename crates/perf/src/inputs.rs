//! The input tensors of all requests of a run, and the outputs that their responses must have.
//!
//! The content of an input file is a number of streams of steps. A step is the content of a request of one row. For
//! larger batches, a request takes several steps that follow each other.

use anyhow::{Context, Result, ensure};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::elements::{ElementKind, element_count, random_elements, zero_elements};
use crate::input_files::{self, InputStep};
use crate::model::{ModelInput, TargetModel};
use crate::options::{InputContent, PerfOptions};
use crate::tensors::{InputTensor, WantedOutput};

/// See the module documentation.
pub(crate) struct RunInputs {
    pub(crate) requests: Vec<Vec<InputTensor>>,
    /// For each request, the outputs that are compared. Empty if no file has any.
    pub(crate) expected: Vec<Vec<WantedOutput>>,
    /// For each stream, the indexes of its requests. None is empty.
    pub(crate) streams: Vec<Vec<usize>>,
    pub(crate) from_files: bool,
}

/// Makes or reads the inputs.
///
/// # Errors
/// A file cannot be read or does not match the model, a shape is missing, or a datatype is unknown.
pub(crate) fn prepare(model: &TargetModel, options: &PerfOptions) -> Result<RunInputs> {
    model.check(options.batch, &options.shapes)?;
    match &options.content {
        InputContent::Files(paths) => {
            let mut streams = Vec::new();
            for path in paths {
                streams.extend(input_files::read(path, model, options)?);
            }
            of_streams(model, options, &streams)
        }
        InputContent::Zero | InputContent::Random => {
            let request = made(model, options)?;
            Ok(RunInputs {
                requests: vec![request],
                expected: Vec::new(),
                streams: vec![vec![0]],
                from_files: false,
            })
        }
    }
}

/// One request whose content is zero or random.
fn made(model: &TargetModel, options: &PerfOptions) -> Result<Vec<InputTensor>> {
    let mut random = StdRng::seed_from_u64(options.seed);
    let make = |input: &ModelInput| {
        let kind = ElementKind::of(&input.datatype)?;
        let row = model.row_shape(input, options.shapes.get(&input.name), "--shape")?;
        let shape = model.batched(&row, options.batch)?;
        let elements = element_count(&shape)?;
        let bytes = match options.content {
            InputContent::Zero => zero_elements(&kind, elements, &options.texts),
            _ => random_elements(&kind, elements, &options.texts, &mut random),
        };
        let input = ModelInput { shape, ..input.clone() };
        Ok(InputTensor { input, bytes: bytes.into() })
    };
    model.inputs.iter().map(make).collect()
}

/// The requests of files. Requests of sequences have one row, so that a stream gives a request for each step.
fn of_streams(model: &TargetModel, options: &PerfOptions, streams: &[Vec<InputStep>]) -> Result<RunInputs> {
    let batch = usize::try_from(options.batch)?;
    let mut inputs =
        RunInputs { requests: Vec::new(), expected: Vec::new(), streams: Vec::new(), from_files: true };
    // Only sequences keep streams apart.
    let whole: Vec<InputStep>;
    let streams: Vec<&[InputStep]> = match model.traits.has_sequences {
        true => streams.iter().map(Vec::as_slice).collect(),
        false => {
            whole = streams.concat();
            vec![&whole]
        }
    };
    for steps in streams {
        ensure!(!steps.is_empty(), "the files of --input-data have a stream without a step");
        let count = if steps.iter().any(|step| step.is_whole) {
            steps.len()
        } else {
            requests_of(steps.len(), batch)
        };
        let first = inputs.requests.len();
        for index in 0..count {
            let taken: Vec<&InputStep> = match steps[index % steps.len()].is_whole || batch == 1 {
                true => vec![&steps[index % steps.len()]],
                false => (0..batch).map(|row| &steps[(index * batch + row) % steps.len()]).collect(),
            };
            inputs.requests.push(joined(model, options.batch, &taken)?);
            inputs.expected.push(expected(&taken));
        }
        inputs.streams.push((first..inputs.requests.len()).collect());
    }
    if inputs.expected.iter().all(Vec::is_empty) {
        inputs.expected.clear();
    }
    Ok(inputs)
}

/// How many requests it takes until all steps were sent equally often.
fn requests_of(steps: usize, batch: usize) -> usize {
    let (mut a, mut b) = (steps, batch);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    steps / a
}

/// A request of these steps.
fn joined(model: &TargetModel, batch: u64, steps: &[&InputStep]) -> Result<Vec<InputTensor>> {
    let first = steps[0];
    let join = |(index, tensor): (usize, &InputTensor)| {
        let mut bytes = Vec::with_capacity(tensor.bytes.len() * steps.len());
        for step in steps {
            let other = step.inputs.get(index).filter(|other| other.input == tensor.input);
            let other = other.with_context(|| {
                format!("the steps of a batch give input '{}' different shapes", tensor.input.name)
            })?;
            bytes.extend_from_slice(&other.bytes);
        }
        let shape = match first.is_whole {
            true => tensor.input.shape.clone(),
            false => model.batched(&tensor.input.shape, batch)?,
        };
        let input = ModelInput { shape, ..tensor.input.clone() };
        Ok(InputTensor { input, bytes: bytes.into() })
    };
    first.inputs.iter().enumerate().map(join).collect()
}

fn expected(steps: &[&InputStep]) -> Vec<WantedOutput> {
    let of = |output: &WantedOutput| {
        let mut bytes = Vec::new();
        for step in steps {
            let same = step.outputs.iter().find(|other| other.name == output.name);
            bytes.extend_from_slice(&same?.bytes);
        }
        Some(WantedOutput { name: output.name.clone(), bytes: bytes.into() })
    };
    // An output that only some rows of a batch have cannot be compared.
    steps[0].outputs.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_are_sent_equally_often() {
        assert_eq!(
            [(4, 1), (4, 2), (3, 2), (2, 8)].map(|(steps, batch)| requests_of(steps, batch)),
            [4, 2, 3, 1]
        );
    }
}
