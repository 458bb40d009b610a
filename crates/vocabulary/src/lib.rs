//! The words of all crates: errors, names, datatypes, shapes, tensors, the memory of tensors, budgets of bytes, and
//! what identifies a file.
//!
//! The crates of the server use these types. This crate knows nothing: no request, no model, no configuration, no protocol. It
//! contains no I/O and no clock, and starts no threads.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod byte_budget;
mod error;
mod error_causes;
mod file_identity;
mod label_name;
pub mod log_target;
mod name;
mod name_index;
mod parameter;
mod tensor;
mod tensor_memory;

pub use byte_budget::{
    BudgetExceeded, ByteBudget, ByteReservation, FEW_BYTES, REQUEST_BYTES, require_memory,
};
pub use error::{Error, ErrorCode, FailureReason, panic_message};
pub use error_causes::{innermost_cause, with_causes};
pub use file_identity::FileIdentity;
pub use label_name::LabelName;
pub use name::{MAX_STORED_NAME, Name, check_length};
pub use name_index::{NameIndex, NameList};
pub use parameter::{Parameter, Parameters};
pub use tensor::{DataType, Shape, ShapeError, Tensor, bytes_elements, element_count, shape_text};
pub use tensor_memory::{
    DeviceMemory, DeviceRange, ForeignMemory, ForeignRegion, MemoryKind, TensorData, TensorMemory, initialise,
};
