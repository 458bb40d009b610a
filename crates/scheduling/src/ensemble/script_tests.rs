//! Plays the scripts in `scripts`, and compares the results. Each paragraph is the life of a request.
//!
//! `UPDATE=1 cargo test -p scheduling ensemble` writes the real results into the scripts. Read the difference
//! before you commit it.
//!
//! A paragraph that begins with `inputs` is a graph: its inputs, its outputs, and a line for each step. `mask?` is an
//! optional input. `step repeat (decoupled): in -> out` is a decoupled step. The graph holds for the paragraphs that
//! follow. Their lines are events:
//!
//! - `request raw mask=m for class`: the client sends `raw` and `mask`, and wants only `class`. The value of `mask` is
//!   called `m`, the value of `raw` is called `raw`.
//! - `detect answers boxes scores=[]`: the step sends its only or last response. It leaves out outputs that are not
//!   named. `[]` is a value without elements. `detect sends boxes` is a response before the last. `detect ends`
//!   follows it, or means that there is no response. `detect:3` is the execution of iteration 3.
//! - `error oom`: a step or the request fails.
//! - `limit detect 1`: at most one execution of the step may be in flight.
//!
//! Events that `;` separates come together. What follows is right of `->`: the actions, then the values that wait, then the steps in flight.
use std::{cell::RefCell, collections::BTreeMap, env, fs, path::Path, rc::Rc, sync::Arc};

use super::*;

/// The number of references to each value that is alive.
type Alive = Rc<RefCell<BTreeMap<String, usize>>>;

/// A value that counts its references.
struct Counted {
    name: String,
    alive: Alive,
}

impl Counted {
    fn new(name: &str, alive: &Alive) -> Self {
        *alive.borrow_mut().entry(name.to_owned()).or_default() += 1;
        Self { name: name.to_owned(), alive: Rc::clone(alive) }
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(&self.name, &self.alive)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut alive = self.alive.borrow_mut();
        let count = alive.get_mut(&self.name).expect("the value was counted");
        *count -= 1;
        if *count == 0 {
            alive.remove(&self.name);
        }
    }
}

/// A graph with names.
#[derive(Default)]
struct NamedGraph {
    graph: EnsembleGraph,
    tensors: Vec<String>,
    steps: Vec<String>,
}

impl NamedGraph {
    fn parse(text: &str) -> Self {
        let mut named = Self::default();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            match kind {
                "inputs" => named.graph.inputs = named.indexes(rest),
                "outputs" => named.graph.outputs = named.indexes(rest),
                "step" => named.add_step(rest),
                _ => panic!("'{line}' is no line of a graph"),
            }
        }
        let EnsembleGraph { inputs, outputs, steps, .. } = std::mem::take(&mut named.graph);
        named.graph = EnsembleGraph::new(named.tensors.len(), inputs, outputs, steps);
        named
    }

    fn add_step(&mut self, text: &str) {
        let (name, tensors) = text.split_once(": ").expect("a step has a colon");
        let (inputs, outputs) = tensors.split_once(" -> ").expect("a step has an arrow");
        self.steps.push(name.trim_end_matches(" (decoupled)").to_owned());
        let input = |text: &str| StepInput {
            tensor: self.index(text.trim_end_matches('?')),
            is_optional: text.ends_with('?'),
        };
        let inputs = inputs.split(' ').map(input).collect();
        let outputs = self.indexes(outputs);
        let is_decoupled = name.ends_with(" (decoupled)");
        self.graph.steps.push(GraphStep { inputs, outputs, is_decoupled });
    }

    fn index(&mut self, tensor: &str) -> TensorIndex {
        self.tensors.iter().position(|known| known == tensor).unwrap_or_else(|| {
            self.tensors.push(tensor.to_owned());
            self.tensors.len() - 1
        })
    }

    fn indexes(&mut self, tensors: &str) -> Vec<TensorIndex> {
        tensors.split(' ').map(|tensor| self.index(tensor)).collect()
    }

    fn tensor(&self, name: &str) -> TensorIndex {
        self.tensors.iter().position(|known| known == name).unwrap_or_else(|| panic!("no tensor '{name}'"))
    }

    fn step(&self, name: &str) -> StepIndex {
        self.steps.iter().position(|known| known == name).unwrap_or_else(|| panic!("no step '{name}'"))
    }

    fn run(&self, name: &str) -> StepRun {
        let (step, iteration) = name.split_once(':').unwrap_or((name, "0"));
        StepRun { step: self.step(step), iteration: iteration.parse().expect("an iteration is a number") }
    }

    fn run_name(&self, run: StepRun) -> String {
        let step = &self.steps[run.step];
        if run.iteration == 0 { step.clone() } else { format!("{step}:{}", run.iteration) }
    }
}

