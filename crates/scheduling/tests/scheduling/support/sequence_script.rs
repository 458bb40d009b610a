//! Plays scripts with sequences: one line for each event, and after it the occupants of the slots.
//!
//! As in `script.rs`, but:
//! - `model sequence direct max=2 instances=2 idle=1s delay=3s utilization=0.5`, or `model sequence oldest max=4
//!   candidates=4 preferred=2 delay=5s`. `iterative` makes the model iterative. `hold=2` and `backlog=1` set the test
//!   limits. `controls` shows the control values of every row.
//! - `arrive a1(start) a2 a3(end)`: the letters before the number name the sequence. `id 5` and `id '5'` name another
//!   sequence, `alone` names none. `timeout 3s`, `shape 16` and `rows 2` are attributes of the request.
//! - `idle 0`: an instance has finished. The backend releases its requests, and the instance is idle. `returns 0`: the
//!   instance is idle, without a release. `release a1`: the backend releases one request. `again a1`: the backend
//!   reschedules the request.
//! - `join 2`, `leave 0` and `lose 0` add, remove and lose an instance.
//!
//! In the picture of the slots, `.` is a free slot, `a` is the sequence in the slot, `*` is a running request, and `+2`
//! means two waiting requests.
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    num::NonZeroU64,
    time::Duration,
};

use scheduling::{
    DirectStrategy, Entry, EntryId, InstanceId, OldestStrategy, Rejected, Rejection, Row, ScheduledBatch,
    Scheduler, SchedulingAttributes, SequenceBatcher, SequenceBatching, SequenceId, SequencePosition,
    SequenceStrategy, Timestamp,
};

use crate::support::{
    driver::RequestId,
    script::{at, duration, number, options, show, split_requests, split_time},
};

/// Plays one paragraph, and returns it with the real result.
pub(crate) fn play(scene: &str) -> String {
    let (heads, events): (Vec<_>, Vec<_>) =
        scene.lines().partition(|line| line.starts_with('#') || line.starts_with("model "));
    let settings =
        heads.iter().find(|line| line.starts_with("model ")).expect("a scene needs a 'model' line");
    let mut stage = ScriptState::new(settings);
    for event in events {
        stage.perform(event.split("->").next().unwrap_or(event).trim_end());
    }
    stage.rest();
    let mut picture: String = heads.iter().flat_map(|head| [head.trim_end(), "\n"]).collect();
    let width = stage.lines.iter().map(|(said, _)| said.len()).max().unwrap_or(0);
    for (said, told) in &stage.lines {
        writeln!(picture, "{said:width$} -> {told}").expect("strings take everything");
    }
    picture
}

struct ScriptState {
    batcher: Scheduler<RequestId>,
    slots: u32,
    runs_for: Option<Duration>,
    controls: bool,
    now: Timestamp,
    /// All instances, busy or idle.
    instances: BTreeSet<InstanceId>,
    idle: Vec<InstanceId>,
    finishing: BTreeSet<(Timestamp, InstanceId)>,
    names: Vec<String>,
    /// The scheduler's ids of the requests that it has accepted.
    entries: BTreeMap<RequestId, EntryId>,
    /// Requests that a backend executes, with their instance and slot.
    running: BTreeMap<RequestId, (InstanceId, u32, Entry<RequestId>)>,
    lines: Vec<(String, String)>,
    last_map: String,
}

