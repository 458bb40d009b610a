//! A pipeline of three models as an ensemble, beside a program that runs the models without a server, and beside a client
//! that calls them one after the other.
//!
//! The program has a thread for each model, as the server has an instance with one thread for each, and the batch sizes
//! at which each model is fastest alone. It copies nothing between them, so no server can be faster.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::part_result::PartResult;
use crate::bench::bare_loop::{BareLoopProgram, fastest};
use crate::bench::bare_programs;
use crate::bench::row::{BenchProtocol, BenchRow};
use crate::bench::server_contender::ServerContender;
use crate::bench::setup::BenchSetup;
use crate::bench::table::{Figures, cells, median, table_head};
use crate::bench::turns::turns;
use crate::console::heading;
use crate::process;
use crate::tools::runtime_library;

const PROTOCOLS: [BenchProtocol; 2] = [BenchProtocol::HttpBinary, BenchProtocol::Grpc];
/// Requests that are open at a time.
const CALLERS: u32 = 64;
/// Batch sizes that the program may use. The last one is the most that the server uses.
const BATCHES: [u32; 5] = [1, 2, 4, 8, 16];
/// How long each of them is tried.
const TRIAL_SECONDS: u32 = 1;

struct Pipeline {
    ensemble: &'static str,
    members: [&'static str; 3],
    /// The least ratio to the program; `None` where computing is not what a request costs.
    goal: Option<f64>,
}

const PIPELINES: [Pipeline; 3] = [
    Pipeline { ensemble: "pipeline", members: ["resize_normalise", "net", "top_k"], goal: Some(0.95) },
    Pipeline { ensemble: "light_pipeline", members: ["resize_normalise", "light_net", "top_k"], goal: None },
    Pipeline { ensemble: "photo_pipeline", members: ["shrink_normalise", "patch_net", "top_k"], goal: None },
];

/// The least ratio to the calls of a client.
const CALLS_GOAL: f64 = 1.5;

/// Who runs the pipeline.
#[derive(Clone, Copy, PartialEq, Debug)]
enum PipelineKind {
    Ensemble,
    Program,
    Calls,
    Reference,
}

impl PipelineKind {
    fn name(self) -> &'static str {
        match self {
            PipelineKind::Ensemble => "ensemble",
            PipelineKind::Program => "program",
            PipelineKind::Calls => "three calls",
            PipelineKind::Reference => "reference",
        }
    }
}

/// The figures of a kind, a place for each round.
struct KindRounds {
    kind: PipelineKind,
    rounds: Vec<Option<Figures>>,
}

/// The models without a server.
struct Program<'a> {
    setup: &'a BenchSetup,
    binary: PathBuf,
    /// `MODEL:BATCH` for each step.
    steps: Vec<String>,
}

pub(super) fn run(setup: &BenchSetup) -> Result<Option<PartResult>> {
    let wanted =
        |pipeline: &&Pipeline| PROTOCOLS.iter().any(|&protocol| setup.options.wants(&pipeline.row(protocol)));
    let pipelines: Vec<&Pipeline> = PIPELINES.iter().filter(wanted).collect();
    if pipelines.is_empty() {
        return Ok(None);
    }
    let bare = BareLoopProgram::build(setup)?;
    let ours = ServerContender::ours(setup, "ours", &[])?;
    let reference = reference(setup);
    let (mut table, mut failed) = (head(), 0.0);
    for pipeline in pipelines {
        heading(pipeline.ensemble);
        let program = Program::of(setup, &bare, pipeline)?;
        for protocol in PROTOCOLS.into_iter().filter(|&protocol| setup.options.wants(&pipeline.row(protocol)))
        {
            let row = pipeline.row(protocol);
            heading(&row);
            let kinds = measure(setup, pipeline, protocol, (&ours, reference.as_ref()), &program)?;
            for kind in &kinds {
                table.push_str(&line(&row, kind, &kinds[0], pipeline.goal));
            }
            let to_ours = kinds.iter().filter(|kind| kind.kind != PipelineKind::Reference);
            failed += to_ours.flat_map(|kind| kind.rounds.iter().flatten()).map(Figures::errors).sum::<f64>();
        }
    }
    Ok(Some(PartResult { table, failed }))
}

impl Pipeline {
    /// The name of a row.
    fn row(&self, protocol: BenchProtocol) -> String {
        format!("ensemble {} {} x{CALLERS}", self.ensemble, protocol.name())
    }
}

/// The reference, if there is one and it can serve the pipelines.
fn reference(setup: &BenchSetup) -> Option<ServerContender> {
    let started = ServerContender::reference(setup, "reference", &[]);
    started.inspect_err(|error| println!("without the reference: {error:#}")).ok().flatten()
}

