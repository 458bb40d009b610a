//! Takes Triton out of a PyPI wheel: the server, the Python backend and the local cache, which the tests use.
//!
//! Only tests may need them: `cargo xtask integrations`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{files, process, python, workspace};

/// The environment variable that tells the tests where the plug-ins are.
pub(super) const VARIABLE: &str = "NEREID_PLUGINS";

const VERSION: &str = "0.7.0";

/// The version of NumPy for the models, in an environment of their own. This backend reads arrays of NumPy 2 as empty.
const NUMPY: &str = "1.26.4";

/// Takes the plug-ins out of a wheel. Arguments are the folder with the wheel and the target. The plug-ins find their
/// dependencies relative to their own path, so they keep their paths of the wheel. Only the program that runs models in
/// this version of Python moves to its backend. At the end that program is started, because it cannot start without
/// Python's shared library.
const EXTRACT: &str = r#"
import glob, os, shutil, subprocess, sys, sysconfig, zipfile
folder, target = sys.argv[1:]
triton = 'pytriton/tritonserver'
stub = f'{triton}/python_backend_stubs/{sysconfig.get_python_version()}/triton_python_backend_stub'
server = f'{triton}/bin/tritonserver'
parts = (f'{triton}/backends/', f'{triton}/caches/', 'nvidia_pytriton.libs/')
with zipfile.ZipFile(glob.glob(os.path.join(folder, '*.whl'))[0]) as wheel:
    if stub not in wheel.namelist():
        sys.exit(f'the wheel cannot run Python {sysconfig.get_python_version()}')
    wheel.extractall(target, [name for name in wheel.namelist() if name in (server, stub) or name.startswith(parts)])
program = os.path.join(target, triton, 'backends/python/triton_python_backend_stub')
shutil.move(os.path.join(target, stub), program)
for executable in (program, os.path.join(target, server)):
    os.chmod(executable, 0o755)
libraries = {'LD_LIBRARY_PATH': sysconfig.get_config_var('LIBDIR') or ''}
started = subprocess.run([program], env=os.environ | libraries, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
if started.returncode == 127:
    sys.exit(started.stdout)
"#;

/// Downloads the plug-ins unless they exist, and returns their folder.
///
/// # Errors
/// There is no Python, PyPI cannot be reached, or there is no wheel for this machine or this version of Python.
pub(super) fn fetch() -> Result<PathBuf> {
    python::make()?;
    let mut version = python::command();
    let version =
        process::output(version.args(["-c", "import sysconfig; print(sysconfig.get_python_version())"]))?;
    // The name contains everything that the folder depends on, so that another version is downloaded again.
    let folder =
        workspace::target().join("plugins").join(format!("{VERSION}-server-python{}", version.trim()));
    files::make_once(&folder, |unfinished| {
        extract(unfinished, version.trim())?;
        make_environment(&unfinished.join("python"), version.trim())
    })?;
    Ok(folder)
}

/// Downloads the wheel, and takes the plug-ins out of it.
fn extract(folder: &Path, version: &str) -> Result<()> {
    let wheel = folder.join("wheel");
    files::make_folder(&wheel)?;
    python::download_wheel(&format!("nvidia-pytriton=={VERSION}"), &wheel)
        .context("there is no wheel to be had")?;
    let mut extract = python::command();
    let extracted = process::run(extract.args(["-c", EXTRACT]).arg(&wheel).arg(folder));
    ensure!(extracted.is_ok(), "the wheel is not for this machine and Python {version}");
    files::remove_folder(&wheel)
}

/// Makes the environment with NumPy.
fn make_environment(environment: &Path, version: &str) -> Result<()> {
    let mut make = python::command();
    process::run(make.args(["-m", "venv", "--without-pip"]).arg(environment))?;
    let mut numpy = python::command();
    numpy.args(["-m", "pip", "--python"]).arg(environment.join("bin/python3"));
    numpy.args(["install", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]);
    process::run(numpy.arg(format!("numpy=={NUMPY}")))
        .with_context(|| format!("there is no numpy {NUMPY} for Python {version}"))
}
