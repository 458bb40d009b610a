//! The binary shows Triton's C functions to the plug-ins it opens.

fn main() {
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=TRITON*");
    println!("cargo:rerun-if-changed=build.rs");
}
