//! Fills a local cache with small responses and compares the memory of the process with what the cache says it uses.
//!
//! `cargo run --release -p cache --example memory -- [MIB] [BYTES]`: a cache of so many MiB (1024), responses of so
//! many bytes (200). Prints the ratio after filling, and after all entries have been replaced twice.
use std::{
    fs,
    sync::Arc,
    task::{Context, Waker},
};

use cache::local::LocalResponseCache;
use inference::{
    Response,
    cache::{ResponseCache, StorageRules},
};
use vocabulary::{DataType, Error, Name, Tensor};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let limit = arguments.next().transpose()?.unwrap_or(1024) << 20;
    let size = arguments.next().transpose()?.unwrap_or(200);
    let cache = LocalResponseCache::of(limit);
    let name = Name::from("OUTPUT0");
    let before = resident()?;
    let mut number = 0_u64;
    for round in 0..3 {
        let replaced = |cache: &LocalResponseCache| {
            cache.statistics().evictions >= round * cache.statistics().entries as u64
        };
        loop {
            for _ in 0..1000 {
                insert(&cache, number, &name, size)?;
                number += 1;
            }
            let full = cache.statistics().evictions > 0;
            if full && replaced(&cache) {
                break;
            }
        }
        let (used, resident) = (cache.statistics().used_bytes, resident()? - before);
        report(round, cache.statistics().entries, used, resident);
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn report(round: u64, entries: usize, used: usize, resident: usize) {
    let ratio = resident as f64 / used as f64;
    println!(
        "replaced {round} times: {entries} entries, {used} bytes by the cache, {resident} resident: {ratio:.3}"
    );
}

fn insert(cache: &LocalResponseCache, number: u64, name: &Name, size: usize) -> Result<(), Error> {
    // The keys of the engine have the name and version of the model, and a hash.
    let key = format!("model/1/{number:064x}");
    let shape = [i64::try_from(size).unwrap_or(i64::MAX)];
    let output = Tensor::new(name.clone(), DataType::Uint8, shape[..].into(), vec![1; size]);
    let mut insertion =
        cache.insert(&key, Arc::new(Response::of(vec![output]).into()), StorageRules::default());
    let _ = insertion.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    // A hit makes the reference count of the bytes, which an entry then keeps.
    drop(cache.look_up(&key));
    Ok(())
}

/// Bytes of memory that the process has.
fn resident() -> Result<usize, Box<dyn std::error::Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? * 1024)
}
