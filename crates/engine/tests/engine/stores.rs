//! Tests of repositories in object stores, with a store in memory: what is copied and for how long, and what a store that
//! hangs or fails means.
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};

use engine::{Engine, EngineOptions, ModelControl, Polling, StartupModels};
use inference::{
    Plugins,
    agent::AgentFinder,
    backend::Backend,
    repository::{
        LocalModelFiles, ObjectKind, ObjectRepository, RepositoryOpener, StoreFuture, StoredObject,
    },
};
use parking_lot::Mutex;
use repository::LoadParameters;
use testing::Agents;
use tokio::sync::watch;
use vocabulary::{Error, ErrorCode, Name};

use crate::support::{ECHO, TIMEOUT, echo, index, options, serves, until};

const URL: &str = "mem://models";

/// A request to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Listing,
    Objects,
    Fetch,
}

/// A store in memory with one repository. Each content is its own tag.
struct MemoryStore {
    objects: Mutex<BTreeMap<String, String>>,
    /// What each copy consists of, in the order in which they were made.
    fetched: Mutex<Vec<Vec<String>>>,
    copies: Mutex<Vec<Weak<MemoryCopy>>>,
    listings: AtomicUsize,
    /// Requests of this kind are not answered.
    held: watch::Sender<Option<Asked>>,
    failure: Mutex<Option<Error>>,
    /// The store fails as soon as a version has been copied.
    fails_after_fetch: Mutex<Option<Error>>,
}

struct MemoryCopy {
    _root: tempfile::TempDir,
    directory: PathBuf,
}

impl LocalModelFiles for MemoryCopy {
    fn path(&self) -> &Path {
        &self.directory
    }
}

impl MemoryStore {
    fn new(objects: &[(&str, &str)]) -> Arc<Self> {
        let store = Self {
            objects: Mutex::default(),
            fetched: Mutex::default(),
            copies: Mutex::default(),
            listings: AtomicUsize::new(0),
            held: watch::channel(None).0,
            failure: Mutex::default(),
            fails_after_fetch: Mutex::default(),
        };
        objects.iter().for_each(|(path, content)| store.put(path, content));
        Arc::new(store)
    }

    fn put(&self, path: &str, content: &str) {
        self.objects.lock().insert(path.to_owned(), content.to_owned());
    }

    fn remove(&self, model: &str) {
        self.objects.lock().retain(|path, _| !path.starts_with(&format!("{model}/")));
    }

    fn hold(&self, asked: Option<Asked>) {
        self.held.send_replace(asked);
    }

    /// Returns when a request of the held kind waits.
    async fn is_asked(&self) {
        until("the store to be asked", || self.held.receiver_count() > 0).await;
    }

    async fn answer(&self, asked: Asked) -> Result<(), Error> {
        if *self.held.borrow() == Some(asked) {
            let mut held = self.held.subscribe();
            let _ = held.wait_for(|held| *held != Some(asked)).await;
        }
        self.failure.lock().clone().map_or(Ok(()), Err)
    }

    fn listed(&self, model: &str) -> Vec<StoredObject> {
        let objects = self.objects.lock();
        let below = objects.iter().filter_map(|(path, content)| {
            let path = path.strip_prefix(model)?.strip_prefix('/')?.to_owned();
            let (byte_size, etag) = (content.len() as u64, Some(content.clone()));
            Some(StoredObject {
                path,
                kind: ObjectKind::File,
                byte_size,
                etag,
                modified: SystemTime::UNIX_EPOCH,
            })
        });
        below.collect()
    }

    /// The directories of copies that are held.
    fn copies(&self) -> Vec<PathBuf> {
        let copies = self.copies.lock();
        copies.iter().filter_map(Weak::upgrade).map(|copy| copy.directory.clone()).collect()
    }
}

/// The store as the engine sees it.
#[derive(Clone)]
struct MemoryOpener(Arc<MemoryStore>);

impl RepositoryOpener for MemoryOpener {
    fn name(&self, path: &str) -> Option<Result<Name, Error>> {
        match path.strip_prefix("mem://")?.trim_end_matches('/') {
            "" => Some(Err(Error::invalid("the URL has no name"))),
            name => Some(Ok(Name::new(&format!("mem://{name}")))),
        }
    }

