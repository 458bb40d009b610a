//! The backend `image`: it decodes and scales pictures.
//!
//! A model of this backend has one input, an encoded picture (PNG or JPEG) in each row, and one output, a tensor of a
//! fixed size. `settings` reads the configuration, `decode` turns the bytes of a picture into pixels, `scale` gives the
//! pixels the size of the output, `layout` writes them in the order and the datatype of the output, and `instance`
//! does these steps for a batch.
//!
//! Pictures come from clients, so `decode` bounds the memory and the time of each. The crate has no codec of its own,
//! and no part of the network.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod decode;
mod instance;
mod layout;
mod model;
mod parameters;
mod scale;
mod settings;

pub use model::ImageBackend;
