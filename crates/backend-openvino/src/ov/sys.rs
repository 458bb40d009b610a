//! The part of OpenVINO's C interface that this crate uses: its types, and the table of its functions.
//!
//! The declarations follow the headers `openvino/c/*.h` of the releases 2025.2 to 2026.4. Types have the names of the
//! headers, and belong to this interface only. The library is opened at run time, so nothing is linked.
#![expect(non_camel_case_types, reason = "the names of the C interface")]
use std::ffi::{c_char, c_int, c_void};

use libloading::Library;

/// `ov_status_e`. It is a number, because a newer library may have more codes.
pub(super) type ov_status = c_int;

/// `ov_element_type_e`. Releases differ in its numbers.
pub(super) type ov_element_type = u32;

/// A successful call.
pub(super) const OK: ov_status = 0;

/// `INVALID_C_PARAM`: the C interface itself refuses an argument.
pub(super) const INVALID_ARGUMENT: ov_status = -14;

/// Values of types that only the library knows.
macro_rules! opaque {
    ($($name:ident)*) => {
        $(
            #[doc = concat!("`", stringify!($name), "_t`, which only the library knows.")]
            #[repr(C)]
            pub(super) struct $name {
                _private: [u8; 0],
            }
        )*
    };
}

opaque! { ov_core ov_model ov_compiled_model ov_infer_request ov_tensor ov_output_const_port }

/// The release of the library. Both texts belong to the library and are freed by `ov_version_free`.
#[repr(C)]
pub(super) struct ov_version {
    pub(super) build_number: *const c_char,
    pub(super) description: *const c_char,
}

/// The shape of a tensor.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ov_shape {
    pub(super) rank: i64,
    pub(super) dims: *mut i64,
}

/// A dimension, or a rank, by its limits. It is known if they are equal.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ov_dimension {
    pub(super) min: i64,
    pub(super) max: i64,
}

/// The shape of an input or output, which may be open.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ov_partial_shape {
    pub(super) rank: ov_dimension,
    pub(super) dims: *mut ov_dimension,
}

/// The number of arguments that the variadic functions get here. The library reads only as many as it is told.
pub(super) const PROPERTY_ARGUMENTS: usize = 32;

/// The library lacks a function.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MissingFunction(pub(super) &'static str);

/// Declares the table, and how it is filled: one symbol for each field, of the field's name and type.
macro_rules! function_table {
    ($($name:ident: $kind:ty;)*) => {
        /// The functions of an opened library by their names. They may be called while the library is open.
        pub(super) struct FunctionTable {
            $(pub(super) $name: $kind,)*
        }

        impl FunctionTable {
            /// Looks up all functions.
            pub(super) fn of(library: &Library) -> Result<Self, MissingFunction> {
                Ok(Self {
                    $($name: {
                        let symbol = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the symbol has this type in every release that the head of this file names.
                        let found = unsafe { library.get::<$kind>(symbol) };
                        *found.map_err(|_| MissingFunction(stringify!($name)))?
                    },)*
                })
            }
        }
    };
}

/// Describes an input or output of a graph or a compiled model.
pub(super) type PortFunction<T> =
    unsafe extern "C" fn(*const T, usize, *mut *mut ov_output_const_port) -> ov_status;
/// Counts inputs or outputs.
pub(super) type PortCountFunction<T> = unsafe extern "C" fn(*const T, *mut usize) -> ov_status;
/// Gives a request a tensor.
type SetTensorFunction = unsafe extern "C" fn(*mut ov_infer_request, usize, *const ov_tensor) -> ov_status;
/// Finds an input or output by its name.
pub(super) type NamedPortFunction =
    unsafe extern "C" fn(*const ov_model, *const c_char, *mut *mut ov_output_const_port) -> ov_status;

