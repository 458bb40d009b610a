//! Opens a plug-in's library.
//!
//! Nereid copies the file into memory and loads the copy, so that replacing or deleting the file does not affect the
//! running code. Dependencies beside the file (`$ORIGIN`) are opened from the disk first; the loader then finds them
//! loaded. If such a dependency has no name (`DT_SONAME`), the loader could not recognize it; then the library itself
//! is loaded from the disk.
use std::{
    ffi::{CStr, c_int, c_void},
    fs::{self, File},
    io::{self, Read, Write},
    mem,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use inference::Error;
use libloading::os::unix::{self, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, memfd_create};

use super::{elf, placeholder};

/// Library names that mean this library: `libtritonserver.so`, `libtritonserver-717102f0.so`, ...
const OURS: &str = "libtritonserver";

/// The libraries that stay loaded for ever. Only the thread with this lock opens libraries, because constructors of
/// libraries were never written to run in parallel.
static STAYING: Mutex<Vec<(Identity, Arc<Library>)>> = Mutex::new(Vec::new());

/// An opened shared library, closed when dropped.
#[derive(Debug)]
pub struct Library {
    /// This field is dropped before the copy below. Dropping it closes the library.
    handle: unix::Library,
    _copy: Option<LoadedCopy>,
}

/// The file in memory that a library was loaded from. It stays open, because the loader identifies the library by the
/// number of this file.
#[derive(Debug)]
struct LoadedCopy(Option<File>);

/// The properties of a file that change when the file is replaced or rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

/// The contents of a library's file.
struct Content {
    identity: Identity,
    bytes: Vec<u8>,
}

impl Content {
    fn read(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let about = file.metadata()?;
        let (device, inode, size) = (about.dev(), about.ino(), about.size());
        let identity = Identity { device, inode, size, modified: (about.mtime(), about.mtime_nsec()) };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Self { identity, bytes })
    }
}

impl Library {
    /// Opens a library that is closed when dropped (caches, agents, batching strategies).
    ///
    /// # Errors
    /// UNAVAILABLE with the loader's message.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let content = read(path)?;
        let _one_at_a_time = STAYING.lock();
        Self::load(path, &content.bytes)
    }

    /// Opens a library that stays loaded for ever: backends leave threads and thread-local destructors behind. All
    /// servers of the process share it until the file changes.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn open_for_ever(path: &Path) -> Result<Arc<Self>, Error> {
        let content = read(path)?;
        let mut staying = STAYING.lock();
        if let Some((_, library)) = staying.iter().find(|(known, _)| *known == content.identity) {
            return Ok(library.clone());
        }
        let library = Arc::new(Self::load(path, &content.bytes)?);
        staying.push((content.identity, library.clone()));
        Ok(library)
    }

    /// Loads a copy of the file at `path`. The caller holds the lock.
    fn load(path: &Path, content: &[u8]) -> Result<Self, Error> {
        let failed = |why: String| failed(path, &why);
        if let Some(dynamic) = elf::dynamic(content) {
            let origin = path.parent().unwrap_or(Path::new("."));
            open_surroundings(&dynamic, origin, &[], &mut Vec::new());
            if !dynamic.needed.iter().any(|name| name.starts_with(OURS)) {
                show_own_functions();
            }
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let copy = copy_in_memory(&name, content).map_err(|error| error.to_string());
        let private = copy.and_then(|copy| {
            let handle = dlopen(&path_of(&copy), RTLD_NOW | RTLD_LOCAL)?;
            Ok(Self { handle, _copy: Some(LoadedCopy(Some(copy))) })
        });
        private.or_else(|why| {
            let handle = dlopen(path, RTLD_NOW | RTLD_LOCAL).map_err(failed)?;
            log::warn!("a copy of {} cannot be loaded ({why}); it is used from the disk", path.display());
            Ok(Self { handle, _copy: None })
        })
    }

    /// The function of that name, if the library defines it.
    ///
    /// # Safety
    /// `F` is a function pointer of the type that every library gives the function of that name.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function pointer") };
        // SAFETY: only the address is taken.
        let symbol = unsafe { self.handle.get::<F>(name.to_bytes_with_nul()) }.ok()?.as_raw_ptr();
        // SAFETY: as the caller promises; a function pointer that is not null.
        (!symbol.is_null()).then(|| unsafe { mem::transmute_copy(&symbol) })
    }
}

impl Drop for LoadedCopy {
    fn drop(&mut self) {
        // Some libraries stay loaded after closing, for example C++ libraries with unique symbols. The loader still
        // identifies them by the number of their file, so no other file may get that number.
        if let Some(copy) = self.0.take_if(|copy| is_loaded(&path_of(copy))) {
            mem::forget(copy);
        }
    }
}

fn failed(path: &Path, why: &str) -> Error {
    Error::unavailable(format!("unable to load shared library: {}: {why}", path.display()))
}

fn read(path: &Path) -> Result<Content, Error> {
    Content::read(path).map_err(|error| failed(path, &error.to_string()))
}

