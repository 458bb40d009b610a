//! `cargo xtask dist`: packages that install the server without a compiler: a Python wheel, a Debian package, an archive
//! with everything, and a container image.

mod archive;
mod command;
mod contents;
mod debian_package;
mod image;
mod licences;
mod sbom;
mod wheel;

pub(crate) use command::{DistOptions, run};
