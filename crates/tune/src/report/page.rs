//! The page: what was chosen, and why, in sentences, tables and plots.

use std::fmt::Write;

use plot::escaped;

use super::alternatives::alternatives;
use super::charts::batches;
use super::sentences::{figures, gain, milliseconds, missed, percent, rule};
use crate::search::{SearchPlan, TuningPoint};
use crate::tuning::{ProcessorShares, TuningResult};

/// So many processors of other programs disturb.
const DISTURBING: f64 = 0.2;

const STYLE: &str = "body{font-family:sans-serif;max-width:62em;margin:2em auto;padding:0 1em;line-height:1.45}\
table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:.25em .7em;text-align:left}\
tr.chosen{background:#e3f4e6}pre{background:#f4f4f4;padding:1em;overflow:auto}svg{max-width:54em}\
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}td,th{border-color:#30363d}\
tr.chosen{background:#12351b}pre{background:#161b22}}";

/// The page with its plots.
pub(super) fn html(result: &mut TuningResult, throughput: &str, cost: &str) -> String {
    let title = format!("Tuning of model {}", escaped(&result.options.model));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>{title}</title><style>{STYLE}</style>\
         </head><body>\n<h1>{title}</h1>\n"
    );
    paragraph(&mut page, &chosen(result));
    let percentile = result.options.percentile.name;
    paragraph(&mut page, &rule(result.options.goal, percentile));
    page.push_str(throughput);
    section(&mut page, "What was measured", &[measured(result), processors(result)]);
    section(&mut page, "What a batch costs", &cost_sentences(result));
    page.push_str(cost);
    page.push_str("<h2>Why others lose</h2>\n");
    paragraph(
        &mut page,
        "For each value, the best point that has it. The difference is to the choice. A point that was not measured is a \
         prediction of the model.",
    );
    page.push_str(&alternative_tables(result));
    page.push_str("<h2>How sure this is</h2>\n");
    paragraph(&mut page, &certainty(result));
    page.push_str(&finalist_table(result));
    if !result.failures.is_empty() {
        page.push_str("<h2>What could not be measured</h2>\n<ul>\n");
        for (point, reason) in &result.failures {
            let _ = writeln!(page, "<li>{}: {}</li>", escaped(&point.to_string()), escaped(reason));
        }
        page.push_str("</ul>\n");
    }
    let _ = write!(
        page,
        "<h2>The configuration</h2>\n<pre>{}</pre>\n</body></html>\n",
        escaped(&result.tuned_text)
    );
    page
}

fn paragraph(page: &mut String, text: &str) {
    let _ = writeln!(page, "<p>{}</p>", escaped(text));
}

fn section(page: &mut String, heading: &str, paragraphs: &[String]) {
    let _ = writeln!(page, "<h2>{heading}</h2>");
    for text in paragraphs {
        paragraph(page, text);
    }
}

fn chosen(result: &mut TuningResult) -> String {
    let percentile = result.options.percentile.name;
    let estimate = result.search.estimate(&result.chosen);
    let mut text = format!("Chosen: {}. It has {}.", result.chosen, figures(&estimate, percentile));
    if let Some((present, gain)) = gain(result) {
        let figures = figures(&present, percentile);
        let _ = write!(
            text,
            " The present setting has {figures} with as many callers. The choice changes throughput by {gain}."
        );
    } else if result.chosen.setting == result.search.space().present {
        text.push_str(" This is the setting that the model has now.");
    }
    if let Some(missed) = missed(result) {
        let _ = write!(text, " {missed}");
    }
    text
}

fn measured(result: &TuningResult) -> String {
    let samples = result.search.samples();
    let space = result.search.space();
    let mut points: Vec<TuningPoint> = samples.iter().map(|sample| sample.point).collect();
    points.sort_unstable();
    points.dedup();
    let how = match result.options.plan {
        SearchPlan::Model => "The search measured",
        SearchPlan::Exhaustive => "The sweep measured",
    };
    let end = if result.was_interrupted { " The user ended it early." } else { "" };
    format!(
        "{how} {} of {} points in {} rounds, within {:.0} seconds.{end} A point is a setting and a number of callers. Each \
         caller sends one row over HTTP, and sends its next request when it has its answer. The figures of a point are estimates \
         from all rounds: neighbouring points support each other. The file measurements.csv has the rounds.",
        points.len(),
        space.points().count(),
        samples.len(),
        result.elapsed.as_secs_f64()
    )
}

fn processors(result: &TuningResult) -> String {
    let ProcessorShares { client, server, others } = result.processors_used;
    let mut text = format!(
        "The load generator ran on the same machine, which has {} processors for both. In the mean it used {client:.2} of them, \
         and the server used {server:.2}. With clients on other machines the server has more.",
        result.search.space().processors
    );
    if let Some(others) = others {
        let _ = write!(text, " Other programs used {others:.2}.");
        if others > DISTURBING {
            text.push_str(
                " They disturbed the measurements. Repeat them on a quiet machine for reliable figures.",
            );
        }
    }
    text
}

