//! A precise timer.
//!
//! The runtime's own timers have a resolution of one millisecond. That error would be added to every latency of an open
//! loop. A kernel timer behind a file descriptor wakes within tens of microseconds.

use std::io::{Error, Result};
use std::time::Duration;

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

/// One timer. One task at a time waits for it.
pub struct Timer {
    /// The timer is not a pipe, but it is read like one: after it has expired it returns eight bytes, the number of
    /// expiries.
    descriptor: Receiver,
}

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// The system has no more timers or files for the process.
    pub fn new() -> Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Timer { descriptor: Receiver::from_owned_fd_unchecked(descriptor)? })
    }

    /// Returns when `duration` has passed. Returns at once if `duration` is zero.
    ///
    /// # Errors
    /// The time is too long for the system.
    pub async fn sleep(&mut self, duration: Duration) -> Result<()> {
        // A zero time would disarm the timer.
        if duration.is_zero() {
            return Ok(());
        }
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec::try_from(duration).map_err(|_| Error::other("the time is too long"))?,
        };
        rustix::time::timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &once)?;
        self.descriptor.read_exact(&mut [0; 8]).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn it_never_wakes_early_and_can_be_used_again() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut timer = Timer::new().unwrap();
            for microseconds in [0, 200, 3000] {
                let (start, wanted) = (Instant::now(), Duration::from_micros(microseconds));
                timer.sleep(wanted).await.unwrap();
                assert!(start.elapsed() >= wanted);
            }
        });
    }
}
