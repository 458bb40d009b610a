//! What a backend implements for its library: a loaded graph that runs, and the values that go in and come out.
use std::ops::Range;

use smallvec::SmallVec;
use vocabulary::{DataType, Error, FailureReason, ForeignMemory, Shape};

use crate::Signature;

/// A loaded graph, which one instance runs.
pub trait Graph: Send + 'static {
    /// An output of a run.
    type Output: GraphOutput;
    /// A tensor of strings for a run; [`NoStrings`] if the library has none.
    type Strings: StringTensor;

    /// The inputs and outputs of the graph.
    fn signature(&self) -> &Signature;

    /// A tensor of that shape with empty strings. Only called for inputs of BYTES.
    ///
    /// # Errors
    /// Those of the library.
    fn strings(&self, shape: &[i64]) -> Result<Self::Strings, LibraryFailure>;

    /// Computes the outputs in those slots, which ascend, and returns them in the same order. Blocks.
    ///
    /// `places` has an entry for each of them. The library should write an output into its place, and return `None` for
    /// it. A library that cannot do so returns the output, and nothing of the place counts.
    ///
    /// # Errors
    /// Those of the library; also if an output has another shape than its place expects. The places may have been
    /// written then. The graph stays usable: it runs again without places.
    fn run(
        &mut self,
        feeds: &[Feed<'_, Self::Strings>],
        wanted: &[usize],
        places: &[Option<ExpectedOutput>],
    ) -> Result<RunOutputs<Self::Output>, LibraryFailure>;
}

/// The outputs of a run; `None` for those in their places.
pub type RunOutputs<O> = SmallVec<[Option<O>; 4]>;

/// A tensor for one input of a run.
#[derive(Debug)]
pub struct Feed<'a, S> {
    /// Position among [`Signature::feeds`].
    pub slot: usize,
    /// The tensor.
    pub value: FeedValue<'a, S>,
}

/// The elements of an input. A shape without dimensions is that of a scalar.
#[derive(Debug)]
pub enum FeedValue<'a, S> {
    /// Bytes that nobody changes during the run: as many as datatype and shape need, aligned to the size of an element.
    Host {
        /// A datatype whose elements have a fixed size.
        datatype: DataType,
        /// The shape of the whole batch.
        shape: Shape,
        /// The elements, row-major and little-endian.
        bytes: &'a [u8],
    },
    /// Foreign memory that the library may use in place. Size and address are as for [`FeedValue::Host`].
    Foreign {
        /// A datatype whose elements have a fixed size.
        datatype: DataType,
        /// The shape of the whole batch.
        shape: Shape,
        /// The elements, row-major and little-endian.
        memory: &'a ForeignMemory,
    },
    /// Strings, which [`Graph::strings`] has made for that shape.
    Strings {
        /// The shape of the whole batch.
        shape: Shape,
        /// The strings.
        strings: S,
    },
}

/// An output whose memory and shape are known before the run.
#[derive(Debug)]
pub struct ExpectedOutput {
    /// A datatype whose elements have a fixed size.
    pub datatype: DataType,
    /// The shape that the output should have.
    pub shape: Shape,
    /// As many bytes as datatype and shape need, aligned to the size of an element. The library may use them in place.
    pub memory: ForeignMemory,
}

/// A tensor of strings under construction.
pub trait StringTensor {
    /// Sets the length of the string at `index` to `len` bytes, and returns the bytes for writing.
    ///
    /// # Errors
    /// An index beyond the shape, and those of the library.
    fn string(&mut self, index: usize, len: usize) -> Result<&mut [u8], LibraryFailure>;
}

/// Strings in memory of the server, for a library that takes them by their addresses.
impl StringTensor for Vec<Vec<u8>> {
    fn string(&mut self, index: usize, len: usize) -> Result<&mut [u8], LibraryFailure> {
        let count = self.len();
        let string = self
            .get_mut(index)
            .ok_or_else(|| LibraryFailure::of_server(format!("string {index} of {count}")))?;
        string.resize(len, 0);
        Ok(string)
    }
}

/// The strings of a library that has no strings.
#[derive(Debug)]
pub enum NoStrings {}

impl StringTensor for NoStrings {
    fn string(&mut self, _: usize, _: usize) -> Result<&mut [u8], LibraryFailure> {
        match *self {}
    }
}

/// An output of a run. Its bytes are those of its elements, row-major and little-endian; none for strings.
///
/// Invariant: nobody writes to it any more, so any thread may read it. Dropping it frees its memory.
pub trait GraphOutput: AsRef<[u8]> + Send + Sync + 'static {
    /// Element type.
    fn datatype(&self) -> DataType;

    /// Dimensions; none for a scalar.
    fn shape(&self) -> &[i64];

    /// Bytes of all strings with their lengths, as [`GraphOutput::append_strings`] writes them. Only called for outputs
    /// of BYTES.
    ///
    /// # Errors
    /// Those of the library.
    fn strings_len(&self) -> Result<usize, LibraryFailure> {
        Ok(0)
    }

    /// Appends the strings at those positions, each after its length, in the form of the protocols. Only called for
    /// outputs of BYTES.
    ///
    /// # Errors
    /// Positions beyond the shape, strings of 4 GiB or more, and those of the library.
    fn append_strings(&self, positions: Range<usize>, target: &mut Vec<u8>) -> Result<(), LibraryFailure> {
        let _ = (positions, target);
        Err(LibraryFailure::of_server("an output of numbers has no strings"))
    }
}

/// A failed call of a library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{library} error {code}: {message}")]
pub struct LibraryFailure {
    /// The library's name in errors, such as `onnx runtime`.
    pub library: &'static str,
    /// The library's code.
    pub code: i32,
    /// The library's message.
    pub message: String,
}

impl LibraryFailure {
    /// A contradiction that the server has found and not a library.
    pub fn of_server(message: impl Into<String>) -> Self {
        Self { library: "native backend", code: 0, message: message.into() }
    }
}

impl From<LibraryFailure> for Error {
    fn from(failure: LibraryFailure) -> Self {
        Self::internal(failure.to_string()).because(FailureReason::Backend)
    }
}
