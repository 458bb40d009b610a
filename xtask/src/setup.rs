//! `cargo xtask setup`: fetches what the tests need, and prints the variables that let the tests find it.

use anyhow::Result;

use crate::{allocators, debian_program, npm_package, plugins, python, runtime_library, store_servers};

/// Fetches everything. What a machine cannot have is printed with the reason.
///
/// # Errors
/// The Python packages or ONNX Runtime cannot be had: most tests need them.
pub(crate) fn run() -> Result<()> {
    python::install("tests/requirements.txt")?;
    println!("{}={}", runtime_library::VARIABLE, runtime_library::fetch()?.display());
    match plugins::fetch() {
        Ok(folder) => println!("{}={}", plugins::VARIABLE, folder.display()),
        Err(error) => println!("without Triton's plug-ins: {error:#}"),
    }
    println!("{}={}", store_servers::MOTO, store_servers::moto()?.display());
    match store_servers::azurite() {
        Ok(program) => println!("{}={}", store_servers::AZURITE, program.display()),
        Err(error) => println!("without azurite: {error:#}"),
    }
    match npm_package::AXE.install() {
        Ok(script) => println!("{}={}", npm_package::AXE.variable, script.display()),
        Err(error) => println!("without {}: {error:#}", npm_package::AXE.name),
    }
    for program in debian_program::ALL {
        match program.fetch() {
            Ok(path) => println!("{}={}", program.variable, path.display()),
            Err(error) => println!("without {}: {error:#}", program.name),
        }
    }
    for allocator in allocators::ALL {
        match allocator.fetch() {
            Ok(library) => println!("{}={}", allocator.variable, library.display()),
            Err(error) => println!("without {}: {error:#}", allocator.name),
        }
    }
    Ok(())
}
