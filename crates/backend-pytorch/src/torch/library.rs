//! The opened library of PyTorch: its functions, and what it calls its types.
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use vocabulary::DataType;

use super::{
    TorchError,
    failure::check,
    stub,
    sys::{self, MissingTorchSymbol, TorchFunctions},
};

/// What compiled code asks the loader for, and does not use.
const UNUSED_LIBRARY: &str = "libtorch.so";

/// The threads of operators. Wheels have it beside PyTorch's library.
const OPENMP: &str = "libgomp";

/// Why a file could not become a [`Torch`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum TorchLoadError {
    /// The loader refuses the file. Contains the loader's message.
    #[error("{0}")]
    Loader(String),
    /// The library is of a release that lacks a function.
    #[error("the library has no function {0}: torch 2.9 or newer is needed")]
    NoFunction(&'static str),
    /// The stub for a library that is not used could not be written.
    #[error("cannot write a temporary file: {0}")]
    Stub(#[from] std::io::Error),
}

impl From<libloading::Error> for TorchLoadError {
    fn from(error: libloading::Error) -> Self {
        Self::Loader(loader_message(&error))
    }
}

/// The loader's message: the text of the error only names the failed call.
pub(super) fn loader_message(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The opened library. It is never closed: it has threads, and destructors of threads.
pub(crate) struct Torch {
    functions: TorchFunctions,
    path: PathBuf,
    release: Option<String>,
    cpu: i32,
    /// The numbers of datatypes, in the order of [`DataType::ALL`]. Strings have none.
    numbers: Vec<Option<i32>>,
}

impl Torch {
    /// Opens the library at `path`, and no library of CUDA that it does not need. Its symbols are invisible to other
    /// libraries of the process.
    pub(crate) fn open(path: &Path) -> Result<Arc<Self>, TorchLoadError> {
        let folder = path.parent().filter(|folder| folder.is_dir());
        // Compiled code takes the OpenMP that is open under the name. With another one it would have threads of its
        // own.
        for openmp in folder.into_iter().flat_map(openmp_libraries) {
            keep_open(&openmp)?;
        }
        // SAFETY: running the initialisers of a shared library is what the operator asks for by installing it; those of
        // PyTorch have no requirements.
        let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }?;
        let functions = TorchFunctions::of(&library)
            .map_err(|MissingTorchSymbol(name)| TorchLoadError::NoFunction(name))?;
        std::mem::forget(library);
        let stubs = tempfile::Builder::new().prefix("nereid-").tempdir()?;
        let stub = stubs.path().join(UNUSED_LIBRARY);
        fs::write(&stub, stub::library(UNUSED_LIBRARY))?;
        keep_open(&stub)?;
        // SAFETY: the functions have no arguments, and tell constants.
        let (cpu, numbers) = unsafe { ((functions.aoti_torch_device_type_cpu)(), numbers(&functions)) };
        let release = folder.and_then(Path::parent).and_then(release);
        Ok(Arc::new(Self { functions, path: path.to_owned(), release, cpu, numbers }))
    }

    /// The file that the library was opened from.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its release, such as `2.15.0+cu132`. Only a Python package tells it.
    pub(crate) fn release(&self) -> &str {
        self.release.as_deref().unwrap_or("of unknown release")
    }

    pub(super) fn functions(&self) -> &TorchFunctions {
        &self.functions
    }

    /// The number of the processor among the kinds of devices.
    pub(super) fn cpu(&self) -> i32 {
        self.cpu
    }

    /// The library's number for a datatype.
    pub(super) fn number(&self, datatype: DataType) -> Result<i32, TorchError> {
        let position = DataType::ALL.iter().position(|&other| other == datatype);
        let number = position.and_then(|position| self.numbers.get(position).copied().flatten());
        number
            .ok_or_else(|| TorchError::invalid_argument(format!("no type for {}", datatype.protocol_name())))
    }

    /// The datatype of a number; `None` if the protocols lack the type.
    pub(super) fn datatype(&self, number: i32) -> Option<DataType> {
        let position = self.numbers.iter().position(|&other| other == Some(number))?;
        Some(DataType::ALL[position])
    }

    /// As [`check`].
    pub(super) fn check(
        &self,
        status: sys::TorchStatus,
        step: impl FnOnce() -> String,
    ) -> Result<(), TorchError> {
        check(&self.functions, status, step)
    }
}

/// Opens a library for the rest of the process.
fn keep_open(path: &Path) -> Result<(), libloading::Error> {
    // SAFETY: as in `Torch::open`.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }?;
    std::mem::forget(library);
    Ok(())
}

fn openmp_libraries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_openmp =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OPENMP));
    entries.map(|entry| entry.path()).filter(is_openmp).collect()
}

/// The release that a Python package of PyTorch tells in `version.py`.
fn release(package: &Path) -> Option<String> {
    let text = fs::read_to_string(package.join("version.py")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
    Some(line.trim().trim_matches(['\'', '"']).to_owned())
}

/// The numbers of datatypes, in the order of [`DataType::ALL`].
///
/// # Safety
/// The functions may be called.
unsafe fn numbers(functions: &TorchFunctions) -> Vec<Option<i32>> {
    let function = |datatype| {
        Some(match datatype {
            DataType::Bool => functions.aoti_torch_dtype_bool,
            DataType::Uint8 => functions.aoti_torch_dtype_uint8,
            DataType::Uint16 => functions.aoti_torch_dtype_uint16,
            DataType::Uint32 => functions.aoti_torch_dtype_uint32,
            DataType::Uint64 => functions.aoti_torch_dtype_uint64,
            DataType::Int8 => functions.aoti_torch_dtype_int8,
            DataType::Int16 => functions.aoti_torch_dtype_int16,
            DataType::Int32 => functions.aoti_torch_dtype_int32,
            DataType::Int64 => functions.aoti_torch_dtype_int64,
            DataType::Fp16 => functions.aoti_torch_dtype_float16,
            DataType::Bf16 => functions.aoti_torch_dtype_bfloat16,
            DataType::Fp32 => functions.aoti_torch_dtype_float32,
            DataType::Fp64 => functions.aoti_torch_dtype_float64,
            DataType::Bytes => return None,
        })
    };
    // SAFETY: as the caller promises; they have no arguments.
    DataType::ALL.iter().map(|&datatype| function(datatype).map(|number| unsafe { number() })).collect()
}
