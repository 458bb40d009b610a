//! Checks all rules.

use anyhow::Result;

use super::exception_list::Upkeep;
use super::{
    circles, declared_files, dependencies, explanations, layers, layout, life_of_a_request, names,
    page_paths, python_graph, rust_graph, sources, timing, timing_exceptions, type_shape,
};
use crate::{abi, repository_files, workspace};

/// Checks all rules and prints violations. Returns whether there are none.
///
/// # Errors
/// A source or a list cannot be read, or what is to be renewed cannot be written.
pub(crate) fn run(upkeep: Upkeep) -> Result<bool> {
    let root = workspace::root();
    let packages = workspace::packages()?;
    let graphs = rust_graph::of_products(&packages)?;
    let rust = repository_files::texts(&root, &["*.rs"])?;
    let files = repository_files::paths(&root, &[])?;
    let python = python_graph::of_modules(&repository_files::texts(&root, &["*.py"])?);
    let sources = sources::check(&root)?;
    let life = life_of_a_request::broken(&root, &rust, &names::of_types(&rust), upkeep)?;
    // After the life of a request, which may renew the table in a page.
    let pages = repository_files::texts(&root, &["*.md"])?;
    let verdicts = [
        ("layers", layers::broken(&packages)),
        ("circles of files", circles::broken(&root, graphs.iter().chain([&python]), upkeep)?),
        ("declared files", declared_files::broken(&rust)),
        ("layout of modules", layout::broken(&root, &graphs, upkeep)?),
        ("shape of types", type_shape::broken(&root, &rust, upkeep)?),
        ("life of a request", life),
        ("paths in pages", page_paths::broken(&files, &pages, &packages)),
        ("used dependencies", dependencies::broken(&root, &packages)?),
        ("C interfaces", abi::broken(&root)?),
        ("type names", names::broken(&root, &rust, &abi::type_names(&root)?, upkeep)?),
        ("time in tests", timing::broken(&root)?),
        ("explained differences", explanations::broken(&root)?),
        ("sources", sources.broken),
    ];
    for (name, broken) in &verdicts {
        match broken.len() {
            0 => println!("{name}: all rules kept"),
            count => println!("{name}: {count} rules broken"),
        }
    }
    println!("{} files", sources.files);
    for path in &sources.long_but_excepted {
        println!("  long, but tests and generated code may be: {path}");
    }
    for exception in timing_exceptions::EXCEPTIONS {
        println!("  may use time: {exception}");
    }
    for line in verdicts.iter().flat_map(|(_, broken)| broken) {
        println!("  {line}");
    }
    Ok(verdicts.iter().all(|(_, broken)| broken.is_empty()))
}
