//! Opens a plug-in's library.
//!
//! Nereid copies the file into memory and loads the copy, so that replacing or deleting the file does not affect the
//! running code. For the loader each copy is a file of its own: the old and the new code of a file that was replaced run
//! side by side. Dependencies beside the file (`$ORIGIN`) are opened from the disk first; the loader then finds them
//! loaded. If such a dependency has no name (`DT_SONAME`), the loader could not recognize it; then the library itself
//! is loaded from the disk.
use std::{
    ffi::{CStr, c_int, c_void},
    fs::{self, File},
    io::{self, Read, Write},
    mem,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use inference::lock::{LockRank, Mutex};
use libloading::os::unix::{self, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::{MemfdFlags, memfd_create};
use vocabulary::{Error, FileIdentity};

use super::{elf, placeholder};

/// Library names that mean this library: `libtritonserver.so`, `libtritonserver-717102f0.so`, ...
const OURS: &str = "libtritonserver";

/// Only the thread with this lock opens libraries, because constructors of libraries were never written to run in
/// parallel.
static LOADING: Mutex<Loading> =
    Mutex::ranked(LockRank::LibraryLoading, Loading { shared: Vec::new(), from_disk: Vec::new() });

/// What has been loaded.
struct Loading {
    /// The libraries that are loaded once for all that use them.
    shared: Vec<Arc<Library>>,
    /// The files that were loaded from the disk, in this order.
    from_disk: Vec<FileIdentity>,
}

/// An opened shared library, closed when dropped.
#[derive(Debug)]
pub struct Library {
    /// This field is dropped before the copy below. Dropping it closes the library.
    handle: unix::Library,
    _copy: Option<LoadedLibraryCopy>,
    path: PathBuf,
    identity: FileIdentity,
}

/// The file in memory that a library was loaded from. It stays open, because the loader identifies the library by the
/// number of this file.
#[derive(Debug)]
struct LoadedLibraryCopy(Option<File>);

/// The contents of a library's file.
struct LibraryContent {
    identity: FileIdentity,
    bytes: Vec<u8>,
}

impl LibraryContent {
    /// Reads a file that no program writes at the same time.
    fn read(path: &Path) -> io::Result<Self> {
        // A pipe or a device could block the load for ever.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut file = File::open(path)?;
        let identity = FileIdentity::from(file.metadata()?);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        if FileIdentity::from(file.metadata()?) != identity || elf::is_cut_off(&bytes) {
            return Err(io::Error::other("the file is incomplete, or a program is writing it"));
        }
        Ok(Self { identity, bytes })
    }
}

impl Library {
    /// Opens a library that is closed when dropped (caches, agents, batching strategies).
    ///
    /// # Errors
    /// UNAVAILABLE with the loader's message, or if a program is writing the file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let content = read(path)?;
        LOADING.lock().load(path, path, &content)
    }

    /// Opens a library once for all that use it, in all servers of the process (backends).
    ///
    /// It stays loaded as long as its file is the same, because libraries may leave threads behind. The first call for
    /// any library that comes after the file has been replaced or deleted gives it up. It is then closed when its last
    /// user drops it.
    ///
    /// # Errors
    /// As [`Library::open`].
    pub fn open_shared(path: &Path) -> Result<Arc<Self>, Error> {
        let content = read(path)?;
        let mut loading = LOADING.lock();
        let shared = mem::take(&mut loading.shared);
        let replaced: Vec<_>;
        (loading.shared, replaced) = shared.into_iter().partition(|library| !library.is_outdated());
        let opened = loading.open_shared(path, &content);
        drop(loading);
        // Closes libraries, which may run their destructors.
        drop(replaced);
        opened
    }

    /// The file that the library was opened from.
    pub fn identity(&self) -> &FileIdentity {
        &self.identity
    }

    /// Whether the file has been replaced, rewritten or deleted since the library was opened.
    pub fn is_outdated(&self) -> bool {
        fs::metadata(&self.path).map(FileIdentity::from).ok() != Some(self.identity)
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

impl Loading {
    fn open_shared(&mut self, path: &Path, content: &LibraryContent) -> Result<Arc<Library>, Error> {
        if let Some(library) = self.shared.iter().find(|library| library.identity == content.identity) {
            return Ok(library.clone());
        }
        // The library searches beside its file, not beside a link to it.
        let file = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let library = Arc::new(self.load(path, &file, content)?);
        self.shared.push(library.clone());
        Ok(library)
    }

    /// Loads a copy of `file`, to which `path` leads.
    fn load(&mut self, path: &Path, file: &Path, content: &LibraryContent) -> Result<Library, Error> {
        if let Some(dynamic) = elf::dynamic(&content.bytes) {
            let origin = file.parent().unwrap_or(Path::new("."));
            open_surroundings(&dynamic, origin, &[], &mut Vec::new());
            if !dynamic.needed.iter().any(|name| name.starts_with(OURS)) {
                show_own_functions();
            }
        }
        let library =
            |handle, _copy| Library { handle, _copy, path: path.to_owned(), identity: content.identity };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let copy = copy_in_memory(&name, &content.bytes).map_err(|error| error.to_string());
        let private = copy.and_then(|copy| {
            let handle = dlopen(&path_of(&copy), RTLD_NOW | RTLD_LOCAL)?;
            Ok(library(handle, Some(LoadedLibraryCopy(Some(copy)))))
        });
        private.or_else(|why| {
            let handle = self.load_from_disk(file, content.identity).map_err(|why| failed(path, &why))?;
            log::warn!("a copy of {} cannot be loaded ({why}); it is used from the disk", path.display());
            Ok(library(handle, None))
        })
    }

    /// Loads a file itself. If another file had the path before, the path is spelt in another way: the loader takes a
    /// path that it knows for the library that it has loaded from there.
    fn load_from_disk(&mut self, file: &Path, identity: FileIdentity) -> Result<unix::Library, String> {
        let known = self.from_disk.iter().position(|known| *known == identity);
        let mut spelt = file.parent().unwrap_or(Path::new(".")).to_owned();
        spelt.extend(vec!["."; known.unwrap_or(self.from_disk.len())]);
        spelt.extend(file.file_name());
        let overwritten = known.is_none() && self.from_disk.iter().any(|known| known.is_file_of(&identity));
        if overwritten && is_loaded(&spelt) {
            return Err(
                "the file was overwritten while it was in use, move a new file to its name instead".into()
            );
        }
        let handle = dlopen(&spelt, RTLD_NOW | RTLD_LOCAL)?;
        if known.is_none() {
            self.from_disk.push(identity);
        }
        Ok(handle)
    }
}

impl Drop for LoadedLibraryCopy {
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

fn read(path: &Path) -> Result<LibraryContent, Error> {
    LibraryContent::read(path).map_err(|error| failed(path, &error.to_string()))
}

/// Loads the dependencies of a library, and their dependencies first: placeholders for this library, and the libraries
/// in the search paths. `inherited` are additional search paths. `seen` are the libraries found so far. What cannot be
/// loaded is left to the loader, which reports it when it loads the library itself.
fn open_surroundings(
    dynamic: &elf::DynamicSection,
    origin: &Path,
    inherited: &[PathBuf],
    seen: &mut Vec<PathBuf>,
) {
    let search_paths = dynamic.search_paths(origin, inherited);
    for name in &dynamic.needed {
        if name.starts_with(OURS) {
            let _ = open_placeholder(name);
        } else if let Some(found) = search_paths.find(name).filter(|found| !seen.contains(found)) {
            seen.push(found.clone());
            if let Some(nested) = fs::read(&found).ok().and_then(|content| elf::dynamic(&content)) {
                let origin = found.parent().unwrap_or(Path::new("."));
                open_surroundings(&nested, origin, &search_paths.passed_on, seen);
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
mod tests;
