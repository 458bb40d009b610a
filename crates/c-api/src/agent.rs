//! `tritonrepoagent.h`: repository agents in shared libraries, and the functions they call.
use std::{
    ffi::{CString, c_char, c_void},
    path::{Path, PathBuf},
    ptr,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicPtr,
            Ordering::{Acquire, Release},
        },
    },
};

use inference::{
    agent::{AgentAction, AgentFinder, AgentModel, ArtifactType, ModelAgent, RepositoryAgent, not_found},
    lock::{LockRank, Mutex},
};
use vocabulary::Error;

use crate::{
    backend::model::check_version,
    handle::{self, Handle, borrow, c_path, guard, put, readable},
    plugin::Library,
    stable_box::StableBox,
    types::{
        error::{CError, consume},
        message::{Message, give_json},
    },
};

type AboutAgent = unsafe extern "C-unwind" fn(*mut Agent) -> *mut CError;
type AboutModel = unsafe extern "C-unwind" fn(*mut Agent, *mut AgentModelHandle) -> *mut CError;
type Act = unsafe extern "C-unwind" fn(*mut Agent, *mut AgentModelHandle, u32) -> *mut CError;

/// Agents in shared libraries below one directory (`--repoagent-directory`). An agent lives while a model uses it.
#[derive(Debug)]
pub struct AgentLibraries {
    directory: PathBuf,
    running: Mutex<Vec<(String, Weak<Agent>)>>,
}

impl AgentLibraries {
    /// The agents below `directory`.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory, running: Mutex::ranked(LockRank::PluginLibraries, Vec::new()) }
    }

    fn library(&self, name: &str) -> PathBuf {
        self.directory.join(name).join(format!("libtritonrepoagent_{name}.so"))
    }
}

impl AgentFinder for AgentLibraries {
    fn find(&self, name: &str) -> Result<Arc<dyn RepositoryAgent>, Error> {
        // The lock is held while the library initializes itself.
        let mut running = self.running.lock();
        running.retain(|(_, agent)| agent.strong_count() > 0);
        if let Some(agent) =
            running.iter().find(|(known, _)| known == name).and_then(|(_, agent)| agent.upgrade())
        {
            return Ok(Arc::new(AttachableAgent(agent)));
        }
        let path = self.library(name);
        if !path.is_file() {
            return Err(not_found(name, &self.directory.join(name)));
        }
        let agent = Agent::start(&path)?;
        running.push((name.to_owned(), Arc::downgrade(&agent)));
        Ok(Arc::new(AttachableAgent(agent)))
    }

    fn has(&self, name: &str) -> bool {
        self.library(name).is_file()
    }
}

/// `TRITONREPOAGENT_Agent`; finalized when dropped.
#[derive(Debug)]
pub struct Agent {
    state: AtomicPtr<c_void>,
    finalize: Option<AboutAgent>,
    model_initialize: Option<AboutModel>,
    model_finalize: Option<AboutModel>,
    act: Act,
    _library: Library,
}

impl Handle for Agent {
    const NAME: &'static str = "TRITONREPOAGENT_Agent";
}

impl Agent {
    fn start(path: &Path) -> Result<Arc<Self>, Error> {
        let library = Library::open(path)?;
        // SAFETY: the types are those of the header for these names.
        let (initialize, agent) = unsafe {
            let initialize = library.function::<AboutAgent>(c"TRITONREPOAGENT_Initialize");
            let act = library.function(c"TRITONREPOAGENT_ModelAction").ok_or_else(|| {
                Error::not_found(format!(
                    "unable to find required entrypoint 'TRITONREPOAGENT_ModelAction' in library {}",
                    path.display()
                ))
            })?;
            let agent = Self {
                state: AtomicPtr::default(),
                finalize: library.function(c"TRITONREPOAGENT_Finalize"),
                model_initialize: library.function(c"TRITONREPOAGENT_ModelInitialize"),
                model_finalize: library.function(c"TRITONREPOAGENT_ModelFinalize"),
                act,
                _library: library,
            };
            (initialize, Arc::new(agent))
        };
        if let Some(initialize) = initialize {
            // SAFETY: the agent stays at this address.
            unsafe { consume(initialize(Arc::as_ptr(&agent).cast_mut()))? };
        }
        Ok(agent)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let Some(finalize) = self.finalize else { return };
        // SAFETY: initialized, and finalized once.
        if let Err(error) = unsafe { consume(finalize(ptr::from_mut(self))) } {
            log::error!("~TritonRepoAgent: {error}");
        }
    }
}