    fn open<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Arc<dyn ObjectRepository>> {
        Box::pin(async move {
            match name {
                URL => Ok(Arc::new(self.clone()) as Arc<dyn ObjectRepository>),
                _ => Err(Error::not_found(format!("no credential for '{name}'"))),
            }
        })
    }
}

impl ObjectRepository for MemoryOpener {
    fn check(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let is_empty = self.0.objects.lock().is_empty();
            if is_empty { Err(Error::not_found(format!("nothing is at {URL}"))) } else { Ok(()) }
        })
    }

    fn models(&self) -> StoreFuture<'_, BTreeMap<String, Vec<StoredObject>>> {
        Box::pin(async move {
            self.0.listings.fetch_add(1, SeqCst);
            self.0.answer(Asked::Listing).await?;
            let names: BTreeSet<_> = {
                let objects = self.0.objects.lock();
                objects
                    .keys()
                    .filter_map(|path| path.split_once('/'))
                    .map(|(model, _)| model.to_owned())
                    .collect()
            };
            Ok(names.into_iter().map(|name| (name.clone(), self.0.listed(&name))).collect())
        })
    }

    fn objects<'a>(&'a self, model: &'a str) -> StoreFuture<'a, Vec<StoredObject>> {
        Box::pin(async move {
            self.0.answer(Asked::Objects).await?;
            Ok(self.0.listed(model))
        })
    }

    fn fetch<'a>(
        &'a self,
        model: &'a str,
        objects: &'a [StoredObject],
    ) -> StoreFuture<'a, Arc<dyn LocalModelFiles>> {
        Box::pin(async move {
            self.0.answer(Asked::Fetch).await?;
            let root = tempfile::tempdir().unwrap();
            let directory = root.path().join(model);
            for object in objects {
                let path = directory.join(&object.path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, object.etag.as_deref().unwrap()).unwrap();
            }
            self.0.fetched.lock().push(objects.iter().map(|object| object.path.clone()).collect());
            let copy = Arc::new(MemoryCopy { _root: root, directory });
            self.0.copies.lock().push(Arc::downgrade(&copy));
            if objects.iter().any(|object| object.path.starts_with("1/")) {
                let failure = self.0.fails_after_fetch.lock().take();
                *self.0.failure.lock() = failure;
            }
            Ok(copy as Arc<dyn LocalModelFiles>)
        })
    }
}

fn new_engine(store: &Arc<MemoryStore>, options: EngineOptions, agents: &Agents) -> Result<Engine, Error> {
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(echo())];
    let agents: Option<Arc<dyn AgentFinder>> = Some(Arc::new(agents.clone()));
    let repositories: Option<Arc<dyn RepositoryOpener>> = Some(Arc::new(MemoryOpener(store.clone())));
    Engine::new(options, Plugins { backends, agents, repositories, ..Plugins::default() })
}

async fn start(store: &Arc<MemoryStore>, control: ModelControl) -> Engine {
    let options = EngineOptions { control, ..options(vec![URL.into()]) };
    let engine = new_engine(store, options, &Agents::default()).unwrap();
    engine.load_models().await.unwrap();
    engine
}

fn explicit() -> ModelControl {
    ModelControl::Explicit(StartupModels::Named(BTreeSet::new()))
}

fn polling() -> ModelControl {
    ModelControl::Poll(Polling { period: Duration::from_millis(2), settle: Duration::from_millis(1) })
}

async fn load(engine: &Engine, name: &str) -> Result<(), Error> {
    engine.repository().load(name, LoadParameters::default()).await
}

#[tokio::test]
async fn each_version_has_a_copy_with_its_own_files_until_it_ends() {
    let all = format!("{ECHO} version_policy {{ all {{}} }}");
    let store =
        MemoryStore::new(&[("m/config.pbtxt", &all), ("m/1/x", "1"), ("m/2/x", "2"), ("m/labels", "l")]);
    let engine = start(&store, explicit()).await;
    load(&engine, "m").await.unwrap();
    assert_eq!(index(&engine), ["m 1 READY", "m 2 READY"]);
    let mut fetched = std::mem::take(&mut *store.fetched.lock());
    fetched[1..].sort();
    let shared = ["config.pbtxt", "labels"];
    assert_eq!(
        fetched,
        [vec![shared[0], shared[1]], vec!["1/x", shared[0], shared[1]], vec!["2/x", shared[0], shared[1]]]
    );
    until("only versions have copies", || store.copies().len() == 2).await;
    let before = store.copies();
    store.put("m/2/x", "two");
    load(&engine, "m").await.unwrap();
    assert_eq!(store.fetched.lock().len(), 2, "the shared files, and the version that has changed");
    until("the replaced copy goes", || store.copies().len() == 2).await;
    assert_eq!(store.copies().iter().filter(|copy| before.contains(copy)).count(), 1);
    engine.repository().unload("m").await.unwrap();
    until("all copies go", || store.copies().is_empty()).await;
}

