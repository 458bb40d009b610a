//! Rules that a program can check and no other tool does.

mod circles;
mod dependencies;
mod layers;
mod names;
mod source_graph;
mod sources;
mod timing;
mod timing_exceptions;

use anyhow::Result;

use crate::{abi, workspace};

/// Checks all rules and prints violations. Returns whether there are none.
pub(crate) fn run() -> Result<bool> {
    let packages = workspace::packages()?;
    let layers = layers::broken(&packages);
    let circles = circles::broken(&workspace::root(), &packages)?;
    let dependencies = dependencies::broken(&workspace::root(), &packages)?;
    let sources = sources::check(&workspace::root())?;
    let names = names::broken(&workspace::root())?;
    let abi = abi::broken(&workspace::root())?;
    let timing = timing::broken(&workspace::root())?;
    println!("layers: {}", verdict(&layers));
    println!("circles of files: {}", verdict(&circles));
    println!("used dependencies: {}", verdict(&dependencies));
    println!("C interfaces: {}", verdict(&abi));
    println!("type names: {}", verdict(&names));
    println!("time in tests: {}", verdict(&timing));
    println!("sources: {} files, {}", sources.files, verdict(&sources.broken));
    for path in &sources.long_but_excepted {
        println!("  long, but tests and generated code may be: {path}");
    }
    for exception in timing_exceptions::EXCEPTIONS {
        println!("  may use time: {exception}");
    }
    let all = [&layers, &circles, &dependencies, &abi, &names, &timing, &sources.broken];
    for line in all.into_iter().flatten() {
        println!("  {line}");
    }
    Ok(all.into_iter().all(Vec::is_empty))
}

fn verdict(broken: &[String]) -> String {
    match broken.len() {
        0 => "all rules kept".into(),
        count => format!("{count} rules broken"),
    }
}