/// A request during a script.
struct RequestState<'a> {
    named: &'a NamedGraph,
    run: EnsembleRun<Counted, String>,
    alive: Alive,
    limits: BTreeMap<StepIndex, usize>,
    in_flight: Vec<StepRun>,
}

impl<'a> RequestState<'a> {
    fn new(named: &'a NamedGraph, request: &str) -> Self {
        let alive = Alive::default();
        let (given, wanted) = request.split_once(" for ").unwrap_or((request, ""));
        let wanted: Vec<_> = wanted.split_whitespace().map(|name| named.tensor(name)).collect();
        let mut given = values(named, given, &alive);
        let inputs = named.graph.inputs.iter().map(|input| given.remove(input)).collect();
        assert!(given.is_empty(), "'{request}' has something that is no input");
        let is_wanted = |output| wanted.is_empty() || wanted.contains(&named.graph.outputs[output]);
        let run = EnsembleRun::new(Arc::new(named.graph.clone()), inputs, is_wanted);
        Self { named, run, alive, limits: BTreeMap::new(), in_flight: Vec::new() }
    }

    fn perform(&mut self, event: &str) {
        let words: Vec<_> = event.splitn(3, ' ').collect();
        match *words.as_slice() {
            ["error", error] => self.run.failed(error.to_owned()),
            ["limit", limit] => panic!("'{limit}' has no number"),
            ["limit", step, limit] => {
                self.limits.insert(self.named.step(step), limit.parse().expect("a limit is a number"));
            }
            [run, "sends"] => self.respond(run, ""),
            [run, "sends", outputs] => self.respond(run, outputs),
            [run, "answers"] => {
                self.respond(run, "");
                self.end(run);
            }
            [run, "answers", outputs] => {
                self.respond(run, outputs);
                self.end(run);
            }
            [run, "ends"] => self.end(run),
            _ => panic!("'{event}' is no event"),
        }
    }

    fn respond(&mut self, run: &str, outputs: &str) {
        let run = self.named.run(run);
        let mut given = values(self.named, outputs, &self.alive);
        let value = |tensor: &TensorIndex| match given.remove(tensor) {
            None => TensorValue::Absent,
            Some(value) if value.name == "[]" => TensorValue::Empty(value),
            Some(value) => TensorValue::Given(value),
        };
        let outputs = self.named.graph.steps[run.step].outputs.iter().map(value).collect();
        assert!(given.is_empty(), "the step has no such output");
        self.run.responded(run, outputs);
    }

    fn end(&mut self, run: &str) {
        let run = self.named.run(run);
        self.in_flight.retain(|other| *other != run);
        self.run.ended(run);
    }

