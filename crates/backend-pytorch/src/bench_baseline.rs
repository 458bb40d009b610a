//! Runs with and without the wrapper, for benchmarks: what the wrapper costs.
use std::{collections::BTreeMap, fs::File, num::NonZeroUsize, path::Path, sync::Arc};

use native_backend::LibrarySearch;
use smallvec::smallvec;
use vocabulary::{DataType, Error, ForeignMemory};

use crate::{
    archive::PackageArchive,
    library,
    package::{ArchiveKind, CompiledPackage, refused},
    torch::{BareCodeRun, OpenedCode, TorchInput, check_inputs_by_environment},
};

/// A package with one FP32 input and one output, and both ways to run it, with one thread.
pub struct CodeOverhead {
    code: Arc<OpenedCode>,
    bare: BareCodeRun,
    shape: Vec<i64>,
    input: ForeignMemory,
}

impl CodeOverhead {
    /// Opens a package for an input of that shape. The process must have one thread.
    ///
    /// # Errors
    /// A missing library, a missing package, or one that has other inputs and outputs.
    pub fn open(library: &Path, package: &Path, shape: &[i64]) -> Result<Self, Error> {
        check_inputs_by_environment();
        let search = LibrarySearch { named: Some(library.to_owned()), ..LibrarySearch::default() };
        let torch = library::open(&search, &BTreeMap::new())?;
        let failed = |error: std::io::Error| Error::unavailable(format!("{}: {error}", package.display()));
        let archive = PackageArchive::open(File::open(package).map_err(failed)?);
        let ArchiveKind::Compiled(archive) =
            ArchiveKind::of(archive.map_err(|error| refused(package, &error))?)
        else {
            return Err(Error::invalid(format!("'{}' is no package of AOTInductor", package.display())));
        };
        let found = CompiledPackage::of(archive).map_err(|error| refused(package, &error))?;
        let folder = tempfile::tempdir().map_err(failed)?;
        let file = found.write_code(folder.path()).map_err(|error| refused(package, &error))?;
        let code = OpenedCode::open(&torch, &file, NonZeroUsize::MIN)?;
        let bare = BareCodeRun::new(&code, shape)?;
        let bytes = native_backend::byte_count(DataType::Fp32, shape).and_then(ForeignMemory::zeroed);
        let input = bytes.ok_or_else(|| Error::invalid("the input has no size"))?;
        Ok(Self { code, bare, shape: shape.into(), input })
    }

    /// Runs the bare calls that often, over the same tensor.
    ///
    /// # Errors
    /// Those of the library.
    pub fn run_bare(&mut self, rounds: u32) -> Result<(), Error> {
        (0..rounds).try_for_each(|_| Ok(self.bare.run()?))
    }

    /// Runs through the wrapper that often, over the same input.
    ///
    /// # Errors
    /// Those of the library.
    pub fn run_wrapped(&mut self, rounds: u32) -> Result<(), Error> {
        for _ in 0..rounds {
            let input =
                TorchInput::over_foreign(self.code.torch(), DataType::Fp32, &self.shape, &self.input)?;
            let input = input.ok_or_else(|| Error::internal("memory of the heap is aligned"))?;
            self.code.run(smallvec![input], NonZeroUsize::MIN)?;
        }
        Ok(())
    }
}
