//! `nereid check`: checks model repositories without loading them.
use std::{
    collections::BTreeSet,
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
};

use check::{
    CheckOptions, CheckReport, Severity, all_rules, check_repositories, json, sarif, text, text_with,
};
use inference::Plugins;

use super::streams::{Streams, refuse};
use crate::{
    backend_settings, color,
    options::{self, Invocation, ProcessEnvironment, ResolvedOptions},
};

/// The exit code if nothing stands against the repositories.
pub(super) const FINE: u8 = 0;
/// The exit code if a model has an error, or a repository cannot be read.
pub(super) const HAS_ERRORS: u8 = 1;
/// The exit code if there are warnings, but no errors, and `--strict` is given.
pub(super) const HAS_WARNINGS: u8 = 3;

/// The options of the command itself.
struct CheckFlags {
    is_strict: bool,
    skips_interpreters: bool,
    runs_own_interpreters: bool,
    render: Render,
}

/// A form of the report.
type Render = fn(&CheckReport, bool) -> String;

/// Runs the command. `arguments` are the words after `check`. `plugins` makes the plug-ins of a server with these
/// options. Returns the exit code.
pub(super) fn run(
    arguments: impl Iterator<Item = OsString>,
    environment: &ProcessEnvironment,
    plugins: impl FnOnce(&ResolvedOptions) -> Plugins,
    (out, err): Streams<'_>,
) -> u8 {
    match check(arguments, environment, plugins, err) {
        Ok((text, code)) => {
            // If the reader has closed stdout, the error does not matter.
            let _ = out.write_all(text.as_bytes());
            code
        }
        Err(text) => refuse(&text, "check", err),
    }
}

fn check(
    arguments: impl Iterator<Item = OsString>,
    environment: &ProcessEnvironment,
    plugins: impl FnOnce(&ResolvedOptions) -> Plugins,
    err: &mut dyn Write,
) -> Result<(String, u8), String> {
    let mut flags = CheckFlags {
        is_strict: false,
        skips_interpreters: false,
        runs_own_interpreters: false,
        render: plain_or_colored,
    };
    let mut rest = Vec::new();
    let mut words = arguments;
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--help" | "-h") => return Ok((options::command_usage("check"), FINE)),
            Some("--rules") => return Ok((rules(), FINE)),
            Some("--strict") => flags.is_strict = true,
            Some("--skip-interpreters") => flags.skips_interpreters = true,
            Some("--run-own-interpreters") => flags.runs_own_interpreters = true,
            Some("--format") => {
                let form = words.next().ok_or("option '--format' requires an argument")?;
                flags.render = render(&form.to_string_lossy())?;
            }
            Some(word) if word.starts_with("--format=") => flags.render = render(&word["--format=".len()..])?,
            Some("--") => {
                rest.push(word);
                rest.extend(words.by_ref());
            }
            Some(_) | None => rest.push(word),
        }
    }
    let options = match options::parse_with_repositories(rest, environment) {
        Ok(Invocation::Serve(options)) => options,
        Ok(Invocation::Print(text)) => return Ok((text, FINE)),
        Err(refused) => return Err(refused.explained()),
    };
    options.write_warnings(err);
    let plugins = plugins(&options);
    let repositories = directories(&options, &plugins)?;
    let CheckFlags { skips_interpreters, runs_own_interpreters, .. } = flags;
    let has_colors = options.color.colors(&io::stdout());
    let options = check_options(&options, plugins);
    let options = CheckOptions { skips_interpreters, runs_own_interpreters, ..options };
    let report = check_repositories(&repositories, &options);
    let code = match (report.count(Severity::Error), report.count(Severity::Warning)) {
        (0, 0) => FINE,
        (0, _) if flags.is_strict => HAS_WARNINGS,
        (0, _) => FINE,
        _ => HAS_ERRORS,
    };
    Ok(((flags.render)(&report, has_colors), code))
}

fn render(form: &str) -> Result<Render, String> {
    match form {
        "text" => Ok(plain_or_colored),
        "json" => Ok(|report, _| json(report)),
        "sarif" => Ok(|report, _| sarif(report)),
        other => Err(format!("'--format' is '{other}', which is none of text, json, sarif")),
    }
}

fn plain_or_colored(report: &CheckReport, has_colors: bool) -> String {
    if has_colors { text_with(report, color::emphasis) } else { text(report) }
}

fn rules() -> String {
    all_rules().map(|rule| format!("{:20} {}\n", rule.id, rule.summary)).collect()
}

fn directories(options: &ResolvedOptions, plugins: &Plugins) -> Result<BTreeSet<PathBuf>, String> {
    let paths = &options.repository.paths;
    if paths.is_empty() {
        return Err("name at least one model repository".to_owned());
    }
    let is_remote =
        |path: &&String| plugins.repositories.as_ref().is_some_and(|opener| opener.name(path).is_some());
    match paths.iter().find(is_remote) {
        Some(url) => Err(format!("'{url}' is in an object store, and a check reads directories only")),
        None => Ok(paths.iter().map(|path| Path::new(path).to_path_buf()).collect()),
    }
}

/// What a check must know of a server with these options.
pub(super) fn check_options(options: &ResolvedOptions, plugins: Plugins) -> CheckOptions {
    CheckOptions {
        plugins,
        backend_settings: backend_settings::all(options),
        must_be_complete: !options.repository.auto_complete,
        config_name: options.repository.config_name.clone(),
        gpu_groups_on_cpu: options.repository.load_policy.gpu_groups_on_cpu,
        has_cache: options.cache.is_some(),
        namespacing: options.repository.namespacing,
        skips_interpreters: false,
        runs_own_interpreters: false,
        agent_directory: options.repository.agent_directory.clone(),
    }
}