/// The rounds of all kinds, the ensemble first. The kinds take turns.
fn measure(
    setup: &BenchSetup,
    pipeline: &Pipeline,
    protocol: BenchProtocol,
    (ours, reference): (&ServerContender, Option<&ServerContender>),
    program: &Program<'_>,
) -> Result<Vec<KindRounds>> {
    use PipelineKind::{Calls, Ensemble, Program, Reference};
    let seconds = setup.options.seconds;
    let row = |model| BenchRow::closed_loop(String::new(), model, protocol, CALLERS);
    let [first, further @ ..] = pipeline.members;
    let chain = further.map(|member| format!("--then={member}"));
    let once = |kind| match kind {
        Ensemble => ours.measure(&row(pipeline.ensemble), seconds).map(Some),
        Calls => ours.measure_with(&row(first), seconds, &chain).map(Some),
        Program => program.measure(seconds).map(Some),
        // The reference may not survive this. Its rounds until then count.
        Reference => Ok(reference.and_then(|reference| {
            let figures = reference.measure(&row(pipeline.ensemble), seconds);
            figures.inspect_err(|error| println!("reference: {error:#}")).ok()
        })),
    };
    let mut all: Vec<KindRounds> = [Ensemble, Program, Calls, Reference]
        .into_iter()
        .filter(|&kind| kind != Reference || reference.is_some())
        .map(|kind| KindRounds { kind, rounds: Vec::new() })
        .collect();
    for round in 0..setup.options.rounds {
        for index in turns(round, all.len()) {
            let figures = once(all[index].kind)?;
            let shown = figures.as_ref().map_or("-".into(), Figures::line);
            println!("{:<12} {shown}", all[index].kind.name());
            all[index].rounds.push(figures);
        }
    }
    Ok(all)
}

impl<'a> Program<'a> {
    /// The program with each model at the batch size where it is fastest alone.
    fn of(setup: &'a BenchSetup, bare: &BareLoopProgram, pipeline: &Pipeline) -> Result<Program<'a>> {
        let binary = bare_programs::build("backend-onnx", "bare_pipeline")?;
        let mut steps = Vec::new();
        for member in pipeline.members {
            let model = setup.folder.join("ours").join(member).join("1/model.onnx");
            let bare = bare.with_model(model.clone());
            let rates = BATCHES
                .map(|batch| bare.inferences_per_second(batch, TRIAL_SECONDS).map(|rate| (batch, rate)));
            let (batch, rate) = fastest(rates.into_iter().collect::<Result<Vec<_>>>()?)?;
            println!("{member} alone: batch {batch}, {rate:.0} inferences/s");
            steps.push(format!("{}:{batch}", model.display()));
        }
        Ok(Program { setup, binary, steps })
    }

    fn measure(&self, seconds: u32) -> Result<Figures> {
        let mut command = Command::new(&self.binary);
        command.env(runtime_library::VARIABLE, &self.setup.library);
        self.steps.iter().for_each(|step| {
            command.args(["--step", step]);
        });
        command.args(["--rows", &CALLERS.to_string(), "--seconds", &seconds.to_string(), "--threads", "1"]);
        let rate = bare_programs::figure(&process::output(&mut command)?, "rows_per_second")?;
        Ok(Figures::of_bare_loop(rate))
    }
}

fn head() -> String {
    table_head(
        &["row", "contender"],
        &["rounds", "req/s", "p50 us", "p99 us", "server us/req", "ensemble : this", "goal", "failed"],
    )
}

/// The medians. The ratio is the median of the rounds' ratios.
fn line(row: &str, of: &KindRounds, ensemble: &KindRounds, program_goal: Option<f64>) -> String {
    let taken = || of.rounds.iter().flatten();
    let column = |name: &str| median(taken().filter_map(|figures| figures.column(name)));
    let rate = |figures: &Option<Figures>| figures.as_ref()?.column("inferences_per_second");
    let both = ensemble.rounds.iter().zip(&of.rounds);
    let ratio = median(both.filter_map(|(ours, theirs)| Some(rate(ours)? / rate(theirs)?)));
    let goal = match of.kind {
        PipelineKind::Program => program_goal.unwrap_or(f64::NAN),
        PipelineKind::Calls => CALLS_GOAL,
        PipelineKind::Ensemble | PipelineKind::Reference => f64::NAN,
    };
    #[expect(clippy::cast_precision_loss, reason = "few rounds")]
    let rounds = taken().count() as f64;
    let numbers = [
        (rounds, 0),
        (column("inferences_per_second"), 0),
        (column("p50_us"), 0),
        (column("p99_us"), 0),
        (column("server_us_per_request"), 1),
        (ratio, 2),
        (goal, 2),
        (taken().map(Figures::errors).sum(), 0),
    ];
    format!("| {row} | {} |{}", of.kind.name(), cells(&numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(kind: PipelineKind, rates: &[Option<f64>]) -> KindRounds {
        let rounds = rates.iter().map(|rate| rate.map(Figures::of_bare_loop)).collect();
        KindRounds { kind, rounds }
    }

    #[test]
    fn ratios_are_taken_within_rounds_that_both_have() {
        let ensemble = rounds(PipelineKind::Ensemble, &[Some(90.0), Some(500.0), Some(99.0)]);
        let program = rounds(PipelineKind::Program, &[Some(100.0), Some(1000.0), Some(100.0)]);
        assert_eq!(
            line("x", &program, &ensemble, Some(0.95)),
            "| x | program | 3 | 100 | - | - | - | 0.90 | 0.95 | 0 |\n"
        );
        let gone = rounds(PipelineKind::Reference, &[Some(45.0), None, None]);
        assert_eq!(
            line("x", &gone, &ensemble, None),
            "| x | reference | 1 | 45 | - | - | - | 2.00 | - | 0 |\n"
        );
        let columns = |text: &str| text.lines().map(|line| line.matches('|').count()).collect::<Vec<_>>();
        assert_eq!(columns(&head()), [columns(&line("x", &gone, &ensemble, None))[0]; 2]);
    }
}
