//! The part of PyTorch's C interface that this crate uses: its types, and the tables of its functions.
//!
//! The declarations follow the headers `torch/csrc/inductor/aoti_torch/c/shim.h`, `torch/csrc/stable/c/shim.h` and
//! `torch/csrc/inductor/aoti_runtime/interface.h` of the releases 2.9 to 2.15. Everything is opened at run time, so
//! nothing is linked.
#![expect(non_snake_case, reason = "the names of the C interface")]
use std::ffi::{c_char, c_int, c_void};

use libloading::os::unix::Library;

/// `AOTITorchError` and `AOTIRuntimeError`.
pub(super) type TorchStatus = i32;

/// A successful call.
pub(super) const OK: TorchStatus = 0;

/// A failed call.
pub(super) const FAILED: TorchStatus = 1;

/// What `AtenTensorHandle` points to, which only the library knows.
#[repr(C)]
pub(super) struct AtenTensor {
    _private: [u8; 0],
}

/// What `AOTInductorModelContainerHandle` points to, which only the code knows.
#[repr(C)]
pub(super) struct ModelContainer {
    _private: [u8; 0],
}

/// `AtenTensorHandle`.
pub(super) type TensorHandle = *mut AtenTensor;

/// A library lacks a function.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MissingTorchSymbol(pub(super) &'static str);

/// Declares a table, and how it is filled: one symbol for each field, of the field's name and type. The functions of
/// the second list may be missing.
macro_rules! function_table {
    ($(#[$doc:meta])* $table:ident { $($name:ident: $kind:ty;)* } { $($optional:ident: $optional_kind:ty;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $table {
            $(pub(super) $name: $kind,)*
            $(pub(super) $optional: Option<$optional_kind>,)*
        }

        impl $table {
            /// Looks up all functions.
            pub(super) fn of(library: &Library) -> Result<Self, MissingTorchSymbol> {
                Ok(Self {
                    $($name: {
                        let symbol = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the symbol has this type in every release that the head of this file names.
                        let found = unsafe { library.get::<$kind>(symbol) };
                        *found.map_err(|_| MissingTorchSymbol(stringify!($name)))?
                    },)*
                    $($optional: {
                        let symbol = concat!(stringify!($optional), "\0").as_bytes();
                        // SAFETY: as above, where the symbol exists.
                        unsafe { library.get::<$optional_kind>(symbol) }.ok().map(|found| *found)
                    },)*
                })
            }
        }
    };
}

/// Tells a number that the library gives a type.
type NumberFunction = unsafe extern "C" fn() -> i32;

/// Reads a number of a tensor.
type AttributeFunction<T> = unsafe extern "C" fn(TensorHandle, *mut T) -> TorchStatus;

function_table! {
    /// The functions of PyTorch's library by their names. They may be called for the rest of the process.
    TorchFunctions {
        aoti_torch_device_type_cpu: NumberFunction;
        aoti_torch_dtype_bool: NumberFunction;
        aoti_torch_dtype_uint8: NumberFunction;
        aoti_torch_dtype_uint16: NumberFunction;
        aoti_torch_dtype_uint32: NumberFunction;
        aoti_torch_dtype_uint64: NumberFunction;
        aoti_torch_dtype_int8: NumberFunction;
        aoti_torch_dtype_int16: NumberFunction;
        aoti_torch_dtype_int32: NumberFunction;
        aoti_torch_dtype_int64: NumberFunction;
        aoti_torch_dtype_float16: NumberFunction;
        aoti_torch_dtype_bfloat16: NumberFunction;
        aoti_torch_dtype_float32: NumberFunction;
        aoti_torch_dtype_float64: NumberFunction;
        aoti_torch_create_tensor_from_blob: unsafe extern "C" fn(
            *mut c_void,
            i64,
            *const i64,
            *const i64,
            i64,
            i32,
            i32,
            i32,
            *mut TensorHandle,
        ) -> TorchStatus;
        aoti_torch_empty_strided:
            unsafe extern "C" fn(i64, *const i64, *const i64, i32, i32, i32, *mut TensorHandle) -> TorchStatus;
        aoti_torch_copy_: unsafe extern "C" fn(TensorHandle, TensorHandle, i32) -> TorchStatus;
        aoti_torch_delete_tensor_object: unsafe extern "C" fn(TensorHandle) -> TorchStatus;
        aoti_torch_get_data_ptr: AttributeFunction<*mut c_void>;
        aoti_torch_get_dim: AttributeFunction<i64>;
        aoti_torch_get_sizes: AttributeFunction<*mut i64>;
        aoti_torch_get_strides: AttributeFunction<*mut i64>;
        aoti_torch_get_dtype: AttributeFunction<i32>;
        aoti_torch_get_device_type: AttributeFunction<i32>;
    }
    {
        omp_set_num_threads: unsafe extern "C" fn(c_int);
        torch_get_num_threads: unsafe extern "C" fn(*mut u32) -> TorchStatus;
        torch_exception_get_what_without_backtrace: unsafe extern "C" fn() -> *const c_char;
    }
}

function_table! {
    /// The entry points of compiled code by their names. They may be called while the code is open.
    CodeFunctions {
        AOTInductorModelContainerCreateWithDevice:
            unsafe extern "C" fn(*mut *mut ModelContainer, usize, *const c_char, *const c_char) -> TorchStatus;
        AOTInductorModelContainerDelete: unsafe extern "C" fn(*mut ModelContainer) -> TorchStatus;
        AOTInductorModelContainerRun: unsafe extern "C" fn(
            *mut ModelContainer,
            *mut TensorHandle,
            usize,
            *mut TensorHandle,
            usize,
            *mut c_void,
            *mut c_void,
        ) -> TorchStatus;
        AOTInductorModelContainerGetNumInputs: unsafe extern "C" fn(*mut ModelContainer, *mut usize) -> TorchStatus;
        AOTInductorModelContainerGetNumOutputs: unsafe extern "C" fn(*mut ModelContainer, *mut usize) -> TorchStatus;
        AOTInductorModelContainerGetCallSpec:
            unsafe extern "C" fn(*mut ModelContainer, *mut *const c_char, *mut *const c_char) -> TorchStatus;
    }
    {
        AOTInductorGetLastError: unsafe extern "C" fn(*mut *const c_char) -> TorchStatus;
        omp_set_num_threads: unsafe extern "C" fn(c_int);
    }
}