impl ScriptState {
    fn new(line: &str) -> Self {
        let mut options = options(line.strip_prefix("model sequence ").expect("another kind of model"));
        let max_batch_size = options.remove("max").map_or(0, number);
        let max_queue_delay = options.remove("delay").map_or(Duration::ZERO, duration);
        let mut slots = max_batch_size.max(1);
        let strategy = if options.remove("direct").is_some() {
            let minimum_slot_utilization = options.remove("utilization").map_or(0.0, number);
            SequenceStrategy::Direct(DirectStrategy { max_queue_delay, minimum_slot_utilization })
        } else {
            assert!(options.remove("oldest").is_some(), "'{line}': neither direct nor oldest");
            let preferred = options.remove("preferred");
            let max_candidate_sequences = options.remove("candidates").map_or(0, number);
            slots = if max_candidate_sequences > 0 { max_candidate_sequences } else { slots };
            SequenceStrategy::Oldest(OldestStrategy {
                max_candidate_sequences,
                preferred_batch_sizes: preferred
                    .map_or([max_batch_size].into(), |sizes| sizes.split(',').map(number).collect()),
                max_queue_delay,
                preserve_ordering: false,
            })
        };
        let config = SequenceBatching {
            strategy,
            max_batch_size,
            max_sequence_idle: options.remove("idle").map_or(Duration::from_secs(1), duration),
            iterative: options.remove("iterative").is_some(),
            hold_until_queued: options.remove("hold").map_or(0, number),
            hold_until_backlogged: options.remove("backlog").map_or(0, number),
        };
        let instances = options.remove("instances").map_or(1, number);
        let runs_for = options.remove("runs").map(duration);
        let controls = options.remove("controls").is_some();
        assert!(options.is_empty(), "'{line}': unknown {options:?}");
        Self {
            batcher: Scheduler::Sequence(SequenceBatcher::new(config, instances)),
            slots,
            runs_for,
            controls,
            now: Timestamp::default(),
            instances: (0..instances).collect(),
            idle: (0..instances).collect(),
            finishing: BTreeSet::new(),
            names: Vec::new(),
            entries: BTreeMap::new(),
            running: BTreeMap::new(),
            lines: Vec::new(),
            last_map: String::new(),
        }
    }

    fn perform(&mut self, said: &str) {
        let (time, event) = split_time(said);
        if let Some(time) = time {
            assert!(self.now <= time, "'{said}' runs backwards");
            // If a line has a time but no event, what happens at that time belongs into that line.
            let before = if event.is_empty() { time.as_nanos() - 1 } else { time.as_nanos() };
            self.advance(Timestamp::from_nanos(before));
            self.now = Timestamp::from_nanos(before);
        }
        let mut told = Vec::new();
        let (verb, objects) = event.split_once(' ').unwrap_or((event, ""));
        if verb.is_empty() {
            let time = time.unwrap_or_else(|| panic!("an empty line in a scene"));
            while self.step(time, &mut told) {}
            self.now = time;
        } else if verb == "drain" {
            self.batcher.drain();
        } else if event == "end delay" {
            self.batcher.end_queue_delay();
        } else {
            for object in split_requests(objects) {
                self.act(verb, object, &mut told);
            }
        }
        self.settle(&mut told);
        while self.step(self.now, &mut told) {}
        self.note(said.to_owned(), &told);
    }

    fn act(&mut self, verb: &str, object: &str, told: &mut Vec<String>) {
        match verb {
            "arrive" => {
                self.arrive(object, told);
                self.settle(told);
            }
            "cancel" => {
                let gone = self.id(object);
                let cancelled = self.entries.get(&gone).map(|&entry| self.batcher.cancel(entry));
                told.extend(cancelled.iter().flatten().map(|cancelled| self.refusal(cancelled)));
            }
            "idle" => self.finish(number(object)),
            "returns" => self.idle.push(number(object)),
            "release" => {
                let (instance, slot, _) = self.take_back(object);
                self.batcher.released(self.now, instance, slot);
            }
            "again" => {
                let (instance, slot, entry) = self.take_back(object);
                let (id, attributes) = (entry.id, entry.attributes.clone());
                if let Err(refused) = self.batcher.reschedule(self.now, instance, slot, entry) {
                    told.push(self.refusal(&refused));
                    let Rejected { payload, .. } = refused;
                    let entry = Entry { id, attributes, arrived: self.now, payload };
                    self.running.insert(payload, (instance, slot, entry));
                }
            }
            "join" => {
                self.instances.insert(number(object));
                self.idle.push(number(object));
                self.batcher.add_instance(self.now, number(object));
            }
            "leave" => self.batcher.remove_instance(self.now, number(object)),
            "lose" => {
                let instance = number(object);
                let lost = self.batcher.lose_instance(self.now, instance);
                told.extend(lost.iter().map(|lost| self.refusal(lost)));
                self.running.retain(|_, &mut (on, ..)| on != instance);
            }
            _ => panic!("there is no event '{verb}'"),
        }
    }

    fn take_back(&mut self, name: &str) -> (InstanceId, u32, Entry<RequestId>) {
        let id = self.id(name);
        self.running.remove(&id).unwrap_or_else(|| panic!("'{name}' does not run"))
    }

