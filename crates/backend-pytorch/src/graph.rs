//! The code of a model as a graph that native instances run.
use std::{borrow::Cow, num::NonZeroUsize, sync::Arc};

use native_backend::{
    AlignedBuffer, ExpectedOutput, Feed, FeedValue, Graph, GraphOutput, LibraryFailure, NoStrings,
    RunOutputs, Signature, ValueKind,
};
use smallvec::{SmallVec, smallvec};
use vocabulary::{DataType, shape_text};

use crate::{
    tensor_bindings::TensorBindings,
    torch::{OpenedCode, TorchError, TorchInput, TorchOutput},
};

/// The code of a model with the tensors of a configuration, for one instance.
pub(crate) struct CodeGraph {
    code: Arc<OpenedCode>,
    bindings: TensorBindings,
    threads: NonZeroUsize,
    /// The first dimension of each input is that of requests.
    is_batched: bool,
    input_use: InputUse,
    row_use: RowUse,
}

/// Whether the code changes its inputs. A package does not tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputUse {
    /// Nothing has run. The first run gets copies, which are compared with the inputs afterwards.
    Unknown,
    /// The code reads the memory of requests.
    Reads,
    /// The code writes into inputs, so that each run gets copies.
    Writes,
}

/// Whether the code takes a batch of one row. Code for a number of rows that is not fixed may refuse it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowUse {
    /// No batch of one row has run.
    Unknown,
    /// It does.
    Any,
    /// It gets the row twice.
    Two,
}

/// An input of a run, in the order of the call.
type InputFeed<'a> = &'a FeedValue<'a, NoStrings>;

type Outputs = SmallVec<[TorchOutput; 4]>;

impl CodeGraph {
    /// A graph that computes with so many threads.
    pub(crate) fn new(
        code: Arc<OpenedCode>,
        bindings: TensorBindings,
        threads: NonZeroUsize,
        is_batched: bool,
    ) -> Self {
        let (input_use, row_use) = (InputUse::Unknown, RowUse::Unknown);
        Self { code, bindings, threads, is_batched, input_use, row_use }
    }

