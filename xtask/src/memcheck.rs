//! `cargo xtask memcheck`: checks how the C interfaces use memory.
//!
//! A program in C runs every test plug-in in its own process and sends requests of all kinds. First the compiler's
//! sanitizers check the program and the plug-ins. Then valgrind also checks the server: invalid accesses, decisions
//! that depend on uninitialized bytes, and unreachable memory are errors. Finally the same program runs with ten times
//! as many requests: the memory that is left at its end must not grow with them.

use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::build::Build;
use crate::c_compiler::{SANITIZERS, compile, compile_plugin, compiler, has_sanitizers};
use crate::tools::debian_program::VALGRIND;
use crate::{files, process, workspace};

/// Requests to each model in the shorter of the two runs, by default.
const REQUESTS: u32 = 200;
/// The same for a quick check.
pub(crate) const FEW: u32 = 20;
/// The ratio of requests in the longer run to those in the shorter one.
const TIMES: u32 = 10;
/// How many bytes more the longer run may leave reachable. Small buffers grow with the number of threads that happen to
/// run at the same time, not with requests. Large ones are suppressed.
const CHANCE: u64 = 4 << 10;

/// The file name of the program.
const PROGRAM: &str = "requests";

/// The sources of test plug-ins, and the library that each becomes in the directory of its name.
const PLUGINS: [(&str, &str); 8] = [
    ("identity", "libtriton_identity.so"),
    ("repeat", "libtriton_repeat.so"),
    ("stateful", "libtriton_stateful.so"),
    ("iterate", "libtriton_iterate.so"),
    ("failing", "libtriton_failing.so"),
    ("config", "libtriton_config.so"),
    ("cache", "libtritoncache_cache.so"),
    ("agent", "libtritonrepoagent_agent.so"),
];

/// The batching strategies, used by models of the same name.
const STRATEGIES: [&str; 2] = ["single_batch", "volume_batch"];

/// Checks memory with that many requests, or with the default number.
///
/// # Errors
/// Memory is used wrongly or lost, the memory left at the end grows with requests, or the machine lacks a tool.
pub(crate) fn run(requests: Option<u32>) -> Result<()> {
    process::require(&compiler(), "gcc")?;
    check(requests.unwrap_or(REQUESTS))
}

/// Makes all runs.
///
/// # Errors
/// Memory is used wrongly or lost, or the memory left at the end grows with requests.
fn check(requests: u32) -> Result<()> {
    // Two runs need it at the same time.
    VALGRIND.fetch()?;
    Build::DevWorkspace.run(&["libtritonserver"])?;
    let place = workspace::target().join("memcheck");
    files::remove_folder(&place)?;
    if has_sanitizers() {
        println!("with sanitizers in program and plug-ins:");
        let place = place.join("sanitized");
        let program = build(&place, &SANITIZERS)?;
        process::run(&mut asking(Command::new(program), &place, requests * TIMES))?;
    } else {
        println!("skipped: sanitizers, which the C compiler does not have");
    }
    build(&place, &[])?;
    // Valgrind uses one processor.
    let (few, many) = thread::scope(|scope| {
        let few = scope.spawn(|| LeakSummary::after(&place, requests));
        let many = LeakSummary::after(&place, requests * TIMES);
        (few.join().unwrap_or_else(|panic| resume_unwind(panic)), many)
    });
    let (few, many) = (few?, many?);
    println!("left after {requests} requests to each model: {few}");
    println!("left after {} requests to each model: {many}", requests * TIMES);
    ensure!(many.lost <= few.lost, "lost memory grows with requests");
    ensure!(many.reachable <= few.reachable + CHANCE, "memory that is still reachable grows with requests");
    Ok(())
}

/// Adds the arguments of the program.
fn asking(mut command: Command, place: &Path, requests: u32) -> Command {
    command.arg(place.join("models")).arg(place.join("plugins")).arg(requests.to_string());
    command
}

/// Compiles the plug-ins and the program, and writes the repository. Returns the path of the program.
fn build(place: &Path, flags: &[&str]) -> Result<PathBuf> {
    for (source, library) in PLUGINS {
        compile_plugin(source, &place.join("plugins").join(source).join(library), flags)?;
    }
    for (name, config) in models() {
        let directory = place.join("models").join(&name);
        files::make_folder(&directory.join("1"))?;
        fs::write(directory.join("config.pbtxt"), config)?;
        if STRATEGIES.contains(&name.as_str()) {
            compile_plugin(&name, &directory.join("batchstrategy.so"), flags)?;
        }
    }
    let program = place.join(PROGRAM);
    let library = workspace::target().join("debug");
    let mut command = compile(&workspace::root().join("crates/in-process/tests/memory/requests.c"), &program);
    command.arg("-L").arg(&library).arg("-ltritonserver");
    command.arg(format!("-Wl,-rpath,{}", library.display()));
    process::run(command.args(flags))?;
    Ok(program)
}

