//! Reads the files of `--input-data`: JSON files of `perf_analyzer`, shorter JSON files, and directories.
//!
//! Every error names the file and the place in it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::elements::{ElementKind, count_elements, element_count, push_array, push_text};
use crate::model::{ModelInput, TargetModel};
use crate::options::PerfOptions;
use crate::tensors::{InputTensor, WantedOutput};

/// The content of a request of one row, or of the whole batch.
#[derive(Clone)]
pub(crate) struct InputStep {
    /// The shapes have no batch dimension, unless the step is a whole batch.
    pub(crate) inputs: Vec<InputTensor>,
    pub(crate) outputs: Vec<WantedOutput>,
    pub(crate) is_whole: bool,
}

/// The streams of a file or directory.
///
/// # Errors
/// It cannot be read or does not match the model.
pub(crate) fn read(path: &Path, model: &TargetModel, options: &PerfOptions) -> Result<Vec<Vec<InputStep>>> {
    let place = || path.display().to_string();
    if path.is_dir() {
        return Ok(vec![vec![directory(path, model, options).with_context(place)?]]);
    }
    let text = fs::read(path).with_context(|| format!("cannot read {}", place()))?;
    let content: Value = serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", place()))?;
    streams(&content, &StepReader { model, options }).with_context(place)
}

fn streams(content: &Value, reader: &StepReader<'_>) -> Result<Vec<Vec<InputStep>>> {
    // A model may have an input of the name 'data'.
    let entries = match content {
        Value::Object(content) => content.get("data").and_then(Value::as_array),
        _ => None,
    };
    let entries = entries.filter(|entries| entries.iter().all(|entry| entry.is_object() || entry.is_array()));
    let entries = entries.filter(|entries| entries.iter().any(|entry| !entry[0].is_number()));
    match (entries, content) {
        (Some(entries), _) => of_perf_analyzer(entries, content.get("validation_data"), reader),
        (None, Value::Array(requests)) => {
            ensure!(!requests.is_empty(), "the file has no request");
            let request = |(index, request): (usize, &Value)| {
                reader.short(request).with_context(|| format!("request {index}"))
            };
            Ok(vec![requests.iter().enumerate().map(request).collect::<Result<_>>()?])
        }
        (None, request) => Ok(vec![vec![reader.short(request)?]]),
    }
}

/// The streams of `{"data": [..], "validation_data": [..]}`. Steps outside of arrays form one stream.
fn of_perf_analyzer(
    entries: &[Value],
    expected: Option<&Value>,
    reader: &StepReader<'_>,
) -> Result<Vec<Vec<InputStep>>> {
    let not_aligned = "'validation_data' needs an entry for each entry of 'data'";
    let expected = expected.map(|expected| expected.as_array().context(not_aligned)).transpose()?;
    ensure!(!entries.is_empty(), "'data' is empty");
    ensure!(expected.is_none_or(|expected| expected.len() == entries.len()), not_aligned);
    let (mut streams, mut loose) = (Vec::new(), Vec::new());
    for (index, entry) in entries.iter().enumerate() {
        let expected = expected.map(|expected| &expected[index]);
        match entry {
            Value::Array(steps) => {
                let expected =
                    expected.map(|expected| expected.as_array().context(not_aligned)).transpose()?;
                ensure!(expected.is_none_or(|expected| expected.len() == steps.len()), not_aligned);
                ensure!(!steps.is_empty(), "data[{index}] is a stream without a step");
                let step = |(step, content)| {
                    let expected = expected.map(|expected| &expected[step]);
                    reader.step(content, expected).with_context(|| format!("data[{index}][{step}]"))
                };
                streams.push(steps.iter().enumerate().map(step).collect::<Result<_>>()?);
            }
            step => loose.push(reader.step(step, expected).with_context(|| format!("data[{index}]"))?),
        }
    }
    if !loose.is_empty() {
        streams.insert(0, loose);
    }
    Ok(streams)
}

/// Reads steps for a model.
struct StepReader<'r> {
    model: &'r TargetModel,
    options: &'r PerfOptions,
}

