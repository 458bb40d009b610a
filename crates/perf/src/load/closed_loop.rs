//! The closed loop: callers that wait for their responses.

use std::rc::Rc;
use std::time::Instant;

use anyhow::Result;
use tokio::task::JoinSet;

use super::point::{MeasuredPoint, MeasurementPlan, PointWindows, say_farewell};
use super::tally::Tally;
use crate::caller::Caller;
use crate::statistics::StatisticsReader;

/// Runs a closed loop: every caller sends its next request as soon as it has its response. Responses within a window
/// count.
pub(crate) async fn closed(
    callers: Vec<Caller>,
    plan: &MeasurementPlan,
    statistics: &mut StatisticsReader,
) -> Result<MeasuredPoint> {
    let tally = Rc::new(Tally::new(plan.keep_requests));
    let mut tasks = JoinSet::new();
    for mut caller in callers {
        let tally = tally.clone();
        tasks.spawn_local(async move {
            tally.begun().await;
            while tally.may_send() {
                let mut trace = tally.request(Instant::now());
                let answer = caller.call(|| trace.response()).await;
                trace.end(&answer);
                // Lets the other callers run if responses are ready at once.
                tokio::task::consume_budget().await;
            }
            tally.ended().await;
            caller.end_sequence().await;
        });
    }
    let mut windows = PointWindows { tally: &tally, plan, statistics, is_open_loop: false };
    let point = windows.measure().await;
    tally.end();
    say_farewell(tasks).await;
    point
}
