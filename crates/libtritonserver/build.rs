//! Sets the name and the symbol rules of the shared library.

fn main() {
    // Programs that were linked against Triton's library need this name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtritonserver.so");
    // Calls inside the library stay inside, even if another library of the process has functions of the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