function_table! {
    ov_get_openvino_version: unsafe extern "C" fn(*mut ov_version) -> ov_status;
    ov_version_free: unsafe extern "C" fn(*mut ov_version);
    ov_get_error_info: unsafe extern "C" fn(ov_status) -> *const c_char;
    ov_get_last_err_msg: unsafe extern "C" fn() -> *const c_char;
    ov_free: unsafe extern "C" fn(*const c_char);

    ov_core_create: unsafe extern "C" fn(*mut *mut ov_core) -> ov_status;
    ov_core_free: unsafe extern "C" fn(*mut ov_core);
    ov_core_set_property: unsafe extern "C" fn(*const ov_core, *const c_char, ...) -> ov_status;
    ov_core_add_extension: unsafe extern "C" fn(*const ov_core, *const c_char) -> ov_status;
    ov_core_read_model:
        unsafe extern "C" fn(*const ov_core, *const c_char, *const c_char, *mut *mut ov_model) -> ov_status;
    ov_core_read_model_from_memory_buffer: unsafe extern "C" fn(
        *const ov_core,
        *const c_char,
        usize,
        *const ov_tensor,
        *mut *mut ov_model,
    ) -> ov_status;
    ov_core_compile_model: unsafe extern "C" fn(
        *const ov_core,
        *const ov_model,
        *const c_char,
        usize,
        *mut *mut ov_compiled_model,
        ...
    ) -> ov_status;

    ov_model_free: unsafe extern "C" fn(*mut ov_model);
    ov_model_inputs_size: PortCountFunction<ov_model>;
    ov_model_outputs_size: PortCountFunction<ov_model>;
    ov_model_const_input_by_index: PortFunction<ov_model>;
    ov_model_const_output_by_index: PortFunction<ov_model>;
    ov_model_const_input_by_name: NamedPortFunction;
    ov_model_const_output_by_name: NamedPortFunction;
    ov_model_reshape_by_port_indexes:
        unsafe extern "C" fn(*const ov_model, *const usize, *const ov_partial_shape, usize) -> ov_status;

    ov_port_get_any_name: unsafe extern "C" fn(*const ov_output_const_port, *mut *mut c_char) -> ov_status;
    ov_port_get_partial_shape:
        unsafe extern "C" fn(*const ov_output_const_port, *mut ov_partial_shape) -> ov_status;
    ov_port_get_element_type:
        unsafe extern "C" fn(*const ov_output_const_port, *mut ov_element_type) -> ov_status;
    ov_output_const_port_free: unsafe extern "C" fn(*mut ov_output_const_port);
    ov_partial_shape_free: unsafe extern "C" fn(*mut ov_partial_shape);

    ov_compiled_model_free: unsafe extern "C" fn(*mut ov_compiled_model);
    ov_compiled_model_inputs_size: PortCountFunction<ov_compiled_model>;
    ov_compiled_model_outputs_size: PortCountFunction<ov_compiled_model>;
    ov_compiled_model_input_by_index: PortFunction<ov_compiled_model>;
    ov_compiled_model_output_by_index: PortFunction<ov_compiled_model>;
    ov_compiled_model_get_property:
        unsafe extern "C" fn(*const ov_compiled_model, *const c_char, *mut *mut c_char) -> ov_status;
    ov_compiled_model_create_infer_request:
        unsafe extern "C" fn(*const ov_compiled_model, *mut *mut ov_infer_request) -> ov_status;

    ov_infer_request_free: unsafe extern "C" fn(*mut ov_infer_request);
    ov_infer_request_set_input_tensor_by_index: SetTensorFunction;
    ov_infer_request_set_output_tensor_by_index: SetTensorFunction;
    ov_infer_request_get_output_tensor_by_index:
        unsafe extern "C" fn(*const ov_infer_request, usize, *mut *mut ov_tensor) -> ov_status;
    ov_infer_request_infer: unsafe extern "C" fn(*mut ov_infer_request) -> ov_status;
    ov_infer_request_start_async: unsafe extern "C" fn(*mut ov_infer_request) -> ov_status;
    ov_infer_request_wait: unsafe extern "C" fn(*mut ov_infer_request) -> ov_status;

    ov_tensor_create: unsafe extern "C" fn(ov_element_type, ov_shape, *mut *mut ov_tensor) -> ov_status;
    ov_tensor_create_from_host_ptr:
        unsafe extern "C" fn(ov_element_type, ov_shape, *mut c_void, *mut *mut ov_tensor) -> ov_status;
    ov_tensor_create_from_string_array:
        unsafe extern "C" fn(*mut *const c_char, usize, ov_shape, *mut *mut ov_tensor) -> ov_status;
    ov_tensor_free: unsafe extern "C" fn(*mut ov_tensor);
    ov_tensor_get_shape: unsafe extern "C" fn(*const ov_tensor, *mut ov_shape) -> ov_status;
    ov_tensor_get_byte_size: unsafe extern "C" fn(*const ov_tensor, *mut usize) -> ov_status;
    ov_tensor_data: unsafe extern "C" fn(*const ov_tensor, *mut *mut c_void) -> ov_status;
    ov_shape_free: unsafe extern "C" fn(*mut ov_shape) -> ov_status;
}