impl StepReader<'_> {
    /// A step of `perf_analyzer`: all inputs with exactly their elements.
    fn step(&self, content: &Value, expected: Option<&Value>) -> Result<InputStep> {
        let content = content.as_object().context("a step is an object of inputs")?;
        self.check_names(content, &self.model.inputs, "input")?;
        let mut inputs = Vec::new();
        for input in &self.model.inputs {
            let Some(value) = content.get(&input.name) else {
                let optional = self.model.traits.optional_inputs.contains(&input.name);
                ensure!(optional, "input '{}' is missing", input.name);
                continue;
            };
            let tensor = self.tensor(input, value).with_context(|| format!("input '{}'", input.name))?;
            inputs.push(tensor);
        }
        let outputs = match expected {
            None => Vec::new(),
            Some(expected) => self.outputs(expected).context("validation_data")?,
        };
        Ok(InputStep { inputs, outputs, is_whole: false })
    }

    fn outputs(&self, expected: &Value) -> Result<Vec<WantedOutput>> {
        let expected = expected.as_object().context("a step is an object of outputs")?;
        self.check_names(expected, &self.model.outputs, "output")?;
        let outputs =
            self.model.outputs.iter().filter_map(|output| Some((output, expected.get(&output.name)?)));
        let read = |(output, value): (&ModelInput, &Value)| {
            let (content, _) = parts(value)?;
            let bytes = bytes_of(&ElementKind::of(&output.datatype)?, content);
            let bytes = bytes.with_context(|| format!("output '{}'", output.name))?;
            Ok(WantedOutput { name: output.name.clone(), bytes: bytes.into() })
        };
        outputs.map(read).collect()
    }

    fn check_names(&self, given: &Map<String, Value>, known: &[ModelInput], what: &str) -> Result<()> {
        match given.keys().find(|name| !known.iter().any(|tensor| tensor.name == **name)) {
            Some(unknown) => bail!("the model has no {what} '{unknown}'"),
            None => Ok(()),
        }
    }

    /// A tensor of one row.
    fn tensor(&self, input: &ModelInput, value: &Value) -> Result<InputTensor> {
        let (content, shape) = parts(value)?;
        let kind = ElementKind::of(&input.datatype)?;
        let bytes = bytes_of(&kind, content)?;
        let elements = count_elements(&kind, &bytes)?;
        let shape = match shape {
            Some(shape) => self.model.row_shape(input, Some(&shape), "the shape")?,
            None => self.shape_for(input, elements)?,
        };
        let wanted = element_count(&shape)?;
        ensure!(elements == wanted, "has {elements} values, but shape {shape:?} takes {wanted}");
        Ok(InputTensor { input: ModelInput { shape, ..input.clone() }, bytes: bytes.into() })
    }

    /// The shape of a row without one in the file. The number of elements gives a single variable dimension.
    fn shape_for(&self, input: &ModelInput, elements: usize) -> Result<Vec<i64>> {
        let given = self.options.shapes.get(&input.name);
        let own = self.model.own_shape(input);
        let variable: Vec<usize> =
            own.iter().enumerate().filter(|(_, size)| **size < 0).map(|(index, _)| index).collect();
        if let (None, [variable]) = (given, &variable[..]) {
            let fixed: Vec<i64> = own.iter().copied().filter(|&size| size >= 0).collect();
            let fixed = element_count(&fixed)?;
            if fixed > 0 && elements.is_multiple_of(fixed) {
                let mut shape = own.to_vec();
                shape[*variable] = i64::try_from(elements / fixed)?;
                return Ok(shape);
            }
        }
        self.model.row_shape(input, given, "--shape")
    }

    /// A request of the short form: each input for the whole batch, or a part of it that is repeated.
    fn short(&self, request: &Value) -> Result<InputStep> {
        let request = request.as_object().context("a request is an object of inputs")?;
        let mut inputs = Vec::new();
        for input in &self.model.inputs {
            let row = self.model.row_shape(input, self.options.shapes.get(&input.name), "--shape")?;
            let shape = self.model.batched(&row, self.options.batch)?;
            let tensor = repeated(input, shape, request.get(&input.name));
            inputs.push(tensor.with_context(|| format!("input '{}'", input.name))?);
        }
        Ok(InputStep { inputs, outputs: Vec::new(), is_whole: true })
    }
}

