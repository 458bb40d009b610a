//! libFuzzer over one target, which the environment variable `NEREID_FUZZ_TARGET` names. The arguments are those of
//! libFuzzer. `cargo xtask fuzz` builds and starts it.
#![no_main]

use std::{env, sync::LazyLock};

use fuzz::{FuzzTarget, find_target};
use libfuzzer_sys::fuzz_target;

const VARIABLE: &str = "NEREID_FUZZ_TARGET";

static CHOSEN: LazyLock<&FuzzTarget> = LazyLock::new(|| {
    let name = env::var(VARIABLE).unwrap_or_default();
    find_target(&name).unwrap_or_else(|| panic!("{VARIABLE} names no target: '{name}'"))
});

fuzz_target!(|data: &[u8]| {
    if let Err(broken) = CHOSEN.check(data) {
        panic!("{}: {broken}", CHOSEN.name);
    }
});
