//! What the engine sees of object stores: the traits of `inference::repository`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use inference::repository::{LocalModelFiles, ObjectRepository, RepositoryOpener, StoreFuture, StoredObject};
use tokio::sync::OnceCell;
use vocabulary::{Error, Name};

use crate::cache::CacheOptions;
use crate::local_copy::LocalCopy;
use crate::repository::RemoteRepository;
use crate::store::spawn;
use crate::stores::ObjectStores;
use crate::url::{ObjectUrl, is_url};

/// How many bytes of contents may stay in the cache that no copy uses, if no option says otherwise.
pub const DEFAULT_UNUSED_BYTES: u64 = 64 << 30;

/// Reads a variable of the environment.
type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Opens repositories in object stores. The cache is opened with the first repository, so a server without such
/// repositories has none.
pub struct StoreOpener {
    variables: Variables,
    cache: CacheOptions,
    stores: OnceCell<ObjectStores>,
}

impl StoreOpener {
    /// An opener with the variables of this process.
    pub fn of_this_process(cache: CacheOptions) -> Self {
        Self::new(Arc::new(variable), cache)
    }

    /// An opener with these variables.
    pub fn new(variables: Variables, cache: CacheOptions) -> Self {
        Self { variables, cache, stores: OnceCell::new() }
    }

    async fn stores(&self) -> Result<&ObjectStores, Error> {
        let open = || {
            let (variables, cache) = (Arc::clone(&self.variables), self.cache.clone());
            spawn(move || ObjectStores::from_environment(&*variables, cache))
        };
        self.stores.get_or_try_init(open).await
    }
}

/// A variable of the environment of this process. An empty one counts as absent.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl RepositoryOpener for StoreOpener {
    fn name(&self, path: &str) -> Option<Result<Name, Error>> {
        is_url(path).then(|| ObjectUrl::parse(path).map(|url| Name::new(&url.text)))
    }

    fn open<'a>(&'a self, name: &'a str) -> StoreFuture<'a, Arc<dyn ObjectRepository>> {
        Box::pin(async move {
            let repository = self.stores().await?.repository(name).await?;
            Ok(Arc::new(repository) as Arc<dyn ObjectRepository>)
        })
    }
}

impl ObjectRepository for RemoteRepository {
    fn check(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.check())
    }

    fn models(&self) -> StoreFuture<'_, BTreeMap<String, Vec<StoredObject>>> {
        Box::pin(self.list())
    }

    fn objects<'a>(&'a self, model: &'a str) -> StoreFuture<'a, Vec<StoredObject>> {
        Box::pin(self.objects(model))
    }

    fn fetch<'a>(
        &'a self,
        model: &'a str,
        objects: &'a [StoredObject],
    ) -> StoreFuture<'a, Arc<dyn LocalModelFiles>> {
        Box::pin(async move {
            let copy = self.fetch(model, objects, |_| true).await?;
            Ok(Arc::new(copy) as Arc<dyn LocalModelFiles>)
        })
    }
}

impl LocalModelFiles for LocalCopy {
    fn path(&self) -> &Path {
        self.path()
    }
}

/// The directory of the cache if no option names one: `nereid/models` below `XDG_CACHE_HOME`, else below `.cache` in
/// the user's home if that exists. Otherwise a directory of the user below `TMPDIR`.
pub fn default_cache_directory() -> PathBuf {
    default_directory(variable)
}

fn default_directory(variables: impl Fn(&str) -> Option<String>) -> PathBuf {
    let home = || variables("HOME").map(PathBuf::from).filter(|home| home.is_absolute() && home.is_dir());
    let xdg = variables("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    match xdg.or_else(|| home().map(|home| home.join(".cache"))) {
        Some(caches) => caches.join("nereid/models"),
        None => {
            let temporary = variables("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
            temporary.join(format!("nereid-models-{}", rustix::process::geteuid().as_raw()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_below_the_directory_of_caches_the_home_or_the_temporary_directory() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().to_str().unwrap().to_owned();
        let directory = |variables: &[(&str, &str)]| {
            let find = |name: &str| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            default_directory(find).display().to_string()
        };
        assert_eq!(directory(&[("XDG_CACHE_HOME", "/c"), ("HOME", &home)]), "/c/nereid/models");
        assert_eq!(
            directory(&[("XDG_CACHE_HOME", "relative"), ("HOME", &home)]),
            format!("{home}/.cache/nereid/models")
        );
        assert!(directory(&[("HOME", "/there/is/none"), ("TMPDIR", "/t")]).starts_with("/t/nereid-models-"));
        assert!(directory(&[]).starts_with("/tmp/nereid-models-"));
    }

    #[test]
    fn forms_of_one_url_have_one_name_and_directories_have_none() {
        let cache = CacheOptions { directory: PathBuf::new(), max_unused_bytes: 0 };
        let opener = StoreOpener::new(Arc::new(|_| None), cache);
        let name = |path| opener.name(path).map(|name| name.map_err(|error| error.message.into_owned()));
        assert_eq!(name("s3://bucket//models/"), Some(Ok(Name::new("s3://bucket/models"))));
        assert_eq!(name("/models"), None);
        assert_eq!(name("s3://"), Some(Err("No bucket name found in path: s3://".to_owned())));
    }
}
