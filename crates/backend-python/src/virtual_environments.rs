//! Environments that are made from the files beside a model: `requirements.txt`, or `pyproject.toml` with `uv.lock`.
//!
//! An environment lies in a folder of the cache whose name is a digest of all that it is made from. It is made in its
//! place, because its files contain their paths. It counts when the mark of completeness is there, which comes last. A
//! lock keeps two makers apart, also of two servers. The programs that make an environment end with their server, and hold
//! the lock as long as they run.
use std::{
    env, fs,
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use inference::{Error, FailureReason};

use crate::{
    environment_settings::EnvironmentSettings,
    limited_command::{CommandFailed, run_until},
    settings::PYTHON_EXECUTABLE,
};

/// What an environment is made from.
#[derive(Debug)]
struct Recipe {
    kind: RecipeKind,
    /// The folder of the files.
    folder: PathBuf,
    /// The files and their contents.
    files: Vec<(&'static str, Vec<u8>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecipeKind {
    /// `requirements.txt`.
    Requirements,
    /// `pyproject.toml` and `uv.lock`.
    Project,
}

const REQUIREMENTS: &str = "requirements.txt";
const PROJECT: &str = "pyproject.toml";
const PROJECT_LOCK: &str = "uv.lock";

/// The file in an environment that is complete.
const COMPLETE: &str = ".nereid-complete";

/// Another version of this number makes all environments anew.
const FORMAT: u32 = 1;

/// For whom an environment is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnvironmentOwner<'a> {
    pub(crate) model: &'a str,
    pub(crate) version_directory: &'a Path,
    pub(crate) model_directory: &'a Path,
    /// The model has chosen its interpreter.
    pub(crate) names_interpreter: bool,
    /// The model runs in a sandbox. Then nothing of its packages runs outside, so only wheels are installed.
    pub(crate) is_in_sandbox: bool,
}

/// The interpreter of the environment that the files beside a model describe; `None` if there are none. Makes the
/// environment unless it is there, which may take minutes. `base` is the interpreter that it is made with.
///
/// # Errors
/// The environment cannot be made; the log has the words of the program that failed.
pub(crate) fn interpreter_for(
    owner: EnvironmentOwner<'_>,
    base: &str,
    settings: &EnvironmentSettings,
) -> Result<Option<String>, Error> {
    let recipe = Recipe::beside(owner.version_directory).and_then(|recipe| match recipe {
        None => Recipe::beside(owner.model_directory),
        found => Ok(found),
    });
    let failed = |text: String| {
        let text = format!("the environment of model '{}' cannot be made: {text}", owner.model);
        Error::internal(text).because(FailureReason::Backend)
    };
    let Some(recipe) = recipe.map_err(|error| failed(error.to_string()))? else { return Ok(None) };
    if owner.is_in_sandbox {
        if owner.names_interpreter {
            let text = format!(
                "the model runs in a sandbox, and its parameter '{PYTHON_EXECUTABLE}' would run outside"
            );
            return Err(failed(text));
        }
        recipe.refuse_all_but_names().map_err(failed)?;
    }
    let maker = EnvironmentMaker { recipe, base, settings, only_wheels: owner.is_in_sandbox, uv: find("uv") };
    let folder = maker.made(owner.model).map_err(failed)?;
    Ok(Some(folder.join("bin/python").to_string_lossy().into_owned()))
}

impl Recipe {
    fn beside(folder: &Path) -> io::Result<Option<Self>> {
        let regular = |path: PathBuf| match fs::metadata(&path)?.is_file() {
            true => fs::read(path),
            // A pipe or a device could block the load for ever.
            false => Err(io::Error::other("it is not a regular file")),
        };
        let read = |name: &'static str| match regular(folder.join(name)) {
            Ok(content) => Ok(Some((name, content))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io::Error::other(format!("{}: {error}", folder.join(name).display()))),
        };
        let folder = folder.to_owned();
        if let (Some(project), Some(lock)) = (read(PROJECT)?, read(PROJECT_LOCK)?) {
            return Ok(Some(Self { kind: RecipeKind::Project, folder, files: vec![project, lock] }));
        }
        let requirements = read(REQUIREMENTS)?;
        Ok(requirements.map(|file| Self { kind: RecipeKind::Requirements, folder, files: vec![file] }))
    }

    /// Names of packages come as wheels, which are unpacked. Everything else may run code.
    fn refuse_all_but_names(&self) -> Result<(), String> {
        if self.kind == RecipeKind::Project {
            return Ok(());
        }
        let text = self.files.iter().map(|(_, content)| String::from_utf8_lossy(content)).collect::<String>();
        match text.lines().find(|line| !is_name(line)) {
            None => Ok(()),
            Some(line) => Err(format!(
                "the line '{}' of {REQUIREMENTS} is no name of a package, and the model runs in a sandbox",
                line.trim()
            )),
        }
    }
}

