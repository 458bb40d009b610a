//! Options of the model repository.

use engine::ControlMode;

use super::option_spec::{INT_MAX, OptionSpec, OptionValue, boolean, checked, count, flag, integer, text};

pub(super) const REPOSITORY: &[OptionSpec] = &[
    text(
        "model-store",
        |typed, value| _ = typed.repository.paths.insert(value.to_owned()),
        "Another name of --model-repository.",
    ),
    text(
        "model-repository",
        |typed, value| _ = typed.repository.paths.insert(value.to_owned()),
        "A directory of models, or the URL of such a directory in an object store: s3://bucket/path, \
             s3://host:port/bucket/path, gs://bucket/path, as://account/container/path. May be given several times. The \
             server does not serve a model that is in more than one repository.",
    )
    .default_note("the environment variable AIP_STORAGE_URI"),
    boolean(
        "exit-on-error",
        |typed, value| typed.repository.exit_on_error = value,
        "End the process if a model fails to load at startup, or a repository cannot be read. If false, the \
             server serves the other models. If it cannot read a repository, it serves no model, is not live, and \
             answers only metadata requests.",
    )
    .default("true"),
    flag(
        "disable-auto-complete-config",
        |typed| typed.repository.disable_auto_complete = true,
        "Do not complete model configurations. Every model must have a complete configuration.",
    ),
    boolean(
        "strict-readiness",
        |typed, value| typed.repository.strict_readiness = value,
        "If true, the server is ready only when all its models are ready. If false, the server is ready as soon \
             as it answers requests.",
    )
    .default("true"),
    checked(
        "model-control-mode",
        "none|poll|explicit",
        |typed, value| {
            typed.repository.control_mode = match value.to_ascii_lowercase().as_str() {
                "none" => ControlMode::None,
                "poll" => ControlMode::Poll,
                "explicit" => ControlMode::Explicit,
                _ => return Err("invalid argument for --model-control-mode".into()),
            };
            Ok(())
        },
        "Which models the server loads. 'none': all models, once, at startup. 'poll': also models that change in \
             the repository later. 'explicit': the models of --load-model at startup, and later the models of the \
             clients' repository calls.",
    )
    .default("none"),
    integer(
        "repository-poll-secs",
        |typed, value| typed.repository.poll_secs = value,
        "The interval at which the server looks for changes with --model-control-mode=poll, in seconds. 0: the server \
             looks once, at startup. No effect in the other modes.",
    )
    .default("15"),
    text(
        "load-model",
        |typed, value| _ = typed.repository.load_models.insert(value.to_owned()),
        "A model to load at startup with --model-control-mode=explicit. '*': all models. May be given \
             several times.",
    ),
    checked(
        "model-config-name",
        "string",
        |typed, value| {
            if value.is_empty() {
                return Err("Error: empty argument for --model-config-name".into());
            }
            typed.repository.config_name = Some(value.to_owned());
            Ok(())
        },
        "Use <model>/configs/<name>.pbtxt instead of <model>/config.pbtxt in every model that has this file.",
    ),
    OptionSpec::new(
        "model-load-thread-count",
        OptionValue::Integer(1, INT_MAX, |typed, value| typed.repository.load_thread_count = value),
        "How many models the server loads at the same time. At least 1.",
    )
    .default("4"),
    count(
        "model-load-retry-count",
        |typed, value| typed.repository.load_retry_count = value,
        "How many times the server repeats a failed load of a model.",
    )
    .default("0"),
    boolean(
        "allow-load-overrides",
        |typed, value| typed.repository.allow_overrides = value,
        "Take a configuration and files ('config' and 'file:<path>') with a load of a model, over HTTP, gRPC and the C API. \
         If false, models are loaded only as they are in the repository.",
    )
    .default("true"),
    boolean(
        "model-namespacing",
        |typed, value| typed.repository.namespacing = value,
        "Allow models of the same name in different repositories.",
    )
    .default("false"),
];
