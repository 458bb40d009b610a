//! Lets plug-ins find the functions of the C interface in the program that has opened them.

fn main() {
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=TRITON*");
    println!("cargo::rerun-if-changed=build.rs");
}
