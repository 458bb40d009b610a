//! Regions of shared memory that clients register, so that tensors need not pass through a socket.
//!
//! [`ClientRegions`] is the table of all regions of the process. The rules of the table are pure (`table`). `object`
//! opens the shared memory objects of the system, and `mapping` maps them. The objects belong to clients, who may write
//! them at any time and make them smaller at any time. `bus_errors` therefore catches the fault of an access beyond the
//! end of an object: the request fails, and the process goes on.
#![deny(missing_docs)]

mod bus_errors;
mod client_regions;
mod mapping;
mod object;
mod region;
mod registration;
mod table;

pub use client_regions::{ClientRegions, SharedMemoryOptions};
pub use registration::{CudaRegistration, SystemRegistration};
pub use table::{RegionKind, RegionLimits, RegionOrigin, RegionStatus};
