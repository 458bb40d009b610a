//! What commands do with files and folders. Errors name the path.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Makes a folder and those above it, unless they exist.
pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Removes a folder with everything in it, if it exists.
pub(crate) fn remove_folder(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}

/// Makes an empty folder.
pub(crate) fn make_empty(folder: &Path) -> Result<()> {
    remove_folder(folder)?;
    make_folder(folder)
}

/// Makes a folder unless it exists. `fill` fills it under another name. So a folder with its own name is complete.
///
/// # Errors
/// As `fill`; or the folder cannot be made.
pub(crate) fn make_once(folder: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if folder.exists() {
        return Ok(());
    }
    let unfinished = folder.with_added_extension("part");
    make_empty(&unfinished)?;
    fill(&unfinished)?;
    fs::rename(&unfinished, folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Waits until no other process has locked a file, and locks it until the returned one is dropped. Makes the file, and the
/// folders above it.
pub(crate) fn lock(path: &Path) -> Result<File> {
    make_parent(path)?;
    let lock = File::create(path).and_then(|file| file.lock().map(|()| file));
    lock.with_context(|| format!("cannot lock {}", path.display()))
}

/// Writes a file, and makes the folders above it.
pub(crate) fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    make_parent(path)?;
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies a file with its permissions, and makes the folders above it.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    make_parent(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn make_parent(path: &Path) -> Result<()> {
    make_folder(path.parent().context("a path without a folder")?)
}

/// Makes a file executable for all.
pub(crate) fn make_executable(path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("cannot change {}", path.display()))
}

/// What lies in a folder, in the order of the names.
pub(crate) fn paths_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// The bytes of all files below a path.
pub(crate) fn size(path: &Path) -> Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    paths_in(path)?.iter().map(|path| size(path)).sum()
}

/// The name of a file, without the folders above it.
pub(crate) fn file_name(path: &Path) -> &Path {
    Path::new(path.file_name().unwrap_or_default())
}

/// The last lines of a file.
pub(crate) fn last_lines(file: &Path, count: usize) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_folder_is_there_when_it_is_complete_and_is_made_once() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("tool-1.2");
        let fill = |unfinished: &Path| write(&unfinished.join("bin/tool"), "tool");
        assert!(
            make_once(&folder, |unfinished| fill(unfinished).and_then(|()| bail!("no network"))).is_err()
        );
        assert!(!folder.exists());
        make_once(&folder, |unfinished| {
            assert!(paths_in(unfinished).unwrap().is_empty(), "what a failure has left is removed");
            fill(unfinished)
        })
        .unwrap();
        make_once(&folder, |_| bail!("it exists")).unwrap();
        assert_eq!(size(&folder).unwrap(), 4);
    }
}
