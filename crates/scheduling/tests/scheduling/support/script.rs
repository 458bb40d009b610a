//! Plays written scripts on a virtual clock and records the results.
//!
//! A script is a paragraph: `#` lines that describe the behaviour, a `model` line, `level` lines for queue policies of
//! priority levels, and then events. The text to the right of `->` is what the scheduler did. The player writes this
//! text again. It adds a line for everything that happens between events. It continues until nothing more happens. A
//! script that equals its result is therefore complete.
//!
//! - `model dynamic max=8 preferred=2,6 delay=10s instances=1 runs=0s`, or `model unbatched ...`. Without `runs`, an
//!   instance is busy until an `idle` event. Without `preferred`, the only preferred size is `max`, as in a
//!   configuration. `batch_limit=alone` and `batch_limit=10` are rules beyond sizes and shapes: one request, and
//!   volumes up to 10 together.
//! - `arrive a b(3) c(1, level 2, timeout 1s, shape 16, volume 5)`: the brackets contain rows and other attributes.
//! - `cancel a`, `idle 0`, `drain`, `end delay`. Each may begin with `at 50us`. Otherwise it has the time of the previous line.
//! - `at 50us` alone records what happens then. `just after 50us` is one tick of the clock later.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    num::NonZero,
    time::Duration,
};

use scheduling::{
    DynamicBatcher, DynamicBatching, QueuePolicy, Rejection, Row, Scheduler, SchedulingAttributes,
    TimeoutAction, Timestamp, Unbatched,
};

use crate::support::{
    batch_limit::{BatchLimit, Limit},
    driver::{Driver, Outcome, RequestId},
    reference::Reference,
    subject::Subject,
};

/// Plays one paragraph, and returns it with the real result.
pub(crate) fn play(scene: &str) -> String {
    let mut heads = Vec::new();
    let mut events = Vec::new();
    for line in scene.lines() {
        let said = line.split("->").next().unwrap_or(line).trim_end();
        if said.starts_with('#') || said.starts_with("model ") || said.starts_with("level ") {
            assert!(events.is_empty(), "'{line}' must stand before the events");
            heads.push(line.trim_end());
        } else {
            events.push(said);
        }
    }
    let settings: Vec<_> = heads.iter().copied().filter(|line| !line.starts_with('#')).collect();
    let (model, batch_limit) = model(&settings);
    let mut stage = ScriptState::new(model, batch_limit);
    for event in events {
        stage.perform(event);
    }
    stage.rest();
    stage.picture(&heads)
}

/// A model during a script.
struct ScriptState {
    model: Driver,
    batch_limit: BatchLimit,
    names: Vec<String>,
    waiting: Vec<RequestId>,
    /// The events, and their results.
    lines: Vec<(String, String)>,
}

impl ScriptState {
    fn new(model: Driver, batch_limit: BatchLimit) -> Self {
        Self { model, batch_limit, names: Vec::new(), waiting: Vec::new(), lines: Vec::new() }
    }

    fn perform(&mut self, said: &str) {
        let (time, event) = split_time(said);
        if let Some(time) = time {
            assert!(self.model.now <= time, "'{said}' runs backwards");
            // If a line has a time but no event, what happens at that time belongs into that line.
            let before = if event.is_empty() { time.as_nanos() - 1 } else { time.as_nanos() };
            self.advance(Timestamp::from_nanos(before));
            self.model.now = Timestamp::from_nanos(before);
        }
        let mut outcomes = Vec::new();
        let (verb, objects) = event.split_once(' ').unwrap_or((event, ""));
        match verb {
            "" => {
                let time = time.unwrap_or_else(|| panic!("an empty line in a scene"));
                while let Some(more) = self.model.step(time) {
                    outcomes.extend(more);
                }
                self.model.now = time;
            }
            "arrive" => {
                for request in split_requests(objects) {
                    outcomes.extend(self.arrive(request));
                }
            }
            "cancel" => {
                let gone: Vec<_> = objects.split(' ').map(|name| self.id(name)).collect();
                outcomes.extend(self.model.cancel(&gone));
            }
            "idle" => {
                let instance = number(objects);
                assert!(!self.model.idle.contains(&instance), "'{said}': it is idle already");
                self.model.idle.push(instance);
                outcomes.extend(self.model.settle());
            }
            "drain" => outcomes.extend(self.model.drain()),
            "end" if objects == "delay" => outcomes.extend(self.model.end_queue_delay()),
            _ => panic!("'{said}': there is no event '{verb}'"),
        }
        // Instances with a run time of zero are idle again at once.
        while let Some(more) = self.model.step(self.model.now) {
            outcomes.extend(more);
        }
        self.note(said.to_owned(), &outcomes);
    }