#[tokio::test]
async fn a_copy_whose_instances_change_goes_on_with_its_files() {
    let store = MemoryStore::new(&[("m/config.pbtxt", ECHO), ("m/1/x", "1")]);
    let engine = start(&store, explicit()).await;
    load(&engine, "m").await.unwrap();
    until("only the version has a copy", || store.copies().len() == 1).await;
    let before = store.copies();
    store.put("m/config.pbtxt", &format!("{ECHO} instance_group {{ count: 3 kind: KIND_CPU }}"));
    load(&engine, "m").await.unwrap();
    let model = engine.model("m", None).unwrap();
    assert_eq!(model.config().instance_groups[0].count.get(), 3);
    assert!(store.fetched.lock()[2..].iter().all(|copy| *copy == ["config.pbtxt"]), "no version is copied");
    until("the copy stays", || store.copies() == before).await;
    assert!(serves(&engine, "m").await);
    drop(model);
    engine.repository().unload("m").await.unwrap();
    until("the copy goes", || store.copies().is_empty()).await;
}

#[tokio::test]
async fn agents_find_all_files_of_a_model() {
    let config = format!("{ECHO} model_repository_agents {{ agents {{ name: 'a' }} }}");
    let store = MemoryStore::new(&[("m/config.pbtxt", &config), ("m/1/x", "1"), ("m/2/x", "2")]);
    let agents = Agents::default().with_idle("a");
    let options = EngineOptions { control: explicit(), ..options(vec![URL.into()]) };
    let engine = new_engine(&store, options, &agents).unwrap();
    load(&engine, "m").await.unwrap();
    assert_eq!(index(&engine), ["m 2 READY"]);
    assert_eq!(store.fetched.lock()[1], ["1/x", "2/x", "config.pbtxt"]);
    until("one copy is left", || store.copies().len() == 1).await;
    engine.repository().unload("m").await.unwrap();
    until("no copy is left", || store.copies().is_empty()).await;
    assert_eq!(agents.notifications().last().map(String::as_str), Some("a leaves"));
}

#[tokio::test]
async fn repositories_are_registered_by_their_urls() {
    let store = MemoryStore::new(&[("m/config.pbtxt", ECHO), ("m/1/x", "1")]);
    let options = EngineOptions { control: explicit(), ..options(Vec::new()) };
    let engine = new_engine(&store, options, &Agents::default()).unwrap();
    let register = |url: &str| {
        let mapped = ["other", "another"].map(|model| (Name::new(model), "m".to_owned()));
        engine.repository().register(url.into(), BTreeMap::from(mapped))
    };
    assert_eq!(register("mem://").await.unwrap_err().message, "the URL has no name");
    assert_eq!(register("mem://elsewhere").await.unwrap_err().message, "no credential for 'mem://elsewhere'");
    register("mem://models//").await.unwrap();
    let again = register(URL).await.unwrap_err();
    assert_eq!(again.code, ErrorCode::AlreadyExists);
    for name in ["other", "another"] {
        load(&engine, name).await.unwrap();
    }
    assert!(load(&engine, "m").await.is_err(), "the model has other names");
    engine.repository().unregister("mem://models/".into()).await.unwrap();
    assert!(serves(&engine, "other").await, "its models stay");
    store.objects.lock().clear();
    assert_eq!(register(URL).await.unwrap_err().message, "nothing is at mem://models");
}

#[tokio::test]
async fn a_url_that_breaks_a_rule_is_refused_at_once() {
    let store = MemoryStore::new(&[]);
    let refused = new_engine(&store, options(vec!["mem://".into()]), &Agents::default()).err().unwrap();
    assert_eq!(refused.message, "the URL has no name");
}

