//! Exports functions from the program: those of the C interface, so that the plug-ins that it loads find them, and one of
//! its allocator, so that `in_process` finds it by name as it finds those of other allocators.

fn main() {
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=TRITON*");
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=mi_collect");
    println!("cargo::rerun-if-changed=build.rs");
}
