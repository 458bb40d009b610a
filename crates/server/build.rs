//! Exports the functions of the C interface from the program, so that the plug-ins that it loads find them.

fn main() {
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=TRITON*");
    println!("cargo::rerun-if-changed=build.rs");
}
