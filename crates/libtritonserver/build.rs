//! How the shared library presents itself to the loader.

fn main() {
    // Programs that were linked against the reference's library ask for this name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtritonserver.so");
    // Its own calls stay inside, even if another library of the process has functions of the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
