//! What tests need and a machine may lack: libraries, programs and packages. All are fetched by name, below `target`.
//!
//! What cannot be had fails the step that fetches it. So no test is left out in silence.

mod allocators;
mod cargo_tool;
pub(crate) mod debian;
pub(crate) mod debian_program;
mod examples;
mod npm_package;
mod nvidia;
pub(crate) mod openvino_library;
mod plugins;
pub(crate) mod runtime_library;
mod rust_client;
mod tool;

pub(crate) use cargo_tool::{DENY, NEXTEST};
pub(crate) use tool::{
    BROWSER, CHART, EXAMPLES, FRONTS, MONITORING, NVIDIA, OF_TESTS, OTHERS, PLUGINS, PYTORCH, RAY, RECIPES,
    STORES, Tool, fetch,
};