/// An agent as the repository uses it.
struct AttachableAgent(Arc<Agent>);

impl RepositoryAgent for AttachableAgent {
    fn attach(&self, model: &mut AgentModel) -> Result<Box<dyn ModelAgent>, Error> {
        let model_handle = StableBox::default();
        let mut attached_model = AttachedModel { agent: self.0.clone(), model_handle };
        if let Some(initialize) = self.0.model_initialize {
            let initialized = attached_model.during(model, |agent, model_handle| {
                // SAFETY: both live during the call.
                unsafe { consume(initialize(agent, model_handle)) }
            });
            if let Err(error) = initialized {
                // As Triton: a model whose initialization has failed is finalized all the same.
                attached_model.leave(model);
                return Err(error);
            }
        }
        Ok(Box::new(attached_model))
    }
}

/// One model that the library acts on.
struct AttachedModel {
    agent: Arc<Agent>,
    model_handle: StableBox<AgentModelHandle>,
}

impl AttachedModel {
    /// Calls the library. The library may ask about the model during the call.
    fn during(
        &self,
        model: &mut AgentModel,
        call: impl FnOnce(*mut Agent, *mut AgentModelHandle) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.model_handle.model.store(ptr::from_mut(model), Release);
        let result = call(Arc::as_ptr(&self.agent).cast_mut(), self.model_handle.as_ptr());
        self.model_handle.model.store(ptr::null_mut(), Release);
        result
    }
}

impl ModelAgent for AttachedModel {
    fn act(&mut self, model: &mut AgentModel, action: AgentAction) -> Result<(), Error> {
        let number = match action {
            AgentAction::Load => 0,
            AgentAction::LoadComplete => 1,
            AgentAction::LoadFail => 2,
            AgentAction::Unload => 3,
            AgentAction::UnloadComplete => 4,
        };
        self.during(model, |agent, model_handle| {
            // SAFETY: both live during the call.
            unsafe { consume((self.agent.act)(agent, model_handle, number)) }
        })
    }

    fn leave(&mut self, model: &mut AgentModel) {
        let Some(finalize) = self.agent.model_finalize else { return };
        let result = self.during(model, |agent, model_handle| {
            // SAFETY: both live during the call.
            unsafe { consume(finalize(agent, model_handle)) }
        });
        if let Err(error) = result {
            log::error!("~TritonRepoAgentModel: {error}");
        }
    }
}

/// `TRITONREPOAGENT_AgentModel`: a model that an agent acts on.
pub struct AgentModelHandle {
    state: AtomicPtr<c_void>,
    /// Set while the library is called.
    model: AtomicPtr<AgentModel>,
    /// Each user of the model locks it: a library may call from threads of its own.
    asking: Mutex<()>,
    /// Paths that the library has received. The library may read them until the model is deleted.
    paths: Mutex<Vec<CString>>,
}

impl Default for AgentModelHandle {
    fn default() -> Self {
        Self {
            state: AtomicPtr::default(),
            model: AtomicPtr::default(),
            asking: Mutex::ranked(LockRank::AgentQuestion, ()),
            paths: Mutex::default(),
        }
    }
}

impl Handle for AgentModelHandle {
    const NAME: &'static str = "TRITONREPOAGENT_AgentModel";
}

impl AgentModelHandle {
    fn with<T>(&self, ask: impl FnOnce(&mut AgentModel) -> Result<T, Error>) -> Result<T, Error> {
        let _one_at_a_time = self.asking.lock();
        // SAFETY: null, or the model of the call that the library is in. The lock makes this the only reference, and no
        // function in this file calls the library while it holds the lock.
        let model = unsafe { self.model.load(Acquire).as_mut() };
        ask(model
            .ok_or_else(|| Error::unavailable("a model can be asked about while its agent is called"))?)
    }

    /// A path that the library may read.
    fn tell(&self, path: &Path) -> *const c_char {
        let path = c_path(path);
        let mut paths = self.paths.lock();
        if let Some(known) = paths.iter().find(|known| **known == path) {
            return known.as_ptr();
        }
        let address = path.as_ptr();
        paths.push(path);
        address
    }
}

fn artifact(number: u32) -> ArtifactType {
    if number == 0 { ArtifactType::Filesystem } else { ArtifactType::RemoteFilesystem }
}

/// Returns the version of the agent interface: 0.1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONREPOAGENT_ApiVersion(major: *mut u32, minor: *mut u32) -> *mut CError {
    // SAFETY: null or writable.
    guard(|| unsafe { put(major, 0).and_then(|()| put(minor, 1)) })
}