    fn arrive(&mut self, request: &str) -> Vec<Outcome> {
        let (name, attributes, volume) = read_request(request);
        assert!(!self.names.iter().any(|known| known == name), "two requests are called '{name}'");
        let id = self.names.len() as RequestId;
        self.names.push(name.to_owned());
        self.waiting.push(id);
        self.batch_limit.weigh(id, volume);
        let mut outcomes = self.model.arrive(id, attributes, self.model.now);
        while let Some(more) = self.model.step(self.model.now) {
            outcomes.extend(more);
        }
        outcomes
    }

    /// Advances to `limit`, and records everything that happens without an event.
    fn advance(&mut self, limit: Timestamp) {
        while let Some(mut outcomes) = self.model.step(limit) {
            let now = self.model.now;
            while let Some(more) = self.model.step(now) {
                outcomes.extend(more);
            }
            if !outcomes.is_empty() {
                self.note(at(now), &outcomes);
            }
        }
    }

    fn rest(&mut self) {
        // No script needs more steps. The clock has no end.
        for _ in 0..1_000 {
            let Some(next) = self.model.next_event() else { return };
            self.advance(next);
        }
        panic!("the scene does not come to rest");
    }

    fn note(&mut self, said: String, outcomes: &[Outcome]) {
        let mut told: Vec<String> = outcomes.iter().map(|outcome| self.tell(outcome)).collect();
        let waiting = self.names_of(self.waiting.iter().copied());
        assert_eq!(self.waiting.len(), self.model.scheduler.queued(), "somebody was lost");
        if !waiting.is_empty() {
            told.push(match self.model.scheduler.next_wakeup(self.model.now) {
                _ if self.model.idle.is_empty() => format!("{waiting} waiting for an instance"),
                Some(wakeup) => format!("{waiting} waiting until {}", show(wakeup)),
                None => format!("{waiting} waiting"),
            });
        }
        if told.is_empty() {
            told.push("nobody waiting".to_owned());
        }
        self.lines.push((said, told.join("; ")));
    }

    fn tell(&mut self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Rejected(request, reason) => {
                self.waiting.retain(|waiting| waiting != request);
                let name = &self.names[*request as usize];
                match reason {
                    Rejection::QueueFull => format!("{name} refused: queue full"),
                    Rejection::Draining => format!("{name} refused: draining"),
                    Rejection::TimedOut => format!("{name} timed out"),
                    Rejection::Cancelled => format!("{name} cancelled"),
                    other => panic!("{name}: {other:?} is for sequences"),
                }
            }
            Outcome::Started(batch) => {
                let rows: Vec<_> = batch
                    .rows
                    .iter()
                    .map(|row| match row {
                        Row::Request { entry, .. } => {
                            self.waiting.retain(|&waiting| waiting != entry.payload);
                            self.names[entry.payload as usize].as_str()
                        }
                        Row::Padding => "-",
                    })
                    .collect();
                format!("batch [{}] on {}", rows.join(" "), batch.instance)
            }
        }
    }

    fn names_of(&self, requests: impl Iterator<Item = RequestId>) -> String {
        requests.map(|request| self.names[request as usize].as_str()).collect::<Vec<_>>().join(" ")
    }

    fn id(&self, name: &str) -> RequestId {
        let position = self.names.iter().position(|known| known == name);
        position.unwrap_or_else(|| panic!("nobody is called '{name}'")) as RequestId
    }

    fn picture(&self, heads: &[&str]) -> String {
        let mut picture = String::new();
        for head in heads {
            writeln!(picture, "{head}").expect("strings take everything");
        }
        let width = self.lines.iter().map(|(said, _)| said.len()).max().unwrap_or(0);
        for (said, told) in &self.lines {
            writeln!(picture, "{said:width$} -> {told}").expect("strings take everything");
        }
        picture
    }
}

fn model(settings: &[&str]) -> (Driver, BatchLimit) {
    let [first, levels @ ..] = settings else { panic!("a scene needs a 'model' line") };
    let mut options = options(first.strip_prefix("model ").expect("'model' comes first"));
    let instances = options.remove("instances").map_or(1, number);
    let runs_for = options.remove("runs").map(duration);
    let batch_limit = BatchLimit::new(match options.remove("company") {
        None => Limit::None,
        Some("alone") => Limit::Alone,
        Some(most) => Limit::Volume(number(most)),
    });
    let scheduler = if options.remove("unbatched").is_some() {
        Subject::new(Scheduler::Unbatched(Unbatched::new()), None)
    } else {
        assert!(options.remove("dynamic").is_some(), "'{first}': neither dynamic nor unbatched");
        let max_batch_size = options.remove("max").map_or(0, number);
        let preferred = options.remove("preferred").map(|sizes| match sizes {
            "none" => BTreeSet::new(),
            sizes => sizes.split(',').map(number).collect(),
        });
        let config = DynamicBatching {
            max_batch_size,
            preferred_batch_sizes: preferred.unwrap_or_else(|| [max_batch_size].into()),
            max_queue_delay: options.remove("delay").map_or(Duration::ZERO, duration),
            priority_levels: options.remove("levels").map_or(0, number),
            default_priority_level: options.remove("default").map_or(0, number),
            hold_until_queued: options.remove("hold").map_or(0, number),
            default_queue_policy: policy(&mut options),
            priority_queue_policies: levels.iter().map(|line| level(line)).collect(),
            preserve_ordering: false,
        };
        let plain = Reference::new(config.clone(), batch_limit.clone());
        let batcher = DynamicBatcher::new(config);
        let real = match batch_limit.filter() {
            Some(filter) => batcher.with_filter(filter),
            None => batcher,
        };
        Subject::new(Scheduler::Dynamic(real), Some(plain))
    };
    assert!(options.is_empty(), "'{first}': unknown {options:?}");
    (Driver::new(scheduler, instances, Box::new(move |_| runs_for)), batch_limit)
}