/// Models by name, with their configurations.
fn models() -> Vec<(String, String)> {
    let copying = |name: &str, rest: &str| (name.to_owned(), copying("identity", "INPUT0", "OUTPUT0", rest));
    let failing = |place: &str| {
        let config = copying_failing(&parameter("fail_at", place));
        (format!("failing_{place}"), config)
    };
    let batches = "dynamic_batching { max_queue_delay_microseconds: 500 }";
    let thread = parameter("thread", "true");
    let before = parameter("release", "before");
    let agent =
        "model_repository_agents { agents [ { name: 'agent' parameters { key: 'file' value: '1/word' }
        parameters { key: 'text' value: 'new' } parameters { key: 'release' value: 'true' } } ] }";
    let mut models = vec![
        copying("identity", batches),
        copying("identity_before", &before),
        copying("identity_thread", &format!("{batches} {thread}")),
        copying("identity_thread_before", &format!("{thread}{before}")),
        copying("cached", "response_cache { enable: true }"),
        copying("single_batch", batches),
        copying("volume_batch", &format!("{batches} {}", parameter("MAX_BATCH_VOLUME_BYTES", "40"))),
        copying("agent", agent),
        ("repeat".to_owned(), repeating("")),
        ("repeat_last".to_owned(), repeating(&parameter("final", "last"))),
        ("stateful".to_owned(), STATEFUL.to_owned()),
        ("stateful_in_place".to_owned(), STATEFUL.replace("state [ {", IN_PLACE)),
        ("iterate".to_owned(), iterating("direct { }", "last")),
        ("iterate_each".to_owned(), iterating("oldest { max_candidate_sequences: 4 }", "each")),
        ("config".to_owned(), CONFIG.to_owned()),
        ("failing".to_owned(), copying_failing("")),
    ];
    let places =
        ["model_initialize", "set_config", "instance_initialize", "instance_finalize", "model_finalize"];
    models.extend(places.map(failing));
    models
}

fn parameter(key: &str, value: &str) -> String {
    format!("parameters {{ key: '{key}' value {{ string_value: '{value}' }} }}\n")
}

fn copying(backend: &str, input: &str, output: &str, rest: &str) -> String {
    format!(
        "backend: '{backend}' max_batch_size: 8
        input [ {{ name: '{input}' data_type: TYPE_INT32 dims: [ -1 ] }} ]
        output [ {{ name: '{output}' data_type: TYPE_INT32 dims: [ -1 ] }} ]
        instance_group [ {{ kind: KIND_CPU count: 2 }} ]
        {rest}"
    )
}

fn copying_failing(rest: &str) -> String {
    copying("failing", "INPUT", "OUTPUT", rest)
}

fn repeating(rest: &str) -> String {
    format!(
        "backend: 'repeat' max_batch_size: 0
        input [ {{ name: 'IN' data_type: TYPE_INT32 dims: [ -1 ] }} ]
        output [ {{ name: 'OUT' data_type: TYPE_INT32 dims: [ 1 ] }},
                 {{ name: 'IDX' data_type: TYPE_UINT32 dims: [ 1 ] }} ]
        model_transaction_policy {{ decoupled: true }}
        instance_group [ {{ kind: KIND_CPU }} ]
        {rest}"
    )
}

/// Each request is executed as often as it says, together with whatever others are there.
fn iterating(strategy: &str, answers: &str) -> String {
    let decoupled = answers == "each";
    let parameters = parameter("answers", answers);
    format!(
        "backend: 'iterate' max_batch_size: 4
        input [ {{ name: 'IN' data_type: TYPE_INT32 dims: [ -1 ] }} ]
        output [ {{ name: 'SEEN' data_type: TYPE_INT32 dims: [ 3 ] }} ]
        instance_group [ {{ kind: KIND_CPU }} ]
        model_transaction_policy {{ decoupled: {decoupled} }}
        sequence_batching {{
          iterative_sequence: true
          {strategy}
          control_input [
            {{ name: 'START' control [ {{ kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] }} ] }},
            {{ name: 'READY' control [ {{ kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] }} ] }}
          ]
          state [ {{ input_name: 'seen_in' output_name: 'seen_out' data_type: TYPE_INT32 dims: [ 3 ] }} ]
        }}
        {parameters}"
    )
}

const CONFIG: &str = "backend: 'config' max_batch_size: 8
    input [ { name: 'INPUT' data_type: TYPE_INT32 dims: [ -1 ] } ]
    output [ { name: 'SEEN' data_type: TYPE_STRING dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU } ]";

