//! The wrapper against the real library, which `NEREID_OPENVINO_LIBRARY` names: a file, or its folder.
use std::{
    collections::BTreeMap,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use native_backend::LibrarySearch;

use super::*;

mod guarded_pages;
mod models;
mod refusals;
mod runs;
mod threads;

/// The library, opened once for all tests.
fn openvino() -> &'static Arc<OpenVino> {
    static OPENED: OnceLock<Arc<OpenVino>> = OnceLock::new();
    OPENED.get_or_init(|| {
        let named = std::env::var_os("NEREID_OPENVINO_LIBRARY").expect(
            "set NEREID_OPENVINO_LIBRARY to libopenvino_c.so.* or its folder: 'pip install openvino' has it in \
             site-packages/openvino/libs",
        );
        let search = LibrarySearch { named: Some(named.into()), ..LibrarySearch::default() };
        crate::library::open(&search, &BTreeMap::new()).expect("the library opens")
    })
}

/// A model of the folder `tests/models`.
fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models").join(name)
}

fn graph(name: &str) -> ModelGraph {
    ModelGraph::read(openvino(), &path(name)).unwrap()
}

/// A model for one thread.
fn compiled(name: &str) -> Arc<CompiledModel> {
    CompiledModel::compile(&graph(name), &one_thread()).unwrap()
}

fn one_thread() -> CompileOptions {
    CompileOptions::processors(NonZeroUsize::MIN)
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn floats_of(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|value| f32::from_ne_bytes(value.try_into().unwrap())).collect()
}

/// Bytes at an address that any element may have.
struct AlignedBytes(Vec<u64>, usize);

impl AlignedBytes {
    fn of(bytes: &[u8]) -> Self {
        let mut words = vec![0_u64; bytes.len().div_ceil(8).max(1)];
        // SAFETY: the words have at least as many bytes, and any bytes are a word.
        unsafe { words.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Self(words, bytes.len())
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the words have at least as many initialised bytes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.1) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and any bytes are a word.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.1) }
    }
}
