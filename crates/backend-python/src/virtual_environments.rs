//! Environments that are made from the files beside a model: `requirements.txt`, or `pyproject.toml` with `uv.lock`.
//!
//! An environment lies in a folder of the cache whose name is a digest of all that it is made from. It is made in its
//! place, because its files contain their paths. It counts when the mark of completeness is there, which comes last. A
//! lock keeps two makers apart, also of two servers. The programs that make an environment end with their server, and hold
//! the lock as long as they run.
//!
//! A model in a sandbox chooses packages by their names only. Its files are read once. What `requirements` accepts of them
//! is written to a private file, and the programs that get this file run in a sandbox, too.
use std::{
    borrow::Cow,
    env, fs,
    fs::{File, TryLockError},
    io::{self, Read},
    path::{self, Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use vocabulary::{Error, FailureReason};

use crate::{
    environment_settings::EnvironmentSettings,
    installer_commands::Installer,
    limited_command::{CommandFailed, run_until},
    requirements::accepted,
    sandbox::{InstallerSandbox, SandboxMode},
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

/// The requirements of a project that uv has written.
const EXPORTED: &str = "exported.txt";

/// The most bytes of a file that describes an environment.
const MOST_BYTES: u64 = 64 << 20;

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
    /// The sandbox of the model. If it has one, nothing of its packages runs outside, so only wheels are installed.
    pub(crate) sandbox: SandboxMode,
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
    let is_in_sandbox = owner.sandbox != SandboxMode::Off;
    if is_in_sandbox && owner.names_interpreter {
        let text =
            format!("the model runs in a sandbox, and its parameter '{PYTHON_EXECUTABLE}' would run outside");
        return Err(failed(text));
    }
    let sandbox = is_in_sandbox.then_some(owner.sandbox);
    if let (Some(_), [(name @ REQUIREMENTS, content)]) = (sandbox, &recipe.files[..]) {
        // Refused even if an environment for the same file is there.
        accepted(content).map_err(|refused| failed(refused.text(name)))?;
    }
    let base = reachable(base).map_err(|error| failed(format!("the interpreter {base}: {error}")))?;
    let maker = EnvironmentMaker { recipe, base: &base, settings, sandbox, uv: find("uv") };
    let folder = maker.made(owner.model).map_err(failed)?;
    Ok(Some(folder.join("bin/python").to_string_lossy().into_owned()))
}

impl Recipe {
    fn beside(folder: &Path) -> io::Result<Option<Self>> {
        let regular = |path: PathBuf| match fs::metadata(&path)?.is_file() {
            true => read_limited(&path),
            // A pipe or a device could block the load for ever.
            false => Err(io::Error::other("it is not a regular file")),
        };
        let read = |name: &'static str| match regular(folder.join(name)) {
            Ok(content) => Ok(Some((name, content))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(io::Error::other(format!("{}: {error}", folder.join(name).display()))),
        };
        // Programs read the files in another working directory.
        let folder = path::absolute(folder)?;
        if let (Some(project), Some(lock)) = (read(PROJECT)?, read(PROJECT_LOCK)?) {
            return Ok(Some(Self { kind: RecipeKind::Project, folder, files: vec![project, lock] }));
        }
        let requirements = read(REQUIREMENTS)?;
        Ok(requirements.map(|file| Self { kind: RecipeKind::Requirements, folder, files: vec![file] }))
    }
}

/// The content of a file that is not too large.
fn read_limited(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut content)?;
    match content.len() as u64 > MOST_BYTES {
        true => Err(io::Error::other(format!("it has more than {MOST_BYTES} bytes"))),
        false => Ok(content),
    }
}

/// Makes one environment.
struct EnvironmentMaker<'a> {
    recipe: Recipe,
    base: &'a str,
    settings: &'a EnvironmentSettings,
    /// The sandbox of the model, if it has one.
    sandbox: Option<SandboxMode>,
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
        // The number stands for the rules by which lines are accepted.
        add(&[if self.sandbox.is_some() { 2 } else { 0 }]);
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
        run_until(&command, None, &nothing, deadline).map_err(|failure| told(&failure))?;
        fs::read_to_string(place.path()).map_err(|error| error.to_string())
    }

    fn make(&self, folder: &Path, lock: &File, deadline: Instant) -> Result<(), String> {
        // What a killed server has left.
        if let Err(error) = fs::remove_dir_all(folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(format!("the folder {}: {error}", folder.display()));
        }
        let made = match self.sandbox {
            None => self.make_freely(folder, lock, deadline),
            Some(mode) => self.make_in_sandbox(mode, folder, lock, deadline),
        };
        made.inspect_err(|_| {
            let _ = fs::remove_dir_all(folder);
        })?;
        File::create(folder.join(COMPLETE)).map(drop).map_err(|error| error.to_string())
    }

    /// Makes an environment from the files of the model as they are: they may run code.
    fn make_freely(&self, folder: &Path, lock: &File, deadline: Instant) -> Result<(), String> {
        let installer = self.installer(folder);
        let commands = match self.recipe.kind {
            RecipeKind::Project => vec![installer.sync(&self.recipe.folder)?],
            RecipeKind::Requirements => installer.install(&self.recipe.folder.join(REQUIREMENTS)).into(),
        };
        for mut command in commands {
            // Paths in the files are relative to them.
            command.current_dir(&self.recipe.folder);
            run_until(&command, None, lock, deadline).map_err(|failure| told(&failure))?;
        }
        Ok(())
    }

    /// Makes an environment from what is accepted of the files of the model, by programs in a sandbox.
    fn make_in_sandbox(
        &self,
        mode: SandboxMode,
        folder: &Path,
        lock: &File,
        deadline: Instant,
    ) -> Result<(), String> {
        let at_files = |error: io::Error| format!("files for the packages: {error}");
        fs::create_dir(folder).map_err(at_files)?;
        let private = tempfile::Builder::new().prefix("nereid-environment-").tempdir().map_err(at_files)?;
        let writable = [folder, private.path()];
        let run = |mut command: Command, has_network: bool| {
            // No name of a package means a file there.
            command.current_dir(private.path());
            let sandbox = InstallerSandbox { mode, writable: &writable, has_network };
            run_until(&command, Some(sandbox), lock, deadline).map_err(|failure| told(&failure))
        };
        let installer = self.installer(folder);
        let lines = match self.recipe.kind {
            RecipeKind::Requirements => {
                let (name, content) = self.recipe.files.first().ok_or("there is no file")?;
                accepted(content).map_err(|refused| refused.text(name))?
            }
            RecipeKind::Project => {
                // uv tells the same packages as requirements, whose lines are accepted or not.
                for (name, content) in &self.recipe.files {
                    fs::write(private.path().join(name), content).map_err(at_files)?;
                }
                let exported = private.path().join(EXPORTED);
                run(installer.export(private.path(), &exported)?, false)?;
                let content = read_limited(&exported).map_err(at_files)?;
                accepted(&content)
                    .map_err(|refused| refused.text(&format!("{PROJECT_LOCK}, as requirements,")))?
            }
        };
        let requirements = private.path().join("accepted.txt");
        fs::write(&requirements, lines).map_err(at_files)?;
        installer.install(&requirements).into_iter().try_for_each(|command| run(command, true))
    }

    fn installer<'a>(&'a self, folder: &'a Path) -> Installer<'a> {
        Installer {
            uv: self.uv.as_deref(),
            base: self.base,
            folder,
            index_url: self.settings.index_url.as_deref(),
            only_wheels: self.sandbox.is_some(),
        }
    }
}

/// A program as any working directory reaches it. A name without a slash is searched in `PATH`.
fn reachable(program: &str) -> io::Result<Cow<'_, str>> {
    match program.contains('/') {
        true => Ok(path::absolute(program)?.to_string_lossy().into_owned().into()),
        false => Ok(program.into()),
    }
}

/// The first program of that name in `PATH`.
fn find(program: &str) -> Option<PathBuf> {
    let places = env::var_os("PATH")?;
    let found = env::split_paths(&places).map(|place| place.join(program)).find(|path| path.is_file())?;
    path::absolute(found).ok()
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