/// Returns the location of the model (artifact type 0, a file system). The path belongs to the model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONREPOAGENT_ModelRepositoryLocation(
    _agent: *mut Agent,
    model: *mut AgentModelHandle,
    artifact_type: *mut u32,
    location: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe {
        let model_handle = borrow(model)?;
        let path = model_handle.with(|model| model.location().map(|path| model_handle.tell(path)))?;
        put(artifact_type, 0).and_then(|()| put(location, path))
    })
}

/// Gives the agent a directory that it may fill. The directory is removed when the agent releases it, or with the
/// model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONREPOAGENT_ModelRepositoryLocationAcquire(
    _agent: *mut Agent,
    model: *mut AgentModelHandle,
    artifact_type: u32,
    location: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe {
        let model_handle = borrow(model)?;
        let acquired = model_handle
            .with(|model| model.acquire(artifact(artifact_type)).map(|path| model_handle.tell(path)));
        put(location, acquired?)
    })
}

/// Removes the directory that was acquired. There is at most one, so `location` is not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONREPOAGENT_ModelRepositoryLocationRelease(
    _agent: *mut Agent,
    model: *mut AgentModelHandle,
    _location: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live model.
    guard(|| unsafe { borrow(model)?.with(AgentModel::release) })
}

/// Sets the location of the model. Allowed only while the model is being loaded. The path is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONREPOAGENT_ModelRepositoryUpdate(
    _agent: *mut Agent,
    model: *mut AgentModelHandle,
    artifact_type: u32,
    location: *const c_char,
) -> *mut CError {
    // SAFETY: null or a live model; a text or null.
    guard(|| unsafe {
        let location = handle::path(location)?;
        borrow(model)?.with(|model| model.relocate(artifact(artifact_type), location))
    })
}

/// Returns the number of parameters that the configuration gives the agent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONREPOAGENT_ModelParameterCount(
    _agent: *mut Agent,
    model: *mut AgentModelHandle,
    count: *mut u32,
) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe {
        let has = borrow(model)?.with(|model| Ok(model.parameters().len()))?;
        put(count, u32::try_from(has).unwrap_or(u32::MAX))
    })
}

/// Returns a parameter. Name and value belong to the model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONREPOAGENT_ModelParameter(
    _agent: *mut Agent,
    model: *mut AgentModelHandle,
    index: u32,
    parameter_name: *mut *const c_char,
    parameter_value: *mut *const c_char,
) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let read = |model: &mut AgentModel| {
            model.parameter(index).map(|(name, value)| (readable(name), readable(value)))
        };
        let (name, value) = borrow(model)?.with(read)?;
        put(parameter_name, name).and_then(|()| put(parameter_value, value))
    })
}

/// Returns the configuration as it was read, as JSON (version 1). The caller owns the message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONREPOAGENT_ModelConfig(
    _agent: *mut Agent,
    model: *mut AgentModelHandle,
    config_version: u32,
    config: *mut *mut Message,
) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe {
        check_version(config_version)?;
        let json = borrow(model)?.with(|model| Ok(proto::json::to_json(model.config())))?;
        give_json(config, &json)
    })
}

/// Returns the pointer that the library has stored with the model; null at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONREPOAGENT_ModelState(
    model: *mut AgentModelHandle,
    state: *mut *mut c_void,
) -> *mut CError {
    // SAFETY: null or a live model; null or writable.
    guard(|| unsafe { put(state, borrow(model)?.state.load(Acquire)) })
}

/// Stores a pointer with the model. The library keeps owning what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONREPOAGENT_ModelSetState(
    model: *mut AgentModelHandle,
    state: *mut c_void,
) -> *mut CError {
    // SAFETY: null or a live model.
    guard(|| unsafe { borrow(model) }.map(|own| own.state.store(state, Release)))
}

/// Returns the pointer that the library has stored with the agent; null at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONREPOAGENT_State(agent: *mut Agent, state: *mut *mut c_void) -> *mut CError {
    // SAFETY: null or a live agent; null or writable.
    guard(|| unsafe { put(state, borrow(agent)?.state.load(Acquire)) })
}

/// Stores a pointer with the agent. The library keeps owning what it points to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TRITONREPOAGENT_SetState(agent: *mut Agent, state: *mut c_void) -> *mut CError {
    // SAFETY: null or a live agent.
    guard(|| unsafe { borrow(agent) }.map(|own| own.state.store(state, Release)))
}
