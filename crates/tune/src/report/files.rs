//! The files of a run: the configuration, the page, its plots and the measurements.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{charts, page};
use crate::search::TuningPoint;
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
