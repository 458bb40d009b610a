//! The backend `python`: it runs models that are written in Python, as they are written for Triton's Python backend.
//!
//! Each instance has a worker: a process of a Python interpreter that runs the modules of `python/`, which the server
//! carries. Server and worker talk over a socket (`frames`, `marshal`, `messages`), and large tensors are in memory that
//! both share (`area`). The thread of an instance adds batches to an `InstanceQueue`, and the `WorkerSession` takes them to
//! the worker. The thread of a `Supervisor` reads the answers, watches the process, and starts another one when it has
//! ended.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod alarm;
mod answers;
mod archives;
mod area;
mod backend;
mod batches;
mod calls;
mod environment;
mod environment_settings;
mod failure_log;
mod frames;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod health;
mod inbox;
mod inference_requests;
mod inferences;
mod inspection;
mod installer_commands;
mod instance;
mod instance_queue;
mod limited_command;
mod marshal;
mod messages;
mod model;
mod model_context;
mod model_metrics;
mod model_services;
mod outbox;
mod output_rules;
mod outputs;
mod pace;
mod placed_tensors;
mod process;
mod process_group;
mod process_mark;
mod python_modules;
mod question_threads;
mod questions;
mod ranges;
mod readiness;
mod reading;
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
mod watch;
mod worker;

pub use backend::PythonBackend;