/// A sequence may be idle for a minute: under valgrind, beside other work, a second may pass between two steps.
const STATEFUL: &str = "backend: 'stateful' max_batch_size: 4
    input [ { name: 'INPUT' data_type: TYPE_INT32 dims: [ 1 ] } ]
    output [ { name: 'OUTPUT' data_type: TYPE_INT32 dims: [ 1 ] }, { name: 'SEEN' data_type: TYPE_STRING dims: [ 1 ] } ]
    instance_group [ { kind: KIND_CPU } ]
    sequence_batching {
      max_sequence_idle_microseconds: 60000000
      direct { }
      control_input [
        { name: 'START' control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
        { name: 'END' control [ { kind: CONTROL_SEQUENCE_END fp32_false_true: [ 0, 1 ] } ] },
        { name: 'READY' control [ { kind: CONTROL_SEQUENCE_READY bool_false_true: [ false, true ] } ] },
        { name: 'CORRID' control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_UINT64 } ] }
      ]
      state [ {
        input_name: 'sum_in' output_name: 'sum_out' data_type: TYPE_INT32 dims: [ 1 ]
        initial_state { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true name: 'zero' }
      } ]
    }";

/// Begins a state that is written where its input lies.
const IN_PLACE: &str = "state [ { use_same_buffer_for_input_output: true";

/// Bytes that the program had not freed at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LeakSummary {
    /// No pointer leads to these bytes, or only a pointer to their middle.
    lost: u64,
    reachable: u64,
}

impl LeakSummary {
    /// Runs the program with that many requests to each model.
    ///
    /// # Errors
    /// Memory is used wrongly or definitely lost; or the program fails.
    fn after(place: &Path, requests: u32) -> Result<LeakSummary> {
        let log = place.join(format!("valgrind-{requests}.log"));
        let mut command = Command::new(VALGRIND.fetch()?);
        command.args(["--tool=memcheck", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"]);
        command.args(["--show-leak-kinds=definite,indirect", "--track-origins=yes", "--num-callers=30"]);
        let suppressions = workspace::root().join("crates/in-process/tests/memory/threads.supp");
        command.arg(format!("--suppressions={}", suppressions.display()));
        // Valgrind runs one thread at a time, each in its turn.
        command.args(["--fair-sched=yes", "--error-exitcode=99"]);
        command.arg(format!("--log-file={}", log.display()));
        command.arg(place.join(PROGRAM));
        let ended = process::run(&mut asking(command, place, requests));
        let words = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
        if let Err(error) = ended {
            let first: Vec<&str> = words.lines().take(80).collect();
            bail!("{error}\n{}\n(the rest is in {})", first.join("\n"), log.display());
        }
        LeakSummary::read(&words).with_context(|| format!("{} has no summary of leaks", log.display()))
    }

    /// Reads the summary. Valgrind prints none if no memory is left.
    fn read(words: &str) -> Option<LeakSummary> {
        if words.contains("All heap blocks were freed") {
            return Some(LeakSummary { lost: 0, reachable: 0 });
        }
        let bytes = |kind: &str| {
            let (_, rest) = words.split_once(&format!("{kind}: "))?;
            rest.split(' ').next()?.replace(',', "").parse::<u64>().ok()
        };
        let lost = bytes("definitely lost")? + bytes("indirectly lost")? + bytes("possibly lost")?;
        Some(LeakSummary { lost, reachable: bytes("still reachable")? })
    }
}

impl std::fmt::Display for LeakSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes lost or possibly lost, {} reachable", self.lost, self.reachable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_leaks_is_read() {
        let words = "==1== LEAK SUMMARY:\n==1==    definitely lost: 1,024 bytes in 2 blocks\n\
                     ==1==    indirectly lost: 2 bytes in 1 blocks\n==1==      possibly lost: 1,000,000 bytes in 3 blocks\n\
                     ==1==    still reachable: 7 bytes in 1 blocks\n==1==         suppressed: 5 bytes in 1 blocks\n";
        assert_eq!(LeakSummary::read(words), Some(LeakSummary { lost: 1_001_026, reachable: 7 }));
        let none = "==1== All heap blocks were freed -- no leaks are possible";
        assert_eq!(LeakSummary::read(none), Some(LeakSummary { lost: 0, reachable: 0 }));
        assert_eq!(LeakSummary::read("==1== Process terminating"), None);
    }

    #[test]
    fn every_model_has_a_name_of_its_own() {
        let mut names: Vec<_> = models().into_iter().map(|(name, _)| name).collect();
        names.sort();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        assert!(STRATEGIES.iter().all(|name| names.iter().any(|model| model == name)));
    }
}
