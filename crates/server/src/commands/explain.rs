//! `nereid explain`: asks a running server what its models do, and prints it for people.
use std::ffi::OsString;

use anyhow::{Context, Result, anyhow, bail};
use client::fetch::ServerAddress;
use proto::text::printable;
use serde_json::Value;

use super::streams::{Streams, fail, refuse};
use crate::options;

/// The exit code if the server has answered.
const ANSWERED: u8 = 0;
/// A line of text has so many characters.
const WIDTH: usize = 100;

/// What the command line asks for.
#[derive(Debug)]
struct ExplainArguments {
    server: ServerAddress,
    model: Option<String>,
    version: Option<String>,
    is_json: bool,
}

/// Runs the command. `arguments` are the words after `explain`. Returns the exit code.
pub(super) fn run(arguments: impl Iterator<Item = OsString>, (out, err): Streams<'_>) -> u8 {
    let wanted = match parse(arguments) {
        Ok(Some(wanted)) => wanted,
        Ok(None) => {
            // If the reader has closed stdout, the error does not matter.
            let _ = out.write_all(options::command_usage("explain").as_bytes());
            return ANSWERED;
        }
        Err(error) => return refuse(&format!("{error:#}"), "explain", err),
    };
    match answer(&wanted) {
        Ok(text) => {
            let _ = out.write_all(text.as_bytes());
            ANSWERED
        }
        Err(error) => fail(format_args!("{error:#}"), err),
    }
}

/// `None` if the help is asked for.
fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<ExplainArguments>> {
    let mut words = Vec::new();
    let mut named = None;
    let (mut url, mut trusted, mut headers, mut is_json) =
        ("localhost:8000".to_owned(), None, Vec::new(), false);
    let mut arguments = arguments
        .map(|word| word.into_string().map_err(|word| anyhow!("'{}' is no UTF-8", word.to_string_lossy())));
    while let Some(word) = arguments.next().transpose()? {
        let (option, attached) = match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        let mut value = || match attached.clone() {
            Some(value) => Ok(value),
            None => arguments.next().unwrap_or_else(|| bail!("option '{option}' requires an argument")),
        };
        match option {
            "--help" | "-h" => return Ok(None),
            "--json" => is_json = true,
            "--url" | "-u" => url = value()?,
            "--model" | "-m" => named = Some(value()?),
            "--ca-certificates" => trusted = Some(value()?.into()),
            "--header" | "-H" => {
                let header = value()?;
                let (name, value) = header.split_once(':').context("a header has the form 'name: value'")?;
                headers.push((name.trim().to_owned(), value.trim().to_owned()));
            }
            option if option.starts_with('-') => bail!("unknown option '{option}'"),
            _ => words.push(word),
        }
    }
    let mut words = named.into_iter().chain(words);
    let (model, version) = (words.next(), words.next());
    if let Some(more) = words.next() {
        bail!("'{more}' is too much: a model and a version are enough");
    }
    if let Some(version) = version.as_ref().filter(|text| !text.bytes().all(|byte| byte.is_ascii_digit())) {
        bail!("'{version}' is no version of a model: a version is a whole number");
    }
    let server = ServerAddress { trusted, headers, ..ServerAddress::parse(&url)? };
    Ok(Some(ExplainArguments { server, model, version, is_json }))
}

fn answer(wanted: &ExplainArguments) -> Result<String> {
    let path = match (&wanted.model, &wanted.version) {
        (None, _) => vec!["v2", "explain"],
        (Some(model), None) => vec!["v2", "models", model, "explain"],
        (Some(model), Some(version)) => vec!["v2", "models", model, "versions", version, "explain"],
    };
    let body = wanted.server.get(&path).map_err(|error| match error.to_string().as_str() {
        // A path without a route. A model that the server does not know is named by the server itself.
        "404 Not Found" | "404 " => anyhow!(
            "the server has no /{}: it is another server than Nereid, or was started with --allow-status-page=false",
            path.join("/")
        ),
        _ => error,
    })?;
    let answer: Value = serde_json::from_slice(&body).context("the answer is not JSON")?;
    if wanted.is_json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&answer)?));
    }
    Ok(text(&answer, &wanted.server.host))
}

/// Tells of models that are loaded on demand why they are in memory or not.
fn push_model_memory(text: &mut String, memory: &Value) {
    let Some(models) = memory["models"].as_array() else { return };
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let (used, limit) = (number(&memory["used_bytes"]), number(&memory["budget_bytes"]));
    text.push_str(&format!("\nmemory of models: {used} of {limit} bytes\n"));
    for model in models {
        let word = |member: &str| printable(model[member].as_str().unwrap_or_default()).into_owned();
        let (name, place, why, bytes) = (word("name"), word("place"), word("why"), number(&model["bytes"]));
        push_wrapped(text, "  ", "    ", &format!("{name}: {place}, {bytes} bytes: {why}"));
    }
    match number(&memory["models_left_out"]) {
        0 => {}
        left_out => text.push_str(&format!("  {left_out} more models are not shown.\n")),
    }
}