/// A tensor of that shape, from a number of values that its own is a multiple of.
fn repeated(input: &ModelInput, shape: Vec<i64>, values: Option<&Value>) -> Result<InputTensor> {
    let kind = ElementKind::of(&input.datatype)?;
    let wanted = element_count(&shape)?;
    let part = bytes_of(&kind, values.context("is missing")?)?;
    let given = count_elements(&kind, &part)?;
    ensure!(
        wanted == 0 || (given > 0 && wanted.is_multiple_of(given)),
        "has {given} values, but the tensor takes {wanted}"
    );
    let bytes = part.repeat(wanted.checked_div(given).unwrap_or(0));
    Ok(InputTensor { input: ModelInput { shape, ..input.clone() }, bytes: bytes.into() })
}

/// The content of a tensor, and its shape if the file has one.
fn parts(value: &Value) -> Result<(&Value, Option<Vec<i64>>)> {
    let Some(object) = value.as_object().filter(|object| !object.contains_key("b64")) else {
        return Ok((value, None));
    };
    let content = object.get("content").context("has no 'content'")?;
    let shape = object.get("shape").map(|shape| {
        let sizes = shape.as_array()?.iter().map(|size| size.as_i64().filter(|&size| size >= 0));
        sizes.collect::<Option<Vec<i64>>>()
    });
    let shape =
        shape.map(|shape| shape.context("'shape' is an array of integers of at least 0")).transpose()?;
    Ok((content, shape))
}

/// The elements of an array, or the bytes of `{"b64": ".."}`.
fn bytes_of(kind: &ElementKind, content: &Value) -> Result<Vec<u8>> {
    match content {
        Value::Array(values) => {
            let mut bytes = Vec::new();
            push_array(&mut bytes, kind, values)?;
            Ok(bytes)
        }
        Value::Object(object) => {
            let text = object.get("b64").and_then(Value::as_str).context("has no text 'b64'")?;
            STANDARD.decode(text).context("'b64' is not base64")
        }
        _ => bail!("needs an array of values, or an object with 'b64'"),
    }
}

/// A directory with a file for each input, and for each output that is compared.
fn directory(path: &Path, model: &TargetModel, options: &PerfOptions) -> Result<InputStep> {
    let reader = StepReader { model, options };
    let mut names = Vec::new();
    for entry in fs::read_dir(path).context("cannot list the directory")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let known = model.inputs.iter().chain(&model.outputs).any(|tensor| tensor.name == name);
        ensure!(known, "'{name}' is the name of no input and of no output");
        names.push(name);
    }
    let content = |tensor: &ModelInput| -> Result<Bytes> {
        let bytes =
            fs::read(path.join(&tensor.name)).with_context(|| format!("cannot read '{}'", tensor.name))?;
        Ok(match ElementKind::of(&tensor.datatype)? {
            ElementKind::Text => lines(&bytes).into(),
            _ => bytes.into(),
        })
    };
    let mut inputs = Vec::new();
    for input in &model.inputs {
        if !names.contains(&input.name) {
            ensure!(model.traits.optional_inputs.contains(&input.name), "there is no file '{}'", input.name);
            continue;
        }
        let bytes = content(input)?;
        let place = || format!("file '{}'", input.name);
        let elements = count_elements(&ElementKind::of(&input.datatype)?, &bytes).with_context(place)?;
        let shape = reader.shape_for(input, elements).with_context(place)?;
        let wanted = element_count(&shape)?;
        ensure!(elements == wanted, "{}: has {elements} values, but shape {shape:?} takes {wanted}", place());
        inputs.push(InputTensor { input: ModelInput { shape, ..input.clone() }, bytes });
    }
    let outputs = model.outputs.iter().filter(|output| names.contains(&output.name));
    let outputs =
        outputs.map(|output| Ok(WantedOutput { name: output.name.clone(), bytes: content(output)? }));
    Ok(InputStep { inputs, outputs: outputs.collect::<Result<_>>()?, is_whole: false })
}

/// The lines of a file as elements of texts.
fn lines(bytes: &[u8]) -> Vec<u8> {
    let mut elements = Vec::new();
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    for line in text.split(|&byte| byte == b'\n') {
        push_text(&mut elements, line.strip_suffix(b"\r").unwrap_or(line));
    }
    elements
}

#[cfg(test)]
mod tests;
