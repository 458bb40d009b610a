//! Tensors in a message to a worker.
use smallvec::SmallVec;
use vocabulary::{Error, Tensor};

use crate::{session::worker_session::WorkerSession, wire::frames::FrameWriter};

/// Larger tensors are in the area that server and worker share. Smaller ones are in the message.
const INLINE_BYTES: usize = 16 << 10;

/// Where a message has a tensor.
#[derive(Debug, Clone, Copy)]
enum TensorLocation {
    Inline(usize),
    Area(usize),
}

/// The places of tensors in a message that is being written.
pub(crate) struct PlacedTensors(SmallVec<[TensorLocation; 2]>);

impl PlacedTensors {
    /// Puts tensors where the worker can read them.
    ///
    /// # Errors
    /// That of the first tensor that has no room, or cannot be read. Then the worker gets none of them.
    pub(crate) fn put(
        session: &WorkerSession,
        frame: &mut FrameWriter,
        tensors: &[Tensor],
    ) -> Result<Self, Error> {
        let mut placed = Self(SmallVec::new());
        for tensor in tensors {
            match place(session, frame, tensor) {
                Ok(place) => placed.0.push(place),
                Err(error) => {
                    let mut outbox = session.outbox();
                    for place in placed.0 {
                        if let TensorLocation::Area(offset) = place {
                            outbox.inputs.give_back(offset);
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(placed)
    }

    /// Writes the tuple of the tensors.
    pub(crate) fn write(&self, frame: &mut FrameWriter, tensors: &[Tensor]) {
        let header = &mut frame.header;
        header.tuple(tensors.len());
        for (tensor, place) in tensors.iter().zip(&self.0) {
            header.tuple(6);
            header.str(tensor.name());
            header.str(tensor.datatype().protocol_name());
            header.tuple(tensor.shape().len());
            tensor.shape().iter().for_each(|dim| header.int(*dim));
            let (is_in_area, offset) = match *place {
                TensorLocation::Inline(offset) => (false, offset),
                TensorLocation::Area(offset) => (true, offset),
            };
            header.bool(is_in_area);
            header.size(offset);
            header.size(tensor.byte_size());
        }
    }
}

fn place(session: &WorkerSession, frame: &mut FrameWriter, tensor: &Tensor) -> Result<TensorLocation, Error> {
    if tensor.byte_size() > INLINE_BYTES {
        return session.put(tensor).map(TensorLocation::Area);
    }
    let data = tensor.host()?;
    Ok(TensorLocation::Inline(frame.append(data.pieces().iter().map(AsRef::as_ref))))
}