    fn arrive(&mut self, said: &str, told: &mut Vec<String>) {
        let (name, wishes) = said.split_once('(').unwrap_or((said, ""));
        let letters = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let mut id = Some(SequenceId::Text(letters.into()));
        let (mut start, mut end) = (false, false);
        let mut attributes = SchedulingAttributes::default();
        for wish in wishes.trim_end_matches(')').split(", ").filter(|wish| !wish.is_empty()) {
            match wish.split_once(' ').unwrap_or((wish, "")) {
                ("start", "") => start = true,
                ("end", "") => end = true,
                ("alone", "") => id = None,
                ("id", text) if text.starts_with('\'') => {
                    id = Some(SequenceId::Text(text.trim_matches('\'').into()));
                }
                ("id", other) => id = NonZeroU64::new(number(other)).map(SequenceId::Number),
                ("timeout", timeout) => attributes.timeout = Some(duration(timeout)),
                ("shape", shape) => attributes.shape_key = number(shape),
                ("rows", rows) => attributes.batch_size = number(rows),
                _ => panic!("'{said}': what is '{wish}'?"),
            }
        }
        assert!(!self.names.iter().any(|known| known == name), "two requests are called '{name}'");
        let request = self.names.len() as RequestId;
        self.names.push(name.to_owned());
        attributes.sequence = SequencePosition { id, start, end };
        match self.batcher.enqueue(self.now, attributes, request) {
            Ok(entry) => drop(self.entries.insert(request, entry)),
            Err(refused) => told.push(self.refusal(&refused)),
        }
        for id in self.batcher.take_restarts() {
            told.push(format!("{} begins again", label(&id)));
        }
    }

    /// Releases all requests of an instance, and makes the instance idle.
    fn finish(&mut self, instance: InstanceId) {
        let done = self.running.extract_if(.., |_, &mut (on, ..)| on == instance);
        let mut done: Vec<_> = done.map(|(_, (instance, slot, _))| (instance, slot)).collect();
        done.sort_unstable();
        for (instance, slot) in done {
            self.batcher.released(self.now, instance, slot);
        }
        if !self.idle.contains(&instance) {
            self.idle.push(instance);
        }
    }

    fn settle(&mut self, told: &mut Vec<String>) {
        let late = self.batcher.expire(self.now);
        told.extend(late.iter().map(|late| self.refusal(late)));
        while let Some(due) = self.batcher.due(self.now, &self.idle) {
            let batch = self.batcher.take(due);
            self.idle.retain(|&idle| idle != batch.instance);
            if let Some(runs_for) = self.runs_for {
                self.finishing.insert((self.now + runs_for, batch.instance));
            }
            told.push(self.start(batch));
        }
        for instance in self.instances.clone() {
            if self.batcher.may_leave(instance) {
                self.instances.remove(&instance);
                self.idle.retain(|&idle| idle != instance);
                told.push(format!("instance {instance} gone"));
            }
        }
        assert!(self.batcher.next_wakeup(self.now).is_none_or(|wakeup| self.now < wakeup));
    }

    fn start(&mut self, batch: ScheduledBatch<RequestId>) -> String {
        let instance = batch.instance;
        let mut rows = Vec::new();
        let mut controls: [Vec<String>; 4] = Default::default();
        let mut control = |step: Option<&SequencePosition>| {
            let flag = |on: bool| u8::from(on).to_string();
            controls[0].push(flag(step.is_some_and(|step| step.start)));
            controls[1].push(flag(step.is_some_and(|step| step.end)));
            controls[2].push(flag(step.is_some()));
            let id = step.and_then(|step| step.id.as_ref());
            controls[3].push(id.map_or("0".to_owned(), label));
        };
        for row in batch.rows {
            let Row::Request { entry, slot } = row else {
                control(None);
                rows.push("-".to_owned());
                continue;
            };
            control(Some(&entry.attributes.sequence));
            let slot = slot.expect("a request of a sequence has a slot");
            rows.push(self.names[entry.payload as usize].clone());
            self.running.insert(entry.payload, (instance, slot, entry));
        }
        let mut told = format!("batch [{}] on {instance}", rows.join(" "));
        if self.controls {
            let [start, end, ready, id] = controls.map(|column| column.join(" "));
            write!(told, " (START {start}, END {end}, READY {ready}, CORRID {id})")
                .expect("strings take all");
        }
        told
    }

    fn next_event(&mut self) -> Option<Timestamp> {
        let finish = self.finishing.first().map(|&(at, _)| at);
        [finish, self.batcher.next_wakeup(self.now)].into_iter().flatten().min()
    }