    /// Runs the feeds as they are, or one row twice.
    fn run_rows(&mut self, feeds: &[InputFeed<'_>]) -> Result<Outputs, TorchError> {
        let is_one_row = self.is_batched && feeds.first().is_some_and(|feed| shape(feed).first() == Some(&1));
        match (is_one_row, self.row_use) {
            (false, _) | (true, RowUse::Any) => self.run_feeds(feeds),
            (true, RowUse::Two) => self.run_twice(feeds),
            (true, RowUse::Unknown) => match self.run_feeds(feeds) {
                Ok(outputs) => {
                    self.row_use = RowUse::Any;
                    Ok(outputs)
                }
                Err(refusal) => {
                    let outputs = self.run_twice(feeds).map_err(|_| refusal)?;
                    self.row_use = RowUse::Two;
                    Ok(outputs)
                }
            },
        }
    }

    fn run_feeds(&mut self, feeds: &[InputFeed<'_>]) -> Result<Outputs, TorchError> {
        if self.input_use != InputUse::Reads {
            return self.run_copies(feeds, 1);
        }
        let torch = self.code.torch();
        let mut inputs = SmallVec::new();
        for feed in feeds {
            inputs.push(match feed {
                FeedValue::Host { datatype, shape, bytes } => {
                    TorchInput::over(torch, *datatype, shape, bytes)?
                }
                FeedValue::Foreign { datatype, shape, memory } => {
                    TorchInput::over_foreign(torch, *datatype, shape, memory)?.ok_or_else(|| {
                        TorchError::invalid_argument("foreign memory that cannot be used in place")
                    })?
                }
                FeedValue::Strings { strings, .. } => match *strings {},
            });
        }
        self.code.run(inputs, self.threads)
    }

    fn run_twice(&mut self, feeds: &[InputFeed<'_>]) -> Result<Outputs, TorchError> {
        self.run_copies(feeds, 2)?.into_iter().map(TorchOutput::first_of_two_rows).collect()
    }

    /// Runs copies of the inputs, each with its content so many times along the first dimension.
    fn run_copies(&mut self, feeds: &[InputFeed<'_>], times: usize) -> Result<Outputs, TorchError> {
        let torch = self.code.torch();
        let contents: SmallVec<[Cow<'_, [u8]>; 4]> =
            feeds.iter().map(|feed| content(feed)).collect::<Result<_, _>>()?;
        let mut buffers: Vec<AlignedBuffer> = feeds.iter().map(|_| AlignedBuffer::default()).collect();
        let mut inputs = SmallVec::new();
        for ((feed, content), buffer) in feeds.iter().zip(&contents).zip(&mut buffers) {
            let copies = buffer.first(content.len() * times);
            copies.chunks_exact_mut(content.len().max(1)).for_each(|copy| copy.copy_from_slice(content));
            let mut dims: SmallVec<[i64; 6]> = shape(feed).into();
            if let Some(rows) = dims.first_mut().filter(|_| times > 1) {
                *rows *= i64::try_from(times).unwrap_or(i64::MAX);
            }
            inputs.push(TorchInput::over(torch, datatype(feed), &dims, copies)?);
        }
        let outputs = self.code.run(inputs, self.threads)?;
        if self.input_use == InputUse::Unknown {
            let mut copies = contents.iter().zip(&mut buffers);
            let is_same = copies.all(|(content, copy)| copy.first(content.len()) == &**content);
            self.input_use = if is_same { InputUse::Reads } else { InputUse::Writes };
        }
        Ok(outputs)
    }

    /// Requires that an output is what the configuration says: the package tells nothing of it.
    fn check(&self, slot: usize, output: &TorchOutput) -> Result<(), TorchError> {
        let value = &self.bindings.signature.outputs[slot];
        let ValueKind::Tensor(element, dims) = &value.kind else { return Ok(()) };
        let (name, datatype, shape) = (&value.name, output.datatype(), output.shape());
        if element.datatype() != Some(datatype) {
            let (expected, provided) = (element.name(), datatype.config_name());
            return Err(TorchError::invalid_argument(format!(
                "configuration expects datatype TYPE_{expected} for output '{name}', model provides {provided}"
            )));
        }
        let fits = |(&dim, &size): (&i64, &i64)| dim < 0 || dim == size;
        if dims.len() != shape.len() || !dims.iter().zip(shape).all(fits) {
            let (dims, shape) = (shape_text(dims), shape_text(shape));
            return Err(TorchError::invalid_argument(format!(
                "configuration expects the shape {dims} for output '{name}', model provides {shape}"
            )));
        }
        Ok(())
    }
}

impl Graph for CodeGraph {
    type Output = TorchOutput;
    type Strings = NoStrings;

    fn signature(&self) -> &Signature {
        &self.bindings.signature
    }

    fn strings(&self, _: &[i64]) -> Result<NoStrings, LibraryFailure> {
        Err(LibraryFailure::of_server("compiled code of PyTorch has no strings"))
    }

    fn run(
        &mut self,
        feeds: &[Feed<'_, NoStrings>],
        wanted: &[usize],
        _: &[Option<ExpectedOutput>],
    ) -> Result<RunOutputs<TorchOutput>, LibraryFailure> {
        let inputs = &self.bindings.signature.inputs;
        let mut by_slot: SmallVec<[Option<InputFeed<'_>>; 4]> = smallvec![None; inputs.len()];
        for feed in feeds {
            by_slot[feed.slot] = Some(&feed.value);
        }
        let in_order = inputs.iter().zip(by_slot).map(|(input, feed)| {
            feed.ok_or_else(|| {
                TorchError::invalid_argument(format!("a run needs the input '{}'", input.name))
            })
        });
        let in_order = in_order.collect::<Result<SmallVec<[_; 4]>, _>>()?;
        let mut outputs: SmallVec<[Option<TorchOutput>; 4]> =
            self.run_rows(&in_order)?.into_iter().map(Some).collect();
        let mut taken = RunOutputs::new();
        for &slot in wanted {
            let output =
                self.bindings.output_places.get(slot).and_then(|&place| outputs.get_mut(place)?.take());
            let output =
                output.ok_or_else(|| TorchError::invalid_argument(format!("a run made no output {slot}")))?;
            self.check(slot, &output)?;
            taken.push(Some(output));
        }
        Ok(taken)
    }
}

impl GraphOutput for TorchOutput {
    fn datatype(&self) -> DataType {
        self.datatype()
    }

    fn shape(&self) -> &[i64] {
        self.shape()
    }
}

impl From<TorchError> for LibraryFailure {
    fn from(TorchError { code, message }: TorchError) -> Self {
        Self { library: "pytorch", code, message }
    }
}

fn shape<'a>(feed: InputFeed<'a>) -> &'a [i64] {
    match feed {
        FeedValue::Host { shape, .. }
        | FeedValue::Foreign { shape, .. }
        | FeedValue::Strings { shape, .. } => shape,
    }
}

fn datatype(feed: InputFeed<'_>) -> DataType {
    match feed {
        FeedValue::Host { datatype, .. } | FeedValue::Foreign { datatype, .. } => *datatype,
        FeedValue::Strings { strings, .. } => match *strings {},
    }
}

/// The bytes of an input. Foreign memory, which may change, is read once.
fn content<'a>(feed: InputFeed<'a>) -> Result<Cow<'a, [u8]>, TorchError> {
    match feed {
        FeedValue::Host { bytes, .. } => Ok(Cow::Borrowed(bytes)),
        FeedValue::Foreign { memory, .. } => {
            let read = memory.read();
            read.map(Cow::Owned).map_err(|error| TorchError::invalid_argument(error.message))
        }
        FeedValue::Strings { strings, .. } => match *strings {},
    }
}