    /// Performs all actions, and describes them and what is left.
    fn picture(&mut self) -> String {
        let mut actions = Vec::new();
        while let Some(action) = self.next() {
            actions.push(self.describe(action));
        }
        assert_eq!(self.run.held(), self.alive.borrow().values().sum::<usize>(), "each value is counted");
        let count = |(name, count): (&String, &usize)| {
            if *count == 1 { name.clone() } else { format!("{name} x{count}") }
        };
        let held: Vec<_> = self.alive.borrow().iter().map(count).collect();
        self.in_flight.sort();
        let runs: Vec<_> = self.in_flight.iter().map(|run| self.named.run_name(*run)).collect();
        assert_eq!(runs.len(), self.run.running());
        let parts = [("", actions), ("holds ", held), ("runs ", runs)];
        let parts = parts.iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<_> = parts.map(|(title, names)| format!("{title}{}", names.join(", "))).collect();
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(" | ") }
    }

    fn next(&mut self) -> Option<EnsembleAction<Counted, String>> {
        let Self { run, limits, in_flight, .. } = self;
        run.next(|step| {
            let same = in_flight.iter().filter(|run| run.step == step).count();
            limits.get(&step).is_none_or(|limit| same < *limit)
        })
    }

    fn describe(&mut self, action: EnsembleAction<Counted, String>) -> String {
        match action {
            EnsembleAction::Start { run, inputs } => {
                self.in_flight.push(run);
                let name = |input: &Option<Counted>| {
                    input.as_ref().map_or_else(|| "_".to_owned(), |value| value.name.clone())
                };
                let inputs: Vec<_> = inputs.iter().map(name).collect();
                format!("start {}({})", self.named.run_name(run), inputs.join(", "))
            }
            EnsembleAction::Respond { outputs, is_last } => {
                let mut text = if is_last { "last response" } else { "response" }.to_owned();
                for (output, value) in outputs {
                    let tensor = &self.named.tensors[self.named.graph.outputs[output]];
                    text += &if *tensor == value.name {
                        format!(" {tensor}")
                    } else {
                        format!(" {tensor}={}", value.name)
                    };
                }
                text
            }
            EnsembleAction::Finish => "finish".to_owned(),
            EnsembleAction::Deadlock => "deadlock".to_owned(),
            EnsembleAction::Fail(error) => format!("fail with {error}"),
        }
    }
}

fn values(named: &NamedGraph, text: &str, alive: &Alive) -> BTreeMap<TensorIndex, Counted> {
    let value = |word: &str| {
        let (tensor, name) = word.split_once('=').unwrap_or((word, word));
        (named.tensor(tensor), Counted::new(name, alive))
    };
    text.split_whitespace().map(value).collect()
}

/// Plays the events of one request, and returns the paragraph with the real results.
fn play(named: &NamedGraph, paragraph: &str) -> String {
    let mut played = String::new();
    let mut state = None;
    for line in paragraph.lines() {
        let event = line.split("->").next().unwrap_or(line).trim_end();
        if line.starts_with('#') {
            played += &format!("{line}\n");
            continue;
        }
        let mut events = event.split("; ").peekable();
        if let Some(request) = events.peek().and_then(|event| event.strip_prefix("request")) {
            state = Some(RequestState::new(named, request));
            events.next();
        }
        let state = state.as_mut().expect("the first event is a request");
        events.for_each(|event| state.perform(event));
        played += &format!("{event:<40} -> {}\n", state.picture());
    }
    let state = state.expect("a paragraph has a request");
    assert!(state.run.is_over(), "the request does not end:\n{played}");
    assert_eq!(state.run.iterations(), 0, "memory is left:\n{played}");
    played
}

fn check(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ensemble/scripts").join(file);
    let written = fs::read_to_string(&path).expect("the script can be read");
    let mut graph = NamedGraph::default();
    let mut played = Vec::new();
    for paragraph in written.split("\n\n").map(str::trim) {
        if paragraph.lines().any(|line| line.starts_with("inputs ")) {
            let text: Vec<_> = paragraph.lines().filter(|line| !line.starts_with('#')).collect();
            graph = NamedGraph::parse(&text.join("\n"));
            played.push(format!("{paragraph}\n"));
        } else {
            played.push(play(&graph, paragraph));
        }
    }
    let played = played.join("\n");
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, played).expect("the script can be written");
    } else {
        assert_eq!(written, played, "{file}: played, this gives\n\n{played}");
    }
}

macro_rules! scripts {
    ($($test:ident => $file:literal,)*) => {
        $(#[test]
        fn $test() {
            check($file);
        })*

        #[test]
        fn every_script_is_played() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ensemble/scripts");
            for entry in fs::read_dir(folder).expect("the folder can be read") {
                let name = entry.expect("the entry can be read").file_name();
                assert!([$($file),*].iter().any(|file| name == *file), "{name:?} is not played");
            }
        }
    };
}

scripts! {
    the_example_of_the_documentation_runs => "documentation.txt",
    steps_start_when_their_inputs_are_settled => "shapes.txt",
    optional_inputs_may_be_absent_and_skip_steps => "optional.txt",
    decoupled_steps_add_iterations_in_order => "decoupled.txt",
    requests_end_once => "endings.txt",
}
