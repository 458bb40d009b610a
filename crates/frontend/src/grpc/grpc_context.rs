//! What all connections of the endpoint share.
use engine::Engine;
use vocabulary::{ByteReservation, Error};

use super::{options::GrpcOptions, reflection::Reflection, windows::WindowBudget};
use crate::port::Drain;

/// What the server's budget counts for an open call whose client has sent nothing yet, in bytes: its task, its headers and
/// its stream. An estimate. The number of calls has no other limit for the whole process.
const CALL_BYTES: usize = 4096;

/// The gRPC endpoint without its socket.
pub struct GrpcContext {
    pub(crate) engine: Engine,
    pub(crate) options: GrpcOptions,
    pub(crate) drain: Drain,
    pub(crate) reflection: Reflection,
    pub(super) windows: WindowBudget,
}

impl GrpcContext {
    /// When `drain` begins, the endpoint refuses new calls. `drain` also counts the connections.
    ///
    /// # Errors
    /// INTERNAL: the schema for reflection cannot be used.
    pub fn new(engine: Engine, options: GrpcOptions, drain: Drain) -> Result<Self, Error> {
        let windows = WindowBudget::beside(engine.inflight_bytes().limit());
        Ok(Self { engine, options, drain, reflection: Reflection::new()?, windows })
    }

    /// Counts an open call in the server's budget.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if the budget would be exceeded.
    pub(crate) fn reserve_call(&self) -> Result<ByteReservation, Error> {
        Ok(self.engine.inflight_bytes().reserve(CALL_BYTES)?)
    }
}
