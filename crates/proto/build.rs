//! Compiles `protos/` into Rust types and into the two descriptor sets. It needs no `protoc`.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=protos");
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);

    // The comments in the files become documentation of the types ...
    let mut documented = compiler(&["grpc_service.proto", "health.proto"])?;
    documented.include_source_info(true);
    prost_build::Config::new().bytes(["."]).btree_map(["."]).compile_fds(documented.file_descriptor_set())?;

    // ... but they would only enlarge the descriptors in the program.
    let all = compiler(&["grpc_service.proto", "health.proto"])?;
    fs::write(out.join("all.descriptors"), all.encode_file_descriptor_set())?;
    let config = compiler(&["model_config.proto"])?;
    fs::write(out.join("model_config.descriptors"), config.encode_file_descriptor_set())?;
    // The schema for editors has the comments, too. It is decoded only when it is asked for.
    let mut documented = compiler(&["model_config.proto"])?;
    documented.include_source_info(true);
    fs::write(out.join("model_config.documented.descriptors"), documented.encode_file_descriptor_set())?;
    Ok(())
}

fn compiler(files: &[&str]) -> Result<protox::Compiler, protox::Error> {
    let mut compiler = protox::Compiler::new(["protos"])?;
    compiler.include_imports(true).open_files(files)?;
    Ok(compiler)
}
