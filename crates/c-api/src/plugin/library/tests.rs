//! Opening libraries that a compiler has just made.
use super::*;

#[test]
fn a_file_that_is_no_library_is_refused_with_the_loaders_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("libx.so");
    fs::write(&path, "text").unwrap();
    let error = Library::open(&path).unwrap_err();
    assert!(error.message.starts_with(&format!("unable to load shared library: {}: ", path.display())));
    assert!(Library::open(&directory.path().join("absent.so")).is_err());
}

#[test]
fn a_placeholder_can_be_loaded_and_has_no_functions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("libempty.so");
    fs::write(&path, placeholder::shared_object("libempty.so", None)).unwrap();
    let library = Library::open(&path).unwrap();
    // SAFETY: never called.
    assert!(unsafe { library.function::<unsafe extern "C" fn()>(c"no_such_function") }.is_none());
    open_placeholder("libtritonserver-of-a-test.so").unwrap();
    assert!(is_loaded("libtritonserver-of-a-test.so".as_ref()));
}

/// Compiles the given source, which is not one of the test plug-ins.
fn compile(directory: &Path, source: &str, library: &str, flags: &[&str]) -> PathBuf {
    let (file, library) = (directory.join("source.c"), directory.join(library));
    fs::write(&file, source).unwrap();
    let mut command = std::process::Command::new("cc");
    command.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&file).arg("-L").arg(directory).args(flags);
    assert!(command.status().unwrap().success());
    library
}

fn defines(library: &Library, name: &CStr) -> bool {
    // SAFETY: never called.
    unsafe { library.function::<unsafe extern "C" fn()>(name) }.is_some()
}

#[test]
fn a_library_that_stays_loaded_is_not_used_for_another_file() {
    let directory = tempfile::tempdir().unwrap();
    let stubborn = compile(directory.path(), "int one;", "libone.so", &["-Wl,-z,nodelete"]);
    let other = compile(directory.path(), "int two;", "libtwo.so", &[]);
    for _ in 0..8 {
        drop(Library::open(&stubborn).unwrap());
        let next = Library::open(&other).unwrap();
        assert!(defines(&next, c"two") && !defines(&next, c"one"));
    }
}

#[test]
fn a_shared_library_is_opened_again_only_if_its_file_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = compile(directory.path(), "int one;", "libone.so", &[]);
    let first = Library::open_shared(&path).unwrap();
    assert!(Arc::ptr_eq(&first, &Library::open_shared(&path).unwrap()));
    let written = compile(directory.path(), "int one; int two;", "libtwo.so", &[]);
    fs::rename(written, &path).unwrap();
    let second = Library::open_shared(&path).unwrap();
    assert!(defines(&second, c"two") && !defines(&first, c"two"), "both are loaded");
}

#[test]
fn what_a_library_needs_is_found_where_the_library_looks_for_itself_and_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let deep = directory.path().join("deep");
    fs::create_dir(&deep).unwrap();
    let near = "int far(void); int near(void) { return far(); }";
    compile(&deep, "int far(void) { return 1; }", "libfar.so", &["-Wl,-soname,libfar.so"]);
    compile(&deep, near, "libnear.so", &["-lfar", "-Wl,-soname,libnear.so"]);
    let (search, rpath) = (format!("-L{}", deep.display()), "-Wl,--disable-new-dtags,-rpath,$ORIGIN/deep");
    // Only the first library knows the directory of the others.
    let flags = [&search, "-lnear", rpath, "-Wl,--allow-shlib-undefined"];
    let source = "int near(void); int here(void) { return near(); }";
    let library = Library::open(&compile(directory.path(), source, "libhere.so", &flags)).unwrap();
    assert!(defines(&library, c"here") && library._copy.is_some());
}

#[test]
fn a_library_that_was_replaced_is_closed_by_its_last_user() {
    let directory = tempfile::tempdir().unwrap();
    let ended = directory.path().join("ended");
    let source = format!(
        "#include <stdio.h>
         __attribute__((destructor)) static void end(void) {{ fclose(fopen(\"{}\", \"w\")); }}",
        ended.display()
    );
    let path = compile(directory.path(), &source, "libone.so", &[]);
    let first = Library::open_shared(&path).unwrap();
    drop(first.clone());
    fs::rename(compile(directory.path(), "int two;", "libtwo.so", &[]), &path).unwrap();
    let second = Library::open_shared(&path).unwrap();
    assert!(!ended.exists(), "the first one is in use");
    drop(first);
    assert!(ended.exists());
    fs::remove_file(&path).unwrap();
    assert!(Library::open_shared(&path).is_err());
    assert!(defines(&second, c"two"));
}

#[test]
fn a_library_that_is_cut_off_is_not_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let path = compile(directory.path(), "int one;", "libone.so", &[]);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5000).unwrap();
    let error = Library::open(&path).unwrap_err();
    assert!(error.message.ends_with("the file is incomplete, or a program is writing it"), "{error}");
}

#[test]
fn a_library_that_is_used_from_the_disk_is_opened_again_if_it_was_replaced() {
    let directory = tempfile::tempdir().unwrap();
    // Each has a nameless library of its own: once the loader has found one, it knows it.
    let user = |name: &str, library: &str| {
        let nameless = format!("int nameless_{name}(void) {{ return 1; }}");
        compile(directory.path(), &nameless, &format!("libof_{name}.so"), &[]);
        let source = format!("int nameless_{name}(void); int {name}(void) {{ return nameless_{name}(); }}");
        compile(directory.path(), &source, library, &[&format!("-lof_{name}"), "-Wl,-rpath,$ORIGIN"])
    };
    let path = user("one", "libuser.so");
    let first = Library::open_shared(&path).unwrap();
    fs::rename(user("two", "libnext.so"), &path).unwrap();
    let second = Library::open_shared(&path).unwrap();
    assert!(second._copy.is_none() && defines(&second, c"two") && !defines(&second, c"one"));
    assert!(defines(&first, c"one"));
    // The loader takes a file that was written in place for the library that it has loaded from there.
    let file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut &file, b"more").unwrap();
    let identity = FileIdentity::from(fs::metadata(&path).unwrap());
    let error = LOADING.lock().load_from_disk(&path, identity).unwrap_err();
    assert!(error.starts_with("the file was overwritten while it was in use"), "{error}");
}

#[test]
fn a_library_that_needs_a_nameless_one_beside_it_is_used_from_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    compile(directory.path(), "int nameless(void) { return 1; }", "libnameless.so", &[]);
    let source = "int nameless(void); int user(void) { return nameless(); }";
    let flags = ["-lnameless", "-Wl,-rpath,$ORIGIN"];
    let library = Library::open(&compile(directory.path(), source, "libuser.so", &flags)).unwrap();
    assert!(defines(&library, c"user") && library._copy.is_none());
}