fn cost_sentences(result: &mut TuningResult) -> Vec<String> {
    let mut sentences = Vec::new();
    let (times, line) = batches(result);
    if let Some(line) = line {
        let (one, eight) = (line.batch_ms + line.row_ms, line.batch_ms + 8.0 * line.row_ms);
        sentences.push(format!(
            "With the chosen instances and threads, a batch takes {:.3} ms, and {:.3} ms for each row. So eight rows together \
             take {:.1} times as long as one row: they {}.",
            line.batch_ms,
            line.row_ms,
            eight / one.max(1e-9),
            if eight < 6.0 * one { "save time" } else { "hardly save time" }
        ));
    } else if times.is_empty() {
        sentences.push("The server has counted no batches.".to_owned());
    } else {
        sentences.push("With the chosen instances and threads, all batches had the same size.".to_owned());
    }
    let cost = result.search.cost();
    let space = result.search.space();
    let instances = result.chosen.setting.instances;
    let slowdown = cost.slowdown(f64::from(instances), result.chosen.setting.threads);
    let mut text = format!(
        "The model of the cost over all rounds: {:.3} ms for a batch, {:.3} ms for each row, and {:.3} ms for each request \
         outside of the batch.",
        cost.batch_ms, cost.row_ms, cost.request_ms
    );
    if space.settings.iter().any(|setting| setting.threads.is_some_and(|threads| threads > 1)) {
        let _ = write!(text, " Threads divide {:.0} % of a batch among themselves.", cost.parallel * 100.0);
    }
    if instances > 1 {
        let _ = write!(
            text,
            " With {instances} busy instances, a batch takes {slowdown:.2} times as long as alone."
        );
    }
    sentences.push(text);
    sentences
}

fn alternative_tables(result: &mut TuningResult) -> String {
    let (goal, percentile) = (result.options.goal, result.options.percentile.name);
    let best = result.search.estimate(&result.chosen);
    let mut text = String::new();
    for dimension in alternatives(result) {
        let _ = writeln!(
            text,
            "<table><tr><th>{}</th><th>best point</th><th>requests/s</th><th>p{percentile} ms</th><th>throughput</th>\
             <th>latency</th><th></th></tr>",
            dimension.name
        );
        for of in dimension.values {
            let class = if of.is_chosen { " class=\"chosen\"" } else { "" };
            let note = match (of.is_chosen, goal.is_kept(&of.estimate), of.rounds) {
                (true, ..) => "chosen",
                (_, false, 0) => "predicted; misses the target",
                (_, false, _) => "misses the target",
                (_, true, 0) => "predicted",
                (_, true, _) => "",
            };
            let _ = writeln!(
                text,
                "<tr{class}><td>{}</td><td>{}</td><td>{:.0}</td><td>{}</td><td>{}</td><td>{}</td><td>{note}</td></tr>",
                of.value,
                escaped(&of.point.to_string()),
                of.estimate.rate.exp(),
                milliseconds(of.estimate.latency.exp()),
                percent(of.estimate.rate - best.rate),
                percent(of.estimate.latency - best.latency)
            );
        }
        text.push_str("</table>\n");
    }
    text
}

fn certainty(result: &mut TuningResult) -> String {
    let goal = result.options.goal;
    let finalists = result.search.finalists();
    let chosen = result.search.estimate(&result.chosen);
    let mut text = format!(
        "One round differs from the next by {:.1} % of its throughput (standard deviation, estimated).",
        result.search.noise() * 100.0
    );
    let (worth, sd) = goal.worth(&chosen);
    let near = finalists.iter().filter(|(point, estimate)| {
        let (other, other_sd) = goal.worth(estimate);
        let blur = 2.0 * (sd.powi(2) + other_sd.powi(2)).sqrt();
        *point != result.chosen && goal.is_kept(estimate) && other > worth - blur
    });
    match near.count() {
        0 => text.push_str(" No other setting that was measured is as good within the noise."),
        count => {
            let _ = write!(
                text,
                " {count} of the settings below cannot be told from the choice. Of settings that are equally good, the one that \
                 takes the fewest instances and threads is chosen."
            );
        }
    }
    text.push_str(
        " Other programs on the machine disturb the rounds, and their noise is a part of this estimate.",
    );
    text
}

fn finalist_table(result: &mut TuningResult) -> String {
    let percentile = result.options.percentile.name;
    let mut text = format!(
        "<table><tr><th>point</th><th>requests/s</th><th>p{percentile} ms</th><th>rounds</th></tr>\n"
    );
    for (point, estimate) in result.search.finalists() {
        let class = if point == result.chosen { " class=\"chosen\"" } else { "" };
        let _ = writeln!(
            text,
            "<tr{class}><td>{}</td><td>{:.0} ± {:.0}</td><td>{} ± {}</td><td>{}</td></tr>",
            escaped(&point.to_string()),
            estimate.rate.exp(),
            estimate.rate.exp() * estimate.rate_sd,
            milliseconds(estimate.latency.exp()),
            milliseconds(estimate.latency.exp() * estimate.latency_sd),
            result.search.count(&point)
        );
    }
    text + "</table>\n"
}
