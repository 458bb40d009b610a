//! The backend `python`: it runs models that are written in Python, as they are written for Triton's Python backend.
//!
//! Each instance has a worker: a process of a Python interpreter that runs the modules of `python/`, which the server
//! carries. Server and worker talk over a socket (`wire`, `session`), and large tensors are in memory that both share
//! (`session::area`). The thread of an instance adds batches to an `InstanceQueue`, and the `WorkerSession` takes them to
//! the worker. The thread of a `Supervisor` reads the answers, watches the process, and starts another one when it has
//! ended.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod answering;
mod archives;
mod backend;
mod environment;
mod environment_settings;
mod failure_log;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod inspection;
mod installer_commands;
mod instance;
mod instance_queue;
mod limited_command;
mod model;
mod model_code;
mod model_context;
mod output_rules;
mod pace;
mod process;
mod process_group;
mod process_mark;
mod process_memory;
mod python_modules;
mod pytorch_backend;
mod requirements;
mod restart;
mod restart_counter;
mod sandbox;
mod services;
mod session;
mod settings;
mod spawner;
mod supervisor;
mod virtual_environments;
mod wakeup_fd;
mod wire;
mod worker;
mod worker_output;

pub use backend::PythonBackend;
pub use pytorch_backend::PyTorchBackend;