    /// Advances to the next time at which something happens without an event, if there is one until `limit`.
    fn step(&mut self, limit: Timestamp, told: &mut Vec<String>) -> bool {
        let Some(next) = self.next_event().filter(|&next| next <= limit) else { return false };
        if let Some(before) = next.as_nanos().checked_sub(1).map(Timestamp::from_nanos) {
            assert!(self.batcher.expire(before).is_empty(), "{before:?}: rejected before the wake-up");
            assert_eq!(self.batcher.due(before, &self.idle), None, "{before:?}: due before the wake-up");
        }
        self.now = next;
        while let Some(&(at, instance)) = self.finishing.first().filter(|&&(at, _)| at <= next) {
            self.finishing.remove(&(at, instance));
            self.finish(instance);
        }
        self.settle(told);
        true
    }

    /// Advances to `limit`, and records everything that happens without an event.
    fn advance(&mut self, limit: Timestamp) {
        let mut told = Vec::new();
        while self.step(limit, &mut told) {
            let now = self.now;
            while self.step(now, &mut told) {}
            if !told.is_empty() || self.map() != self.last_map {
                self.note(at(now), &std::mem::take(&mut told));
            }
        }
    }

    fn rest(&mut self) {
        // No script needs more steps. The clock has no end.
        for _ in 0..1_000 {
            let Some(next) = self.next_event() else { return };
            self.advance(next);
        }
        panic!("the scene does not come to rest");
    }

    fn note(&mut self, said: String, told: &[String]) {
        self.last_map = self.map();
        let told = told.join("; ");
        let told = if told.is_empty() { self.last_map.clone() } else { format!("{told} {}", self.last_map) };
        self.lines.push((said, told));
    }

    /// The occupant of each slot, and the sequences that wait for a slot.
    fn map(&mut self) -> String {
        let mut map = String::new();
        for &instance in &self.instances {
            write!(map, "| {instance}:").expect("strings take all");
            for number in 0..self.slots {
                let mut slots = self.batcher.slots();
                let Some(slot) = slots.find(|slot| (slot.instance, slot.slot) == (instance, number)) else {
                    map.push_str(" .");
                    continue;
                };
                let occupant = slot.sequence.map_or(".".to_owned(), label);
                let running = if slot.running { "*" } else { "" };
                let waiting = if slot.waiting > 0 { format!("+{}", slot.waiting) } else { String::new() };
                write!(map, " {occupant}{running}{waiting}").expect("strings take all");
            }
            map.push(' ');
        }
        let backlog: Vec<_> =
            self.batcher.backlog().map(|(id, waiting)| format!("{}+{waiting}", label(id))).collect();
        if !backlog.is_empty() {
            write!(map, "| backlog {} ", backlog.join(" ")).expect("strings take all");
        }
        if self.batcher.queued() > 0
            && let Some(wakeup) = self.batcher.next_wakeup(self.now)
        {
            write!(map, "| until {}", show(wakeup)).expect("strings take all");
        }
        map.trim_end().to_owned()
    }

    fn refusal(&self, rejected: &Rejected<RequestId>) -> String {
        let name = &self.names[rejected.payload as usize];
        match rejected.reason {
            Rejection::QueueFull => format!("{name} refused: queue full"),
            Rejection::TimedOut => format!("{name} timed out"),
            Rejection::Cancelled => format!("{name} cancelled"),
            Rejection::Draining => format!("{name} refused: draining"),
            Rejection::MultipleRows => format!("{name} refused: more than one row"),
            Rejection::MissingSequence => format!("{name} refused: no sequence"),
            Rejection::MissingStart => format!("{name} refused: no START"),
            Rejection::SequenceTimedOut => format!("{name} timed out with its sequence"),
            Rejection::NotIterative => format!("{name} may not run again"),
            Rejection::InstanceLost => format!("{name} lost with its instance"),
        }
    }

    fn id(&self, name: &str) -> RequestId {
        let position = self.names.iter().position(|known| known == name);
        position.unwrap_or_else(|| panic!("nobody is called '{name}'")) as RequestId
    }
}

fn label(id: &SequenceId) -> String {
    match id {
        SequenceId::Number(number) => number.to_string(),
        SequenceId::Text(text) if text.bytes().all(|letter| letter.is_ascii_digit()) => format!("'{text}'"),
        SequenceId::Text(text) => text.to_string(),
        SequenceId::ServerGenerated(number) => format!("#{number}"),
    }
}