/// Whether a line of requirements is empty, a comment, a hash of the line before, or the name of a package.
fn is_name(line: &str) -> bool {
    let line = line.split(" #").next().unwrap_or_default().trim();
    if line.is_empty() || line.starts_with('#') || line.starts_with("--hash=") {
        return true;
    }
    line.starts_with(|first: char| first.is_ascii_alphanumeric()) && !line.contains(['/', '@'])
}

/// Whether a model in a sandbox may have these requirements. An entrance for fuzzers.
#[cfg(feature = "fuzzing")]
pub(crate) fn are_accepted(requirements: &[u8]) -> bool {
    let files = vec![(REQUIREMENTS, requirements.to_vec())];
    let recipe = Recipe { kind: RecipeKind::Requirements, folder: PathBuf::new(), files };
    recipe.refuse_all_but_names().is_ok()
}

/// Makes one environment.
struct EnvironmentMaker<'a> {
    recipe: Recipe,
    base: &'a str,
    settings: &'a EnvironmentSettings,
    only_wheels: bool,
    uv: Option<PathBuf>,
}

impl EnvironmentMaker<'_> {
    /// The folder of the environment, complete.
    fn made(&self, model: &str) -> Result<PathBuf, String> {
        let deadline = Instant::now() + self.settings.time_limit;
        let cache = self.settings.cache()?;
        fs::create_dir_all(&cache).map_err(|error| format!("the folder {}: {error}", cache.display()))?;
        let key = self.key(deadline)?;
        let folder = cache.join(&key);
        if folder.join(COMPLETE).is_file() {
            return Ok(folder);
        }
        let path = cache.join(format!("{key}.lock"));
        let at_lock = |error: io::Error| format!("the lock {}: {error}", path.display());
        let lock = File::create(&path).map_err(at_lock)?;
        take(&lock, deadline).map_err(at_lock)?;
        if folder.join(COMPLETE).is_file() {
            return Ok(folder);
        }
        let begin = Instant::now();
        log::info!("the environment of model '{model}' is made in {}", folder.display());
        self.make(&folder, &lock, deadline)?;
        log::info!(
            "the environment of model '{model}' is there after {:.1} s",
            begin.elapsed().as_secs_f64()
        );
        Ok(folder)
    }

    /// A digest of all that decides what is in the environment.
    fn key(&self, deadline: Instant) -> Result<String, String> {
        let version = self.version_of_base(deadline)?;
        let mut hash = blake3::Hasher::new();
        let mut add = |part: &[u8]| {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        add(&FORMAT.to_le_bytes());
        add(version.as_bytes());
        add(self.settings.index_url.as_deref().unwrap_or_default().as_bytes());
        add(&[u8::from(self.only_wheels)]);
        for (name, content) in &self.recipe.files {
            add(name.as_bytes());
            add(content);
        }
        Ok(hash.finalize().to_hex()[..32].to_owned())
    }

    /// What tells interpreters apart.
    fn version_of_base(&self, deadline: Instant) -> Result<String, String> {
        let place = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
        let script = "import sys; open(sys.argv[1], 'w').write(sys.version + sys.platform + sys.base_prefix)";
        let mut command = Command::new(self.base);
        command.args(["-I", "-S", "-c", script]).arg(place.path());
        let nothing = File::open("/dev/null").map_err(|error| error.to_string())?;
        run_until(&command, &nothing, deadline).map_err(|failure| told(&failure))?;
        fs::read_to_string(place.path()).map_err(|error| error.to_string())
    }

    fn make(&self, folder: &Path, lock: &File, deadline: Instant) -> Result<(), String> {
        // What a killed server has left.
        if let Err(error) = fs::remove_dir_all(folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(format!("the folder {}: {error}", folder.display()));
        }
        for command in &self.commands(folder)? {
            run_until(command, lock, deadline).map_err(|failure| {
                let _ = fs::remove_dir_all(folder);
                told(&failure)
            })?;
        }
        File::create(folder.join(COMPLETE)).map(drop).map_err(|error| error.to_string())
    }

    fn commands(&self, folder: &Path) -> Result<Vec<Command>, String> {
        let requirements = self.recipe.folder.join(REQUIREMENTS);
        let python = folder.join("bin/python");
        let mut commands = match (self.recipe.kind, &self.uv) {
            (RecipeKind::Project, None) => {
                return Err(format!("{PROJECT_LOCK} needs the program uv, which is not in PATH"));
            }
            (RecipeKind::Project, Some(uv)) => {
                let mut sync = Command::new(uv);
                sync.args([
                    "sync",
                    "--frozen",
                    "--no-dev",
                    "--no-install-project",
                    "--python",
                    self.base,
                    "--project",
                ]);
                sync.arg(&self.recipe.folder).env("UV_PROJECT_ENVIRONMENT", folder);
                vec![sync]
            }
            (RecipeKind::Requirements, Some(uv)) => {
                let mut make = Command::new(uv);
                make.args(["venv", "--quiet", "--python", self.base]).arg(folder);
                let mut install = Command::new(uv);
                install.args(["pip", "install", "--python"]).arg(&python).arg("-r").arg(&requirements);
                vec![make, install]
            }
            (RecipeKind::Requirements, None) => {
                let mut make = Command::new(self.base);
                make.args(["-m", "venv"]).arg(folder);
                let mut install = Command::new(&python);
                install.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "-r"]);
                install.arg(&requirements);
                vec![make, install]
            }
        };
        if let Some(install) = commands.last_mut() {
            if let Some(url) = &self.settings.index_url {
                install.args(["--index-url", url]);
            }
            match (self.only_wheels, &self.uv) {
                (true, Some(_)) => install.arg("--no-build"),
                (true, None) => install.args(["--only-binary", ":all:"]),
                (false, _) => install,
            };
        }
        for command in &mut commands {
            // Paths in the files are relative to them. Where only names are allowed, none must mean a file.
            let place = if self.only_wheels { folder.parent() } else { Some(self.recipe.folder.as_path()) };
            if let Some(place) = place {
                command.current_dir(place);
            }
        }
        Ok(commands)
    }
}