fn text(answer: &Value, host: &str) -> String {
    let word = |value: &Value| printable(value.as_str().unwrap_or_default()).into_owned();
    let models = answer["models"].as_array().map(Vec::as_slice).unwrap_or_default();
    let noun = if models.len() == 1 { "version of a model" } else { "versions of models" };
    let [name, version, own_version] =
        ["name", "version", "nereid_version"].map(|member| word(&answer["server"][member]));
    let left_out = answer["models_left_out"].as_u64().unwrap_or_default();
    let mut text = format!("nereid {own_version} ({name} {version}) at {host}: ");
    match left_out {
        0 => text.push_str(&format!("{} {noun}\n", models.len())),
        _ => text.push_str(&format!(
            "{} of {} versions of models: those that are not ready, and the busiest\n",
            models.len(),
            models.len() as u64 + left_out
        )),
    }
    for model in models {
        let version = model["version"]
            .as_str()
            .map_or_else(String::new, |_| format!(", version {}", word(&model["version"])));
        let namespace = model["namespace"]
            .as_str()
            .map_or_else(String::new, |_| format!(" in {}", word(&model["namespace"])));
        let state =
            model["state"].as_str().map_or_else(|| "not loaded".to_owned(), |_| word(&model["state"]));
        text.push_str(&format!("\n{}{version}{namespace}: {state}\n", word(&model["name"])));
        for finding in model["findings"].as_array().into_iter().flatten() {
            push_wrapped(&mut text, "  ", "  ", &word(&finding["fact"]));
            if finding["advice"].is_string() {
                push_wrapped(&mut text, "    > ", "      ", &word(&finding["advice"]));
            }
        }
    }
    push_model_memory(&mut text, &answer["model_memory"]);
    if left_out > 0 {
        let more = if left_out == 1 { "version is" } else { "versions are" };
        text.push_str(&format!("\n{left_out} more {more} not shown. Name a model to see it.\n"));
    }
    text
}

fn push_wrapped(text: &mut String, first: &str, further: &str, sentence: &str) {
    let mut line = first.to_owned();
    let mut is_empty = true;
    for word in sentence.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = further.to_owned();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    text.push_str(&line);
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(line: &str) -> Result<Option<ExplainArguments>> {
        parse(line.split_terminator('|').map(OsString::from))
    }

    #[test]
    fn options_may_stand_anywhere() {
        let wanted =
            parsed("m|--url=https://h:1|--header|k: v|3|--json|--ca-certificates|f").unwrap().unwrap();
        let short = parsed("3|-u|https://h:1|-H|k: v|-m|m|--json|--ca-certificates|f").unwrap().unwrap();
        assert_eq!(format!("{short:?}"), format!("{wanted:?}"));
        let server = ServerAddress {
            host: "h:1".into(),
            is_encrypted: true,
            trusted: Some("f".into()),
            headers: vec![("k".into(), "v".into())],
        };
        assert_eq!(wanted.server, server);
        assert_eq!((wanted.model.as_deref(), wanted.version.as_deref()), (Some("m"), Some("3")));
        assert!(wanted.is_json && parsed("--help").unwrap().is_none());
    }

    #[test]
    fn wrong_command_lines_are_refused() {
        for line in ["--what", "a|b|c", "--url", "--header|x", "--url|ftp://x", "m|x", "m|-1"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn characters_that_a_terminal_obeys_are_escaped() {
        let answer = json!({ "models": [
            { "name": "a\x1b[1m", "version": "\x1b", "namespace": "\x1b", "state": "\x1b", "findings": [
                { "about": "state", "fact": "\x1b[2J", "advice": "\x1b]0;x\x07" },
            ] },
        ] });
        let text = text(&answer, "h:1");
        assert!(!text.contains(['\x1b', '\x07']), "{text}");
        assert_eq!(text.matches("\\u{1b}").count(), 6, "{text}");
    }

    #[test]
    fn facts_are_sentences_and_advice_stands_below_them() {
        let long = "word ".repeat(30);
        let answer = json!({
            "server": { "name": "triton", "version": "2", "nereid_version": "1" },
            "models": [
                { "name": "a", "version": "1", "state": "READY", "findings": [
                    { "about": "time", "fact": "It is fast.", "advice": long },
                ] },
                { "name": "b", "findings": [] },
            ],
            "models_left_out": 2,
        });
        let text = text(&answer, "h:1");
        let words = |count| vec!["word"; count].join(" ");
        assert_eq!(
            text,
            format!(
                "nereid 1 (triton 2) at h:1: 2 of 4 versions of models: those that are not ready, and the busiest\n\na, version 1: READY\n  It is fast.\n    > {}\n      {}\n\nb: \
                 not loaded\n\n2 more versions are not shown. Name a model to see it.\n",
                words(19),
                words(11)
            )
        );
        assert!(text.lines().all(|line| line.len() <= WIDTH));
    }
}
