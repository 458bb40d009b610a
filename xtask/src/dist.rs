//! `cargo xtask dist`: packages that install the server without a compiler: a Python wheel, a Debian package, an archive
//! with everything, a container image, and a Helm chart for it.

mod archive;
mod chart;
mod command;
mod contents;
mod debian_package;
mod image;
mod licences;
mod sbom;
mod wheel;

pub(crate) use chart::make_chart;
pub(crate) use command::{DistOptions, run};
