//! What a step of an ensemble costs: the server's processor time for a tiny model, for an ensemble of one step with it, and
//! for an ensemble of five.
//!
//! A further step costs the fourth part of what five steps cost more than one. A part of that is the execution of the
//! model, which the server's statistics of the plain requests tell. The rest is what the ensemble adds.

use anyhow::{Context, Result};

use super::executed_time::ExecutedTime;
use super::part_result::PartResult;
use crate::bench::row::{BenchProtocol, BenchRow};
use crate::bench::server_contender::ServerContender;
use crate::bench::setup::BenchSetup;
use crate::bench::table::{cells, median, table_head};
use crate::bench::turns::turns;
use crate::console::heading;

/// The plain model and the two ensembles with it.
const MODELS: [&str; 3] = ["tiny", "one_step", "five_steps"];
/// How many steps the larger ensemble has more than the smaller one.
const FURTHER_STEPS: f64 = 4.0;
const CALLERS: [u32; 3] = [1, 16, 64];
/// The most microseconds that a step may cost beside its execution.
const GOAL_US: f64 = 3.0;

/// A round: microseconds of the server's processor time for a request, and of an execution of the plain model.
#[derive(Clone, Copy, Default)]
struct StepRound {
    plain: f64,
    one: f64,
    five: f64,
    execution: f64,
}

impl StepRound {
    /// What each step after the first one costs, with its execution.
    fn further(self) -> f64 {
        (self.five - self.one) / FURTHER_STEPS
    }

    /// The same without its execution.
    fn beside_execution(self) -> f64 {
        self.further() - self.execution
    }

    /// What it costs to ask an ensemble of one step instead of its model.
    fn ensemble(self) -> f64 {
        self.one - self.plain
    }
}

pub(super) fn run(setup: &BenchSetup) -> Result<Option<PartResult>> {
    let mut rows = Vec::new();
    for protocol in [BenchProtocol::HttpBinary, BenchProtocol::Grpc] {
        for callers in CALLERS {
            let name = format!("ensemble step {} x{callers}", protocol.name());
            if setup.options.wants(&name) {
                rows.push((name, protocol, callers));
            }
        }
    }
    if rows.is_empty() {
        return Ok(None);
    }
    let ours = ServerContender::ours(setup, "ours", &[])?;
    let (mut table, mut failed) = (head(), 0.0);
    for (name, protocol, callers) in rows {
        heading(&name);
        let mut rounds = Vec::new();
        for round in 0..setup.options.rounds {
            let (figures, errors) = measure(&ours, protocol, callers, round, setup.options.seconds)?;
            rounds.push(figures);
            failed += errors;
        }
        table.push_str(&line(&name, &rounds));
    }
    Ok(Some(PartResult { table, failed }))
}

/// One round, and how many requests failed. Each round begins with another model.
fn measure(
    ours: &ServerContender,
    protocol: BenchProtocol,
    callers: u32,
    round: usize,
    seconds: u32,
) -> Result<(StepRound, f64)> {
    let (mut taken, mut execution, mut errors) = ([0.0; MODELS.len()], 0.0, 0.0);
    for index in turns(round, MODELS.len()) {
        let model = MODELS[index];
        let before = ExecutedTime::of(ours, MODELS[0])?;
        let row = BenchRow::closed_loop(String::new(), model, protocol, callers);
        let figures = ours.measure(&row, seconds)?;
        println!("{model:<12} {}", figures.line());
        taken[index] = figures.column("server_us_per_request").context("there is no processor time")?;
        errors += figures.errors();
        if index == 0 {
            execution = ExecutedTime::of(ours, model)?.each_since(before)?;
        }
    }
    let [plain, one, five] = taken;
    Ok((StepRound { plain, one, five, execution }, errors))
}

fn head() -> String {
    let numbers = [
        "plain us",
        "one step us",
        "five steps us",
        "a further step us",
        "its execution us",
        "a step beside its execution us",
        "goal us",
        "one step - plain us",
    ];
    table_head(&["row"], &numbers)
}

/// The medians. Differences are medians of the rounds' differences.
fn line(row: &str, rounds: &[StepRound]) -> String {
    let of = |value: fn(&StepRound) -> f64| median(rounds.iter().map(value));
    let numbers = [
        (of(|round| round.plain), 1),
        (of(|round| round.one), 1),
        (of(|round| round.five), 1),
        (of(|round| round.further()), 1),
        (of(|round| round.execution), 1),
        (of(|round| round.beside_execution()), 1),
        (GOAL_US, 1),
        (of(|round| round.ensemble()), 1),
    ];
    format!("| {row} |{}", cells(&numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_costs_the_difference_of_the_ensembles_without_its_execution() {
        let round = StepRound { plain: 10.0, one: 15.0, five: 35.0, execution: 3.5 };
        assert_eq!((round.further(), round.beside_execution(), round.ensemble()), (5.0, 1.5, 5.0));
        assert_eq!(line("x", &[round]), "| x | 10.0 | 15.0 | 35.0 | 5.0 | 3.5 | 1.5 | 3.0 | 5.0 |\n");
    }

    #[test]
    fn differences_are_taken_within_rounds() {
        // The machine was half as fast in the second round.
        let rounds = [(10.0, 12.0, 20.0), (20.0, 24.0, 40.0), (11.0, 13.0, 21.0)];
        let rounds = rounds.map(|(plain, one, five)| StepRound { plain, one, five, execution: 1.0 });
        assert_eq!(line("x", &rounds), "| x | 11.0 | 13.0 | 21.0 | 2.0 | 1.0 | 1.0 | 3.0 | 2.0 |\n");
        let columns = |text: &str| text.lines().map(|line| line.matches('|').count()).collect::<Vec<_>>();
        assert_eq!(columns(&head()), [columns(&line("x", &rounds))[0]; 2]);
    }
}
