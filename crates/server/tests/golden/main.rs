//! Every recorded exchange gives the recorded response, or the response in the lists.
//!
//! Each configuration of the recordings has one server. It has the recorded models, with native backends instead of the
//! Python ones. Each exchange uses its own socket, byte for byte, in the recorded order. [`judge`] defines what is
//! compared. The lists are in [`table`]. One of them may only get shorter.
mod expect;
mod judge;
mod replay;
mod scenarios;
#[path = "../support/mod.rs"]
mod support;
mod table;

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
};

use testing::{
    Repository,
    fixtures::Python,
    golden::{self, Record},
};
use tokio::runtime::Runtime;

use replay::{Stage, replay};
use support::Served;
use table::{NOT_BUILT, OTHERWISE, SHOWN_ELSEWHERE};

/// The configurations of the recordings. Each has its own server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Configuration {
    /// All models, no restrictions.
    Plain,
    /// All models, no restrictions, and no earlier request.
    Fresh,
    /// Restricted categories and forwarded headers.
    Restricted,
    /// The endpoints of clouds.
    Clouds,
}

impl Configuration {
    fn of(record: &Record) -> Self {
        match &record.arguments {
            Some(arguments) if arguments.contains("--allow-sagemaker") => Self::Clouds,
            Some(arguments) if arguments.contains("--http-restricted-api") => Self::Restricted,
            Some(_) => Self::Plain,
            // The recording has no arguments, so its name determines the configuration.
            None if record.name.starts_with("gr_") => Self::Restricted,
            None => Self::Fresh,
        }
    }

    /// The recorded arguments, without the arguments for features that the lists name as not built.
    fn arguments(self, records: &[Record]) -> Vec<String> {
        const LEFT_OUT: [&str; 3] = ["--model-control-mode", "--load-model", "--trace-config"];
        let recorded = records
            .iter()
            .filter(|record| Self::of(record) == self)
            .find_map(|record| record.arguments.as_ref());
        let recorded = recorded.map_or("", |arguments| arguments.split(';').next().unwrap_or_default());
        let wanted = recorded
            .split_whitespace()
            .filter(|word| word.starts_with("--") && !LEFT_OUT.iter().any(|option| word.starts_with(option)));
        let mut arguments = vec!["--exit-on-error=false".to_owned(), "--strict-readiness=false".to_owned()];
        arguments.extend(wanted.map(str::to_owned));
        arguments
    }
}

#[derive(Debug, Default)]
struct Tally {
    equal: usize,
    better: usize,
    newer: usize,
    not_built: usize,
    elsewhere: usize,
    complaints: Vec<String>,
}

impl Tally {
    fn count(&mut self, name: &str, result: Result<(), String>) {
        let not_built = table::feature_of(name);
        match (result, not_built) {
            (Ok(()), Some(feature)) => {
                self.complaints
                    .push(format!("{name}: {feature} is built: remove it from the list NOT_BUILT"));
            }
            (Err(_), Some(_)) => self.not_built += 1,
            (Err(difference), None) => self.complaints.push(format!("{name}: {difference}")),
            (Ok(()), None) => match table::difference_of(name) {
                None => self.equal += 1,
                Some(otherwise) if otherwise.id.starts_with('D') => self.newer += 1,
                Some(_) => self.better += 1,
            },
        }
    }
}

#[test]
fn every_recorded_exchange_is_answered_as_recorded_or_as_listed() {
    let repository = Arc::new(Repository::golden().unwrap());
    let runtime = Runtime::new().unwrap();
    let records = golden::records();
    let mut arguments: BTreeMap<_, _> = BTreeMap::new();
    for record in &records {
        let configuration = Configuration::of(record);
        arguments.entry(configuration).or_insert_with(|| configuration.arguments(&records));
    }
    let mut by_configuration = BTreeMap::<_, Vec<Record>>::new();
    for record in records {
        by_configuration.entry(Configuration::of(&record)).or_default().push(record);
    }

    let mut tally = Tally::default();
    for (configuration, records) in by_configuration {
        let arguments: Vec<_> = arguments[&configuration].iter().map(String::as_str).collect();
        let served = Served::start(&repository, &arguments, vec![Arc::new(Python)]);
        for record in records {
            if SHOWN_ELSEWHERE.iter().any(|(prefix, _)| record.name.starts_with(prefix)) {
                tally.elsewhere += 1;
                continue;
            }
            let name = record.name.clone();
            let patches = table::difference_of(&name).map_or(&[][..], |otherwise| otherwise.patches);
            let result = served.as_ref().map_err(Clone::clone).and_then(|served| {
                let stage = Stage { served, repository: repository.path(), runtime: &runtime };
                replay(&expect::patched(record, patches), &stage)
            });
            tally.count(&name, result);
        }
        if let Ok(served) = served {
            served.stop().unwrap();
        }
    }
    let Tally { equal, better, newer, not_built, elsewhere, complaints } = tally;
    // The line goes directly to stderr, so that it is visible although the test passes.
    let _ = writeln!(
        io::stderr(),
        "golden: {equal} equal, {better} better on purpose, {newer} as 2.73, {not_built} not built yet, {elsewhere} shown elsewhere"
    );
    assert!(complaints.is_empty(), "{} exchanges differ:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn the_lists_name_existing_exchanges_once() {
    let known: Vec<_> = golden::records().into_iter().map(|record| record.name).collect();
    let mut listed: Vec<_> = NOT_BUILT.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    for name in &listed {
        assert!(known.iter().any(|known| known == name), "no exchange is named '{name}'");
    }
    listed.sort_unstable();
    assert!(listed.windows(2).all(|pair| pair[0] != pair[1]), "NOT_BUILT names an exchange twice");

    let mut otherwise: Vec<_> = OTHERWISE.iter().map(|otherwise| otherwise.name).collect();
    for name in &otherwise {
        assert!(known.iter().any(|known| known == name), "no exchange is named '{name}'");
    }
    otherwise.sort_unstable();
    assert!(otherwise.windows(2).all(|pair| pair[0] != pair[1]), "OTHERWISE names an exchange twice");
}

/// Some metrics of models and caches are not built yet. This test compares the rest of the metrics.
#[test]
fn every_built_metric_family_has_its_recorded_description() {
    let is_built = |family: &str| {
        let of_others = ["nv_cache_", "nv_trt_llm_", "my_counter", "my_hist"];
        family.ends_with("_per_model") || !of_others.iter().any(|prefix| family.starts_with(prefix))
    };
    let repository = Arc::new(Repository::golden().unwrap());
    let served = Served::start(&repository, &["--exit-on-error=false"], vec![Arc::new(Python)]).unwrap();
    let record = golden::records().into_iter().find(|record| record.name == "metrics_full_text").unwrap();
    let golden::Exchange::Told { response, .. } = record.exchange else { panic!("the exposition is told") };
    let ours = scenarios::scrape(&served).unwrap();
    let ours: Vec<_> = scenarios::series(&ours).collect();
    for line in response["text"].as_str().unwrap().lines().filter(|line| line.starts_with('#')) {
        let family = line.split(' ').nth(2).unwrap();
        if is_built(family) {
            assert!(ours.contains(&line), "missing: {line}");
        }
    }
    served.stop().unwrap();
}
