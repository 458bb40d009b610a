//! The files of a run: the configuration, and the report that says why.

mod alternatives;
mod charts;
mod page;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::search::{Estimate, TuningGoal, TuningPoint};
use crate::tuning::TuningResult;

/// Writes the configuration, the page, its plots and the measurements into the folder of the options.
///
/// # Errors
/// A file cannot be written.
pub fn write(result: &mut TuningResult) -> Result<()> {
    let folder = result.options.output.clone();
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let throughput = charts::throughput(result);
    let cost = charts::cost(result);
    let page = page::html(result, &throughput, &cost);
    for (name, text) in [
        ("config.pbtxt", &result.tuned_text),
        ("config.before.pbtxt", &result.given_text),
        ("throughput.svg", &throughput),
        ("cost.svg", &cost),
        ("report.html", &page),
        ("measurements.csv", &csv(result)),
    ] {
        write_file(&folder.join(name), text)?;
    }
    Ok(())
}

/// Checks that files can be written into a folder, which may not exist yet. Leaves nothing there.
///
/// # Errors
/// It is no folder and cannot become one, or it cannot be written.
pub fn check_writable(folder: &Path) -> Result<()> {
    let cannot = || format!("cannot write into {}", folder.display());
    let here = Path::new(".");
    let mut ancestors = folder.ancestors().map(|path| if path.as_os_str().is_empty() { here } else { path });
    // A link that leads nowhere exists, too.
    let existing = ancestors.find(|path| path.symlink_metadata().is_ok()).unwrap_or(here);
    let probe = tempfile::Builder::new().prefix(".nereid-tune-").tempfile_in(existing);
    probe.and_then(tempfile::NamedTempFile::close).with_context(cannot)
}

/// Writes a file so that it is never half there.
///
/// # Errors
/// It cannot be written.
pub fn write_file(path: &Path, text: &str) -> Result<()> {
    let writing = || format!("cannot write {}", path.display());
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file =
        tempfile::Builder::new().prefix(".nereid-tune-").tempfile_in(folder).with_context(writing)?;
    std::io::Write::write_all(&mut file, text.as_bytes()).with_context(writing)?;
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(file.path(), permissions).with_context(writing)?;
    file.persist(path).map(drop).with_context(writing)
}

/// Every measurement in order.
fn csv(result: &TuningResult) -> String {
    let mut text = "instances,threads,batch,delay_us,callers,requests_per_second,latency_ms\n".to_owned();
    for sample in result.search.samples() {
        let TuningPoint { setting, callers } = sample.point;
        let threads = setting.threads.map_or(String::new(), |threads| threads.to_string());
        text.push_str(&format!(
            "{},{threads},{},{},{callers},{:.2},{:.4}\n",
            setting.instances, setting.batch, setting.delay_us, sample.rate, sample.latency_ms
        ));
    }
    text
}

/// A rate and a latency in words.
fn figures(estimate: &Estimate, percentile: &str) -> String {
    format!(
        "{:.0} requests/s at p{percentile} {} ms",
        estimate.rate.exp(),
        milliseconds(estimate.latency.exp())
    )
}

fn milliseconds(value: f64) -> String {
    if value >= 10.0 { format!("{value:.1}") } else { format!("{value:.2}") }
}

/// A difference of logarithms as a percentage with its sign.
fn percent(difference: f64) -> String {
    format!("{:+.0} %", (difference.exp() - 1.0) * 100.0)
}

/// The rule of the goal as a sentence.
fn rule(goal: TuningGoal, percentile: &str) -> String {
    match goal {
        TuningGoal::Latency(most) => {
            format!("The best point has the highest throughput whose p{percentile} is not above {most} ms.")
        }
        TuningGoal::Throughput(least) => {
            format!(
                "The best point has the lowest p{percentile} whose throughput is not below {least} requests/s."
            )
        }
        TuningGoal::Knee => format!(
            "No target was given. The best point is the knee: it has the largest throughput / p{percentile}^0.25. So a \
             latency that is twice as long must bring 19 % more throughput."
        ),
    }
}

/// The result in a few lines, for the terminal.
#[must_use]
pub fn summary(result: &mut TuningResult) -> String {
    let chosen = result.search.estimate(&result.chosen);
    let percentile = result.options.percentile.name;
    let mut text =
        format!("{}: {}\n  {}\n", result.options.model, result.chosen, figures(&chosen, percentile));
    if let Some((present, gain)) = gain(result) {
        let figures = figures(&present, percentile);
        text.push_str(&format!(
            "  as it is now, with as many callers: {figures} ({gain} throughput by the change)\n"
        ));
    }
    if let Some(missed) = missed(result) {
        text.push_str(&format!("  {missed}\n"));
    }
    text
}

/// What the present setting has with the callers of the choice, and what the choice gains. `None` if it was not measured,
/// or was chosen.
fn gain(result: &mut TuningResult) -> Option<(Estimate, String)> {
    let present = TuningPoint { setting: result.search.space().present, callers: result.chosen.callers };
    if present == result.chosen || result.search.count(&present) == 0 {
        return None;
    }
    let (own, chosen) = (result.search.estimate(&present), result.search.estimate(&result.chosen));
    Some((own, percent(chosen.rate - own.rate)))
}

/// What is missing if no point keeps the limit.
fn missed(result: &mut TuningResult) -> Option<String> {
    let chosen = result.search.estimate(&result.chosen);
    if result.options.goal.is_kept(&chosen) {
        return None;
    }
    let told = figures(&chosen, result.options.percentile.name);
    Some(match result.options.goal {
        TuningGoal::Latency(most) => format!("No point keeps {most} ms. The nearest has {told}."),
        TuningGoal::Throughput(least) => {
            format!("No point reaches {least} requests/s. The nearest has {told}.")
        }
        TuningGoal::Knee => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_checked_without_a_trace() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink(at("nowhere"), at("link")).unwrap();
        for good in ["", "new", "new/and/deeper"] {
            check_writable(&at(good)).unwrap();
        }
        for bad in ["file", "file/below", "link", "link/below"] {
            let error = check_writable(&at(bad)).unwrap_err();
            assert!(error.to_string().ends_with(bad), "{error:#}");
        }
        assert!(check_writable(Path::new("/proc/nothing/here")).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
