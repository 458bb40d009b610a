//! Waits for something that another thread or process does.
use std::{
    thread,
    time::{Duration, Instant},
};

use crate::http::TIMEOUT;

/// Asks again and again until the condition is true. The time limit only decides when the test gives up.
///
/// # Panics
/// The condition is still false after [`TIMEOUT`].
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        // Leaves the processor to those that the test waits for.
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_the_condition_is_true() {
        let mut asked = 0;
        eventually("the third question", || {
            asked += 1;
            asked == 3
        });
        assert_eq!(asked, 3);
    }
}