/// The first program of that name in `PATH`.
fn find(program: &str) -> Option<PathBuf> {
    let places = env::var_os("PATH")?;
    env::split_paths(&places).map(|place| place.join(program)).find(|path| path.is_file())
}

/// Waits for a lock.
fn take(lock: &File, deadline: Instant) -> io::Result<()> {
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(50));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another server makes it, and takes too long"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// Writes the output of a program to the log, and returns what a client is told: the last line with an error.
fn told(failure: &CommandFailed) -> String {
    let CommandFailed { how, output } = failure;
    log::error!("{how}: {}", output.trim_end());
    let lines = || output.lines().map(str::trim).filter(|line| !line.is_empty());
    let line =
        lines().rfind(|line| line.to_ascii_lowercase().starts_with("error")).or_else(|| lines().next_back());
    line.map_or_else(|| how.clone(), |line| format!("{how}: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandboxed_model_may_only_name_packages() {
        for line in [
            "",
            "# a comment",
            "numpy",
            "numpy==2.1 ; python_version < '3.14'",
            "torch[cpu]>=2 # why",
            "--hash=sha256:0",
        ] {
            assert!(is_name(line), "{line}");
        }
        for line in [
            "-e .",
            "./package",
            "package/",
            "git+https://example.com/x",
            "x @ file:///tmp/x.tar.gz",
            "x@ https://example.com/x.tar.gz",
            "--index-url https://example.com",
            "-r other.txt",
            "https://example.com/x.tar.gz",
        ] {
            assert!(!is_name(line), "{line}");
        }
    }

    #[test]
    fn the_error_of_a_program_is_told() {
        let failure =
            |output: &str| told(&CommandFailed { how: "'pip' failed".to_owned(), output: output.to_owned() });
        assert_eq!(
            failure("Looking\nERROR: no such package\nnotice\n\n"),
            "'pip' failed: ERROR: no such package"
        );
        assert_eq!(failure("nothing\nlast\n"), "'pip' failed: last");
        assert_eq!(failure(""), "'pip' failed");
    }
}