fn level(line: &str) -> (u64, QueuePolicy) {
    let rest = line.strip_prefix("level ").unwrap_or_else(|| panic!("'{line}': a second model"));
    let (level, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut options = options(rest);
    let policy = policy(&mut options);
    assert!(options.is_empty(), "'{line}': unknown {options:?}");
    (number(level), policy)
}

fn policy(options: &mut BTreeMap<&str, &str>) -> QueuePolicy {
    QueuePolicy {
        default_timeout: options.remove("timeout").map(duration),
        timeout_action: match options.remove("action") {
            None | Some("reject") => TimeoutAction::Reject,
            Some("delay") => TimeoutAction::Delay,
            Some(other) => panic!("there is no timeout action '{other}'"),
        },
        allow_timeout_override: options.remove("override").is_some(),
        max_queue_size: options.remove("queue").and_then(|size| NonZero::new(number(size))),
    }
}

pub(crate) fn options(line: &str) -> BTreeMap<&str, &str> {
    line.split_whitespace().map(|word| word.split_once('=').unwrap_or((word, ""))).collect()
}

/// Splits `a b(3) c(1, level 2)` at the spaces outside brackets.
pub(crate) fn split_requests(line: &str) -> Vec<&str> {
    let mut inside = false;
    line.split(move |letter| {
        inside = letter == '(' || inside && letter != ')';
        letter == ' ' && !inside
    })
    .collect()
}

fn read_request(said: &str) -> (&str, SchedulingAttributes, u32) {
    let (name, wishes) = said.split_once('(').unwrap_or((said, ""));
    let (mut attributes, mut volume) = (SchedulingAttributes::default(), 1);
    for wish in wishes.trim_end_matches(')').split(", ").filter(|wish| !wish.is_empty()) {
        match wish.split_once(' ') {
            None => attributes.batch_size = number(wish),
            Some(("level", level)) => attributes.priority = number(level),
            Some(("timeout", timeout)) => attributes.timeout = Some(duration(timeout)),
            Some(("shape", shape)) => attributes.shape_key = number(shape),
            Some(("volume", given)) => volume = number(given),
            Some(_) => panic!("'{said}': what is '{wish}'?"),
        }
    }
    (name, attributes, volume)
}

pub(crate) fn split_time(said: &str) -> (Option<Timestamp>, &str) {
    let (rest, ticks) = match said.strip_prefix("just after ") {
        Some(rest) => (Some(rest), 1),
        None => (said.strip_prefix("at "), 0),
    };
    let Some(rest) = rest else { return (None, said) };
    let (time, event) = rest.split_once(' ').unwrap_or((rest, ""));
    (Some(Timestamp::default() + duration(time) + Duration::from_nanos(ticks)), event)
}

pub(crate) fn number<N: std::str::FromStr>(word: &str) -> N {
    word.parse().unwrap_or_else(|_| panic!("'{word}' is not a number that fits"))
}

pub(crate) fn duration(word: &str) -> Duration {
    let unit = word.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let nanos = match unit {
        "s" => 1e9,
        "ms" => 1e6,
        "us" => 1e3,
        _ => panic!("'{word}' is not a duration"),
    };
    let count: f64 = number(&word[..word.len() - unit.len()]);
    Duration::from_nanos((count * nanos).round() as u64)
}

pub(crate) fn at(time: Timestamp) -> String {
    let shown = show(time);
    if shown.starts_with("just") { shown } else { format!("at {shown}") }
}

pub(crate) fn show(time: Timestamp) -> String {
    let (ticks, after) = if time.as_nanos() % 1_000 == 1 { (1, "just after ") } else { (0, "") };
    format!("{after}{:?}", Duration::from_nanos(time.as_nanos() - ticks)).replace('µ', "u")
}