/// Loads the dependencies of a library, and their dependencies first: placeholders for this library, and the libraries
/// in the search paths. `inherited` are additional search paths. `seen` are the libraries found so far. What cannot be
/// loaded is left to the loader, which reports it when it loads the library itself.
fn open_surroundings(dynamic: &elf::Dynamic, origin: &Path, inherited: &[PathBuf], seen: &mut Vec<PathBuf>) {
    let places = dynamic.places(origin, inherited);
    for name in &dynamic.needed {
        if name.starts_with(OURS) {
            let _ = open_placeholder(name);
        } else if let Some(found) = places.find(name).filter(|found| !seen.contains(found)) {
            seen.push(found.clone());
            if let Some(nested) = fs::read(&found).ok().and_then(|content| elf::dynamic(&content)) {
                let origin = found.parent().unwrap_or(Path::new("."));
                open_surroundings(&nested, origin, &places.passed_on, seen);
            }
            // The library stays loaded for the library that needs it.
            let _ = dlopen(&found, RTLD_NOW | RTLD_LOCAL).map(mem::forget);
        }
    }
}

/// Makes the exported functions visible to plug-ins that name no library. They are not visible if the program has
/// opened this library with local scope.
fn show_own_functions() {
    if let Some(own) = own_library() {
        // This library is loaded, because this code runs.
        let _ = dlopen(own.as_ref(), RTLD_NOW | libc::RTLD_NOLOAD | RTLD_GLOBAL).map(mem::forget);
    }
}

fn is_loaded(path: &Path) -> bool {
    dlopen(path, RTLD_NOW | libc::RTLD_NOLOAD).is_ok()
}

/// Makes sure that a library of that name is loaded: this library, or an empty placeholder.
fn open_placeholder(name: &str) -> Result<(), String> {
    if is_loaded(name.as_ref()) {
        return Ok(());
    }
    let object = placeholder::shared_object(name, own_library().as_deref());
    let copy = copy_in_memory(name, &object).map_err(|error| format!("failed to make {name}: {error}"))?;
    // Loaded for ever, under the number of this file.
    mem::forget(dlopen(&path_of(&copy), RTLD_NOW | RTLD_LOCAL)?);
    mem::forget(copy);
    Ok(())
}

/// The shared library that contains this code; `None` if the program itself contains it.
fn own_library() -> Option<String> {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: any address is allowed; the structure is filled in if the call succeeds.
    let known = unsafe { libc::dladdr(own_library as *const c_void, &raw mut found) };
    if known == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a text of the loader, which lives as long as this code.
    let path = unsafe { CStr::from_ptr(found.dli_fname) }.to_str().ok()?;
    let is_library = Path::new(path).file_name()?.to_str()?.contains(".so");
    is_library.then(|| path.to_owned())
}

fn copy_in_memory(name: &str, content: &[u8]) -> std::io::Result<File> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    Ok(file)
}

fn path_of(copy: &File) -> PathBuf {
    format!("/proc/self/fd/{}", copy.as_raw_fd()).into()
}

/// Opens a library. The error has the loader's message.
fn dlopen(path: &Path, flags: c_int) -> Result<unix::Library, String> {
    // SAFETY: runs the library's constructors. The operator who installed the library trusts them.
    let opened = unsafe { unix::Library::open(Some(path), flags) };
    opened.map_err(|error| {
        // The error's own text says only which call failed.
        let words = std::error::Error::source(&error).map(ToString::to_string);
        words.unwrap_or_else(|| error.to_string())
    })
}

#[cfg(test)]
mod tests {
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
        command
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(&file)
            .arg("-L")
            .arg(directory)
            .args(flags);
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
    fn a_library_that_stays_loaded_is_opened_again_only_if_its_file_changes() {
        let directory = tempfile::tempdir().unwrap();
        let path = compile(directory.path(), "int one;", "libone.so", &[]);
        let first = Library::open_for_ever(&path).unwrap();
        assert!(Arc::ptr_eq(&first, &Library::open_for_ever(&path).unwrap()));
        let written = compile(directory.path(), "int one; int two;", "libtwo.so", &[]);
        fs::rename(written, &path).unwrap();
        assert!(defines(&Library::open_for_ever(&path).unwrap(), c"two"));
    }

    #[test]
    fn what_a_library_needs_is_found_where_the_library_looks_for_itself_and_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("deep");
        fs::create_dir(&deep).unwrap();
        let near = "int far(void); int near(void) { return far(); }";
        compile(&deep, "int far(void) { return 1; }", "libfar.so", &["-Wl,-soname,libfar.so"]);
        compile(&deep, near, "libnear.so", &["-lfar", "-Wl,-soname,libnear.so"]);
        let (search, rpath) =
            (format!("-L{}", deep.display()), "-Wl,--disable-new-dtags,-rpath,$ORIGIN/deep");
        // Only the first library knows the directory of the others.
        let flags = [&search, "-lnear", rpath, "-Wl,--allow-shlib-undefined"];
        let source = "int near(void); int here(void) { return near(); }";
        let library = Library::open(&compile(directory.path(), source, "libhere.so", &flags)).unwrap();
        assert!(defines(&library, c"here") && library._copy.is_some());
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
}
