//! Opening a plug-in's library.
//!
//! The file is copied into memory first and loaded from there: replacing or deleting it on disk cannot pull the ground
//! from under the running code. What the library needs from its own surroundings (`$ORIGIN`) is opened from the disk
//! before it, so that it finds it loaded.
use std::{
    ffi::{CStr, CString, c_int, c_void},
    fs::{self, File},
    io::Write,
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    ptr::NonNull,
};

use inference::Error;
use parking_lot::Mutex;

use super::{elf, placeholder};

/// Library names that mean us: `libtritonserver.so`, `libtritonserver-717102f0.so`, ...
const OURS: &str = "libtritonserver";

/// One at a time opens libraries: their constructors were never written to run side by side.
static OPENING: Mutex<()> = Mutex::new(());

/// An opened shared library.
#[derive(Debug)]
pub struct Library {
    handle: NonNull<c_void>,
    on_drop: OnDrop,
    /// Held open, for the loader knows the library by this file's number.
    _copy: Option<File>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnDrop {
    Close,
    Stay,
}

// SAFETY: the handle is a number to the loader, which locks for itself.
unsafe impl Send for Library {}
// SAFETY: the same.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a library that is closed when dropped (caches, agents, batching strategies).
    ///
    /// # Errors
    /// UNAVAILABLE with what the loader says.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_as(path, OnDrop::Close)
    }

    /// Opens a library that stays loaded for ever: backends leave threads and thread-local destructors behind.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn open_for_ever(path: &Path) -> Result<Self, Error> {
        Self::open_as(path, OnDrop::Stay)
    }

    fn open_as(path: &Path, on_drop: OnDrop) -> Result<Self, Error> {
        let failed = |why: String| {
            Error::unavailable(format!("unable to load shared library: {}: {why}", path.display()))
        };
        let content = fs::read(path).map_err(|error| failed(error.to_string()))?;
        let _one_at_a_time = OPENING.lock();
        if let Some(dynamic) = elf::dynamic(&content) {
            open_surroundings(&dynamic, path, &[], &mut Vec::new()).map_err(failed)?;
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let (handle, copy) = match copy_in_memory(&name, &content) {
            Ok(copy) => (dlopen(&path_of(&copy), libc::RTLD_NOW | libc::RTLD_LOCAL), Some(copy)),
            Err(error) => {
                log::warn!(
                    "failed to copy {} into memory, it is loaded from the disk: {error}",
                    path.display()
                );
                (dlopen(&c_path(path), libc::RTLD_NOW | libc::RTLD_LOCAL), None)
            }
        };
        Ok(Self { handle: handle.map_err(failed)?, on_drop, _copy: copy })
    }

    /// The function of that name, if the library defines it.
    ///
    /// # Safety
    /// `F` is a function pointer of the type that every library gives the function of that name.
    pub unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function pointer") };
        // SAFETY: the handle is open; the name is a text.
        let symbol = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        // SAFETY: as the caller promises.
        (!symbol.is_null()).then(|| unsafe { std::mem::transmute_copy(&symbol) })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if self.on_drop == OnDrop::Close {
            // SAFETY: open, and closed once.
            unsafe { libc::dlclose(self.handle.as_ptr()) };
        } else if let Some(copy) = self._copy.take() {
            // Its number must not be given to another library.
            std::mem::forget(copy);
        }
    }
}

/// Loads what a library needs: placeholders for us, and from its search path what lies there, each after what it needs
/// itself. `above` is where the users of the library let their needs look, `opening` who they are.
fn open_surroundings(
    dynamic: &elf::Dynamic,
    library: &Path,
    above: &[PathBuf],
    opening: &mut Vec<PathBuf>,
) -> Result<(), String> {
    let places = dynamic.places(library.parent().unwrap_or(Path::new(".")), above);
    for name in &dynamic.needed {
        if name.starts_with(OURS) {
            open_placeholder(name, own_library().as_deref())?;
            continue;
        }
        let found = places.own.iter().map(|place| place.join(name)).find(|path| path.is_file());
        let Some(found) = found.filter(|found| !opening.contains(found) && !is_loaded(name)) else {
            continue;
        };
        opening.push(found.clone());
        if let Some(nested) = fs::read(&found).ok().and_then(|content| elf::dynamic(&content)) {
            open_surroundings(&nested, &found, &places.inherited, opening)?;
        }
        dlopen(&c_path(&found), libc::RTLD_NOW | libc::RTLD_LOCAL)?;
        // One that does not say its own name (`DT_SONAME`) is not known by it.
        open_placeholder(name, found.to_str())?;
    }
    Ok(())
}

/// Whether whoever needs a library of that name would get one that is there already.
fn is_loaded(name: &str) -> bool {
    CString::new(name).is_ok_and(|name| dlopen(&name, libc::RTLD_NOW | libc::RTLD_NOLOAD).is_ok())
}

/// Makes sure that a library of that name is loaded; if none is, an empty one that stands for another one.
fn open_placeholder(name: &str, stands_for: Option<&str>) -> Result<(), String> {
    if is_loaded(name) {
        return Ok(());
    }
    let object = placeholder::shared_object(name, stands_for);
    let copy = copy_in_memory(name, &object).map_err(|error| format!("failed to make {name}: {error}"))?;
    dlopen(&path_of(&copy), libc::RTLD_NOW | libc::RTLD_LOCAL)?;
    // Loaded for ever, under the number of this file.
    std::mem::forget(copy);
    Ok(())
}

/// The shared library this code is in; `None` if it is in the program itself.
fn own_library() -> Option<String> {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: any address may be asked for; the answer is filled in if there is one.
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
    let name = CString::new(name)?;
    // SAFETY: a text and flags.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: opened just now, and nobody else's.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(content)?;
    Ok(file)
}

fn path_of(copy: &File) -> CString {
    CString::new(format!("/proc/self/fd/{}", copy.as_raw_fd())).unwrap_or_default()
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

fn dlopen(path: &CStr, flags: c_int) -> Result<NonNull<c_void>, String> {
    // SAFETY: runs the library's constructors, which whoever installed it trusts.
    let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
    NonNull::new(handle).ok_or_else(|| {
        // SAFETY: the text belongs to this thread until its next call of the loader.
        let words = unsafe { libc::dlerror() };
        if words.is_null() {
            return "the loader does not say why".to_owned();
        }
        // SAFETY: a text, see above.
        unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
    })
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

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
        open_placeholder("libtritonserver-of-a-test.so", None).unwrap();
        assert!(is_loaded("libtritonserver-of-a-test.so"));
    }

    #[test]
    fn needs_of_needs_are_found_where_the_library_says() {
        let directory = tempfile::tempdir().unwrap();
        let libs = directory.path().join("libs");
        fs::create_dir(&libs).unwrap();
        let compile = |library: &Path, needs: &str, more: &[&str]| {
            let mut command = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
            command.args(["-shared", "-Wl,--no-as-needed", "-x", "c", "/dev/null", "-o"]).arg(library);
            command.arg("-L").arg(&libs).args(more).arg(needs);
            assert!(command.status().unwrap().success());
        };
        compile(&libs.join("libinherits_c.so"), "-lc", &[]);
        compile(&libs.join("libinherits_b.so"), "-linherits_c", &[]);
        let path = directory.path().join("libinherits_a.so");
        let inherited = ["-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/libs", "-Wl,--allow-shlib-undefined"];
        compile(&path, "-linherits_b", &inherited);
        Library::open(&path).unwrap();
    }
}
