//! Triton's own plug-ins, taken out of a PyPI wheel: the Python backend and the local cache, which the tests serve with.
//!
//! They are what users bring, so nothing but tests may need them, and a machine that cannot have them does without.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{process, python, workspace};

/// Tells the tests where the plug-ins are.
pub(crate) const VARIABLE: &str = "NEREID_PLUGINS";

const VERSION: &str = "0.7.0";

/// For the models, which get an environment of their own: arrays of NumPy 2 are empty to this backend.
const NUMPY: &str = "1.26.4";

/// Takes the plug-ins out of a wheel: arguments are the folder with the wheel and the target. What they are linked with
/// is found from where they lie, so they stay where they lie in the wheel; only the program that runs models in this
/// version of Python goes to its backend. At last that program is started: without Python's shared library it cannot be.
const EXTRACT: &str = r#"
import glob, os, shutil, subprocess, sys, sysconfig, zipfile
folder, target = sys.argv[1:]
triton = 'pytriton/tritonserver'
stub = f'{triton}/python_backend_stubs/{sysconfig.get_python_version()}/triton_python_backend_stub'
parts = (f'{triton}/backends/', f'{triton}/caches/', 'nvidia_pytriton.libs/')
with zipfile.ZipFile(glob.glob(os.path.join(folder, '*.whl'))[0]) as wheel:
    if stub not in wheel.namelist():
        sys.exit(f'the wheel cannot run Python {sysconfig.get_python_version()}')
    wheel.extractall(target, [name for name in wheel.namelist() if name == stub or name.startswith(parts)])
program = os.path.join(target, triton, 'backends/python/triton_python_backend_stub')
shutil.move(os.path.join(target, stub), program)
os.chmod(program, 0o755)
libraries = {'LD_LIBRARY_PATH': sysconfig.get_config_var('LIBDIR') or ''}
started = subprocess.run([program], env=os.environ | libraries, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
if started.returncode == 127:
    sys.exit(started.stdout)
"#;

/// Fetches the plug-ins unless they are there, and gives the folder they are in.
///
/// # Errors
/// There is no Python, PyPI cannot be reached, or there is nothing for this machine or this version of Python.
pub(crate) fn fetch() -> Result<PathBuf> {
    python::make()?;
    let mut version = python::command();
    let version =
        process::output(version.args(["-c", "import sysconfig; print(sysconfig.get_python_version())"]))?;
    // Named after all that it depends on, so that another version is fetched anew.
    let folder = workspace::target().join("plugins").join(format!("{VERSION}-python{}", version.trim()));
    if folder.exists() {
        return Ok(folder);
    }
    let unfinished = folder.with_added_extension("part");
    let wheel = unfinished.join("wheel");
    clear(&unfinished)?;
    fs::create_dir_all(&wheel).with_context(|| format!("cannot make {}", wheel.display()))?;
    let mut download = python::command();
    download.args([
        "-m",
        "pip",
        "download",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
    ]);
    download.arg("--dest").arg(&wheel).arg(format!("nvidia-pytriton=={VERSION}"));
    process::run(&mut download).context("there is no wheel to be had")?;

    let mut extract = python::command();
    let extracted = process::run(extract.args(["-c", EXTRACT]).arg(&wheel).arg(&unfinished));
    ensure!(extracted.is_ok(), "the wheel is not for this machine and Python {}", version.trim());
    clear(&wheel)?;

    let environment = unfinished.join("python");
    let mut make = python::command();
    process::run(make.args(["-m", "venv", "--without-pip"]).arg(&environment))?;
    let mut numpy = python::command();
    numpy.args(["-m", "pip", "--python"]).arg(environment.join("bin/python3"));
    numpy.args(["install", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    process::run(numpy.arg(format!("numpy=={NUMPY}")))
        .with_context(|| format!("there is no numpy {NUMPY} for Python {}", version.trim()))?;
    fs::rename(&unfinished, &folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn clear(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))
}
