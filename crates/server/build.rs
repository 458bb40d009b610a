//! Exports functions from the program: those of the C interface, so that the plug-ins that it loads find them, and some of
//! its allocator, so that `in_process` finds them by name as it finds those of other allocators.

fn main() {
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=TRITON*");
    for function in ["mi_collect", "mi_option_get", "mi_option_set", "mi_version"] {
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol={function}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
