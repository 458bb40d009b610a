//! Runs batches: row by row, each request on its own.
use inference::{
    OutputSelection, Request, Response,
    backend::{BackendInstance, Batch},
};
use vocabulary::{Error, FailureReason, Shape, Tensor, bytes_elements};

use crate::{
    decode::{PictureFault, decode, into_grey, into_rgb},
    scale::scale,
    settings::PictureSettings,
};

/// Decodes the pictures of a model, one after the other.
pub(crate) struct PictureInstance {
    settings: PictureSettings,
}

impl PictureInstance {
    pub(crate) fn new(settings: PictureSettings) -> Self {
        Self { settings }
    }

    /// The tensor for all rows of a request. One bad row is an error of the whole request, and of no other request.
    fn answer(&self, request: &Request) -> Result<Response, Error> {
        let PictureSettings { model, input, output, .. } = &self.settings;
        if request.outputs == OutputSelection::Nothing || !request.wants(output) {
            return Ok(Response::default());
        }
        let Some(tensor) = request.input(input) else {
            return Err(Error::invalid(format!("input '{input}' for model '{model}' is missing")));
        };
        let bytes = tensor.host()?.contiguous();
        let rows: Vec<&[u8]> = bytes_elements(&bytes).filter_map(Result::ok).collect();
        let mut shape = Shape::new();
        if self.settings.max_batch_size.is_some() {
            shape.push(i64::try_from(rows.len()).unwrap_or(i64::MAX));
        } else if rows.len() != 1 {
            let text =
                format!("input '{input}' for model '{model}' has {} pictures, expecting 1", rows.len());
            return Err(Error::invalid(text));
        }
        shape.extend_from_slice(&self.settings.dims);
        let mut pixels = Vec::new();
        for (row, encoded) in rows.iter().enumerate() {
            self.append(encoded, &mut pixels)
                .map_err(|fault| self.error(&fault, row, rows.len()).because(FailureReason::Backend))?;
        }
        Ok(Response::of(vec![Tensor::new(output.clone(), self.settings.datatype, shape, pixels)]))
    }

    /// Appends one picture to the bytes of a tensor.
    fn append(&self, encoded: &[u8], tensor: &mut Vec<u8>) -> Result<(), PictureFault> {
        let PictureSettings { layout, resize, values, max_pixels, .. } = &self.settings;
        let picture = decode(encoded, *max_pixels)?;
        let samples = if layout.channels == 1 {
            scale(into_grey(picture), *resize, layout.width, layout.height).into_raw()
        } else {
            scale(into_rgb(picture), *resize, layout.width, layout.height).into_raw()
        };
        values.append(*layout, &samples, tensor);
        Ok(())
    }

    fn error(&self, fault: &PictureFault, row: usize, rows: usize) -> Error {
        let PictureSettings { model, input, max_pixels, .. } = &self.settings;
        let place = if rows > 1 { format!(" in row {} of {rows}", row + 1) } else { String::new() };
        Error::invalid(match fault {
            PictureFault::Unreadable(why) => {
                format!("input '{input}' for model '{model}' is not a PNG or JPEG picture{place}: {why}")
            }
            PictureFault::TooLarge { width, height } => format!(
                "input '{input}' for model '{model}' is a picture of {width} x {height} pixels{place}, but parameter \
                 'MAX_PIXELS' of the model allows {max_pixels} pixels"
            ),
        })
    }
}

impl BackendInstance for PictureInstance {
    fn execute(&mut self, batch: Batch) {
        let Batch { executions, execution_times } = batch;
        execution_times.compute_started();
        let mut answers = Vec::with_capacity(executions.len());
        for execution in executions {
            // A client may go away while the pictures of others are decoded.
            if execution.responder.is_cancelled() {
                execution.cancel();
                continue;
            }
            let answer = self.answer(&execution.request);
            answers.push((execution, answer));
        }
        execution_times.compute_ended();
        for (execution, answer) in answers {
            match answer {
                Ok(response) => execution.complete(response),
                Err(error) => execution.fail(error),
            }
        }
    }
}
