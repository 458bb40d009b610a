//! What to measure, and how long.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::arguments::Arguments;
use crate::build::Build;

/// The options of the command.
#[derive(Clone)]
pub(crate) struct BenchOptions {
    /// The `site-packages` folder with Triton; `None`: Triton is not measured.
    pub(super) reference: Option<PathBuf>,
    /// An earlier build of Nereid to compare with.
    pub(super) before: Option<PathBuf>,
    /// The build of Nereid to measure; `None`: one is built.
    server: Option<PathBuf>,
    /// Bare hyper is measured, too: the limit of a server of small requests.
    pub(super) limit: bool,
    pub(super) rounds: usize,
    pub(super) seconds: u32,
    /// The only part to measure.
    pub(super) only: Option<BenchPart>,
    /// What the names of the measured rows contain.
    pub(super) filter: String,
}

/// A part of the benchmark.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum BenchPart {
    Load,
    Adversary,
    Reload,
    Ensemble,
    Cache,
    Observe,
    SharedMemory,
    Python,
    Tune,
    Promises,
    Growth,
    Replicas,
    Peers,
    Frameworks,
    Processors,
    Instructions,
    Micro,
}

/// All parts in the order in which they are measured, and their names for `--only`.
pub(super) const PARTS: [(&str, BenchPart); 17] = [
    ("load", BenchPart::Load),
    ("adversary", BenchPart::Adversary),
    ("reload", BenchPart::Reload),
    ("ensemble", BenchPart::Ensemble),
    ("cache", BenchPart::Cache),
    ("observe", BenchPart::Observe),
    ("shm", BenchPart::SharedMemory),
    ("python", BenchPart::Python),
    ("tune", BenchPart::Tune),
    ("promises", BenchPart::Promises),
    ("growth", BenchPart::Growth),
    ("replicas", BenchPart::Replicas),
    ("peers", BenchPart::Peers),
    ("frameworks", BenchPart::Frameworks),
    ("processors", BenchPart::Processors),
    ("instructions", BenchPart::Instructions),
    ("micro", BenchPart::Micro),
];

impl BenchPart {
    fn named(name: &str) -> Result<BenchPart> {
        let Some((_, part)) = PARTS.iter().find(|(known, _)| *known == name) else {
            let [others @ .., (last, _)] = PARTS;
            let others = others.map(|(known, _)| known).join(", ");
            bail!("--only is {others} or {last}, not '{name}'")
        };
        Ok(*part)
    }
}

impl BenchOptions {
    pub(crate) fn parse(mut arguments: Arguments) -> Result<BenchOptions> {
        let only: Option<String> = arguments.value("--only")?;
        let options = BenchOptions {
            reference: arguments.value("--reference")?,
            before: arguments.value("--before")?,
            server: arguments.value("--server")?,
            limit: arguments.flag("--limit"),
            rounds: arguments.value("--rounds")?.unwrap_or(3).max(1),
            seconds: arguments.value("--seconds")?.unwrap_or(3).max(1),
            only: only.as_deref().map(BenchPart::named).transpose()?,
            filter: arguments.value("--filter")?.unwrap_or_default(),
        };
        arguments.finish()?;
        Ok(options)
    }

    /// Whether a row or a part of this name is to be measured.
    pub(super) fn wants(&self, name: &str) -> bool {
        name.contains(&self.filter)
    }

    /// The build to measure, which is made unless it was named.
    pub(super) fn server(&self) -> Result<PathBuf> {
        match &self.server {
            Some(binary) => Ok(binary.clone()),
            None => Build::Release.server(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<BenchOptions> {
        BenchOptions::parse(Arguments::new(line.split_whitespace().map(str::to_owned)))
    }

    #[test]
    fn a_part_is_chosen_by_its_name_and_a_wrong_name_is_answered_with_all() {
        assert!(parse("--only shm").unwrap().only == Some(BenchPart::SharedMemory));
        assert!(parse("").unwrap().only.is_none());
        let error = parse("--only bogus").err().unwrap().to_string();
        assert!(error.starts_with("--only is load, adversary, reload, "), "{error}");
        assert!(
            error.ends_with(
                ", growth, replicas, peers, frameworks, processors, instructions or micro, not 'bogus'"
            ),
            "{error}"
        );
    }
}