#[tokio::test]
async fn a_store_is_followed_and_its_failure_unloads_nothing() {
    let store = MemoryStore::new(&[("m/config.pbtxt", ECHO), ("m/1/x", "1")]);
    let engine = start(&store, polling()).await;
    store.put("n/config.pbtxt", ECHO);
    store.put("n/1/x", "1");
    until("a new model", || index(&engine) == ["m 1 READY", "n 1 READY"]).await;
    *store.failure.lock() = Some(Error::unavailable("no connection"));
    store.remove("m");
    engine.repository().poll().await.unwrap();
    engine.repository().poll().await.unwrap();
    assert_eq!(index(&engine), ["m 1 READY", "n 1 READY"]);
    *store.failure.lock() = None;
    until("the deleted model is unloaded", || index(&engine) == ["n 1 READY"]).await;
    store.remove("n");
    until("a repository may lose its last model", || index(&engine).is_empty()).await;
}

#[tokio::test]
async fn a_store_that_fails_after_the_copies_does_not_waste_them() {
    let store = MemoryStore::new(&[("m/config.pbtxt", ECHO), ("m/1/x", "1")]);
    let engine = start(&store, polling()).await;
    *store.fails_after_fetch.lock() = Some(Error::unavailable("no connection"));
    store.put("m/1/x", "one");
    until("the store fails", || store.failure.lock().is_some()).await;
    until("the new copy serves alone", || {
        let copies = store.copies();
        copies.len() == 1 && fs::read_to_string(copies[0].join("1/x")).is_ok_and(|content| content == "one")
    })
    .await;
    assert_eq!(index(&engine), ["m 1 READY"]);
}

#[tokio::test]
async fn a_store_without_objects_is_an_error_at_the_start() {
    let store = MemoryStore::new(&[]);
    let engine = new_engine(&store, options(vec![URL.into()]), &Agents::default()).unwrap();
    assert_eq!(engine.load_models().await.unwrap_err().message, "nothing is at mem://models");
    assert_eq!(engine.live(), Ok(false));
}

#[tokio::test]
async fn those_who_need_a_listing_share_it() {
    let store = MemoryStore::new(&[("m/config.pbtxt", ECHO), ("m/1/x", "1")]);
    let engine = start(&store, explicit()).await;
    store.hold(Some(Asked::Listing));
    let asking: Vec<_> = (0..5)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.index(false).await.len() })
        })
        .collect();
    store.is_asked().await;
    load(&engine, "m").await.unwrap();
    store.hold(None);
    for asked in asking {
        assert_eq!(asked.await.unwrap(), 1);
    }
    assert!(store.listings.load(SeqCst) <= 2, "those who came after the first answer share another one");
}

#[tokio::test]
async fn a_stop_waits_for_no_store() {
    for asked in [Asked::Listing, Asked::Objects, Asked::Fetch] {
        let store = MemoryStore::new(&[("m/config.pbtxt", ECHO), ("m/1/x", "1")]);
        let engine = start(&store, explicit()).await;
        store.hold(Some(asked));
        let (loading, listing) = (engine.clone(), engine.clone());
        let loading = tokio::spawn(async move { load(&loading, "m").await });
        let listing = tokio::spawn(async move { listing.index(false).await });
        store.is_asked().await;
        engine.stop(TIMEOUT).await.unwrap();
        if asked != Asked::Listing {
            assert_eq!(loading.await.unwrap().unwrap_err().message, "Server exiting", "{asked:?}");
        }
        listing.await.unwrap();
        assert!(store.copies().is_empty());
    }
}

#[tokio::test]
async fn an_unload_ends_the_downloads_of_its_model_only() {
    let objects = [("m/config.pbtxt", ECHO), ("m/1/x", "1"), ("n/config.pbtxt", ECHO), ("n/1/x", "1")];
    let store = MemoryStore::new(&objects);
    let engine = start(&store, explicit()).await;
    store.hold(Some(Asked::Fetch));
    let [m, n] = ["m", "n"].map(|name| {
        let engine = engine.clone();
        tokio::spawn(async move { load(&engine, name).await })
    });
    until("both wait", || store.held.receiver_count() == 2).await;
    engine.repository().unload("m").await.unwrap();
    let refused = m.await.unwrap().unwrap_err();
    assert!(refused.message.contains("the download of model 'm' was ended"), "{refused}");
    store.hold(None);
    n.await.unwrap().unwrap();
    load(&engine, "m").await.unwrap();
    assert_eq!(index(&engine), ["m 1 READY", "n 1 READY"]);
}
