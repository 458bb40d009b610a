//! Does what the search decides: serves the model with each setting, measures, and keeps to the time.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::config_text::edit;
use crate::options::TuneOptions;
use crate::round::{LoadLine, LoadRefused, RoundFigures, RoundTimes, measure};
use crate::scratch::ScratchRepository;
use crate::search::{
    Search, SearchPlan, SearchStep, SpaceLimits, TunedSetting, TuningPoint, TuningSample, TuningSpace,
};
use crate::served::{Interruption, LOAD_TIMEOUT, ServedModel, ServerLine};
use crate::tunable::{TunableModel, refuse_untunable};

/// What a run has found.
pub struct TuningResult {
    /// The options of the run.
    pub options: TuneOptions,
    /// The search with all measurements.
    pub search: Search,
    /// What was chosen.
    pub chosen: TuningPoint,
    /// The user's configuration.
    pub given_text: String,
    /// The configuration of the choice.
    pub tuned_text: String,
    /// Points that could not be measured, with the reason.
    pub failures: Vec<(TuningPoint, String)>,
    /// Who used the processors, in the mean of all rounds.
    pub processors_used: ProcessorShares,
    /// How long it took.
    pub elapsed: Duration,
    /// Whether the user ended it.
    pub was_interrupted: bool,
}

/// How many processors who used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessorShares {
    /// The load generator.
    pub client: f64,
    /// The server with its processes.
    pub server: f64,
    /// All other programs. `None`: the system does not tell.
    pub others: Option<f64>,
}

/// The time that is kept for the comparison with the present setting, in rounds of each.
const COMPARED_ROUNDS: usize = 2;

/// The time that the end needs: the server ends, and files are written.
const ENDING: Duration = Duration::from_millis(1500);

/// A load may take so long when the time is nearly over.
const SHORTEST_LOAD: Duration = Duration::from_secs(1);

/// So many settings in a row that cannot be measured end the run.
const MOST_FAILURES: usize = 6;

/// Tunes the model. `program` is this program, `request_rows` is as for [`TunableModel::new`]. Progress goes to `err`.
///
/// # Errors
/// The model cannot be tuned or measured; the text says why.
pub fn tune(
    options: TuneOptions,
    program: &Path,
    request_rows: u32,
    interruption: &Interruption,
    err: &mut dyn Write,
) -> Result<TuningResult> {
    let begun = Instant::now();
    let cannot = || format!("model '{}' cannot be tuned", options.model);
    let scratch = ScratchRepository::new(&options.repositories, &options.model)?;
    let given_text = scratch.given_text()?;
    let given = proto::text::parse(given_text.as_bytes()).with_context(cannot)?;
    refuse_untunable(&given.config).with_context(cannot)?;
    scratch.write_config(&given_text)?;
    let line = ServerLine {
        program,
        models: &scratch.models(),
        log: scratch.file("server.log"),
        options: &options.server_options,
    };
    let server = ServedModel::start(line, &options.model, interruption)?;
    server
        .load(LOAD_TIMEOUT)
        .with_context(|| format!("model '{}' cannot be loaded as it is", options.model))?;
    let model = TunableModel::new(&given_text, server.config()?, request_rows).with_context(cannot)?;
    let search = search(&options, &model)?;
    let load = LoadLine {
        program: program.to_owned(),
        model: options.model.clone(),
        percentile: options.percentile,
        options: options.request_options.clone(),
        csv: scratch.file("round.csv"),
        printed: scratch.file("round.log"),
    };
    let round = Duration::from_secs_f64((options.time.as_secs_f64() / 90.0).clamp(0.4, 2.0));
    let mut run = TuningRun {
        options,
        scratch,
        given_text,
        server,
        model,
        search,
        load,
        interruption: interruption.clone(),
        begun,
        round,
        loaded: None,
        spent: Duration::ZERO,
        used: ProcessorShares::default(),
        failures: Vec::new(),
        err,
    };
    run.explore()?;
    run.finish()
}

fn search(options: &TuneOptions, model: &TunableModel) -> Result<Search> {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let shares_pool = options.server_options.iter().any(|option| option.contains("enable-global-threadpool"));
    let has_threads = model.threads_parameter().is_some() && !shares_pool;
    let largest = model.largest_batch(options.batch_max)?;
    // Each request has one row, so that batches are never larger than the callers are many.
    let callers = options.callers.iter().max().map_or(1, |callers| callers.next_power_of_two());
    let space = TuningSpace::new(&SpaceLimits {
        processors,
        batch: if options.batch_max.is_some() { largest } else { largest.min(callers) },
        has_threads,
        callers: options.callers.clone(),
        present: model.present(processors, has_threads),
    });
    Ok(Search::new(space, options.goal, options.plan))
}

struct TuningRun<'a> {
    options: TuneOptions,
    scratch: ScratchRepository,
    given_text: String,
    server: ServedModel,
    model: TunableModel,
    search: Search,
    load: LoadLine,
    interruption: Interruption,
    begun: Instant,
    /// The measured time of a round.
    round: Duration,
    /// The setting that the server has now.
    loaded: Option<TunedSetting>,
    /// The time of all rounds.
    spent: Duration,
    /// The sums over all rounds.
    used: ProcessorShares,
    failures: Vec<(TuningPoint, String)>,
    err: &'a mut dyn Write,
}

impl TuningRun<'_> {
    /// Measures what the search wants, until it has enough, the time is over, or the user wants the end.
    fn explore(&mut self) -> Result<()> {
        let space = self.search.space();
        let (settings, callers) = (space.settings.len(), space.callers.len());
        let processors = space.processors;
        self.say(format_args!("{settings} settings, {callers} numbers of callers, {processors} processors"));
        loop {
            let left = self.rounds_left();
            let all = (self.search.samples().len() + self.failures.len()).saturating_add(left);
            // Of a short time, most is for finding something to compare.
            let left = left.saturating_sub((2 * COMPARED_ROUNDS).min(all / 4));
            let SearchStep::Measure(point) = self.search.next(left) else { return Ok(()) };
            self.try_point(point)?;
            if self.interruption.is_asked() {
                return Ok(());
            }
        }
    }

    /// The time that is left for rounds.
    fn time_left(&self) -> Duration {
        match self.options.plan {
            SearchPlan::Model => self.options.time.saturating_sub(ENDING + self.begun.elapsed()),
            SearchPlan::Exhaustive => Duration::MAX,
        }
    }

    /// How many rounds there is time for.
    fn rounds_left(&self) -> usize {
        if self.options.plan == SearchPlan::Exhaustive {
            return usize::MAX / 2;
        }
        let count = self.search.samples().len() + self.failures.len();
        let each = match count {
            0 => self.round.mul_f64(1.25) + Duration::from_millis(200),
            count => self.spent / count as u32,
        };
        let left = self.time_left();
        let rounds = (left.as_secs_f64() / each.as_secs_f64().max(1e-3)) as usize;
        // Without a single measurement there would be no result.
        if count == 0 { rounds.max(1 + 2 * COMPARED_ROUNDS) } else { rounds }
    }

    /// Measures a point, and tells the search.
    ///
    /// # Errors
    /// Nothing can be measured at all.
    fn try_point(&mut self, point: TuningPoint) -> Result<()> {
        let begun = Instant::now();
        let measured = self.measure(point);
        match measured {
            Ok(figures) => {
                self.spent += begun.elapsed();
                self.used.client += figures.client_processors;
                self.used.server += figures.server_processors;
                if let Some(others) = figures.other_processors {
                    *self.used.others.get_or_insert(0.0) += others;
                }
                self.say_figures(point, &figures);
                let RoundFigures { rate, latency_ms, batches, .. } = figures;
                self.search.record(TuningSample { point, rate, latency_ms, batches });
            }
            Err(_) if self.interruption.is_asked() => {}
            Err(error) => {
                self.spent += begun.elapsed();
                let text = format!("{error:#}");
                self.say(format_args!("{point}: {text}"));
                self.search.record_failure(point);
                // If another point has failed in the same words, the cause is not the point. Too many callers are a cause.
                let is_refused = error.is::<LoadRefused>();
                let is_repeated = self
                    .failures
                    .iter()
                    .any(|(other, before)| *before == text && (is_refused || other.callers != point.callers));
                self.failures.push((point, text));
                let is_enough = is_repeated || self.failures.len() >= MOST_FAILURES.min(self.most());
                if self.search.samples().is_empty() && is_enough {
                    return Err(error).with_context(|| self.cannot_measure());
                }
            }
        }
        Ok(())
    }

    fn cannot_measure(&self) -> String {
        format!("model '{}' cannot be measured", self.options.model)
    }

    fn most(&self) -> usize {
        self.search.space().points().take(MOST_FAILURES).count()
    }

    fn measure(&mut self, point: TuningPoint) -> Result<RoundFigures> {
        let setting = point.setting;
        if self.loaded != Some(setting) {
            self.loaded = None;
            let text = edit(&self.given_text, &self.model, &self.model.changes(&setting))?;
            self.scratch.write_config(&text)?;
            self.server.load(self.time_left().max(SHORTEST_LOAD))?;
            self.loaded = Some(setting);
        }
        let times = self.times(point);
        let figures = measure(&self.load, &self.server, point.callers, times, &self.interruption)?;
        if figures.rate <= 0.0 || figures.latency_ms <= 0.0 {
            bail!("no request was answered within {:.1} s", times.measured.as_secs_f64());
        }
        if self.search.samples().is_empty() {
            // A slow model needs longer rounds.
            let wanted = Duration::from_secs_f64(ANSWERS_OF_A_ROUND / figures.rate);
            self.round = self.round.max(wanted).min(self.longest_round());
        }
        Ok(figures)
    }

    fn longest_round(&self) -> Duration {
        self.round.max(self.options.time / 10)
    }

    /// The times of a round: some latencies long, so that slow answers count, too.
    fn times(&mut self, point: TuningPoint) -> RoundTimes {
        let latency = match self.search.samples() {
            [] => Duration::ZERO,
            [.., last] => {
                let callers = f64::from(point.callers) / f64::from(last.point.callers);
                Duration::from_secs_f64(last.latency_ms / 1e3 * callers.max(1.0))
            }
        };
        let longest = self.longest_round();
        RoundTimes {
            warm_up: self.round.mul_f64(0.25).max(latency).min(longest),
            measured: self.round.max(latency * 4).min(longest),
        }
    }

    /// Compares with the present setting, chooses, and ends the server.
    fn finish(mut self) -> Result<TuningResult> {
        let Some((chosen, _)) = self.search.choice() else {
            let told = match self.failures.last() {
                Some((_, why)) => anyhow!("{}: {why}", self.cannot_measure()),
                None => anyhow!("model '{}': nothing was measured before the end", self.options.model),
            };
            self.server.stop();
            return Err(told);
        };
        let present = TuningPoint { setting: self.search.space().present, callers: chosen.callers };
        if present != chosen {
            for turn in 0..2 * COMPARED_ROUNDS {
                if self.interruption.is_asked() || self.rounds_left() == 0 {
                    break;
                }
                self.try_point(if turn % 2 == 0 { present } else { chosen })?;
            }
        }
        let chosen = self.search.choice().map_or(chosen, |(chosen, _)| chosen);
        let tuned_text = edit(&self.given_text, &self.model, &self.model.changes(&chosen.setting))?;
        let count = self.search.samples().len().max(1) as f64;
        self.say(format_args!("chosen: {chosen}"));
        self.server.stop();
        Ok(TuningResult {
            options: self.options,
            search: self.search,
            chosen,
            given_text: self.given_text,
            tuned_text,
            failures: self.failures,
            processors_used: ProcessorShares {
                client: self.used.client / count,
                server: self.used.server / count,
                others: self.used.others.map(|others| others / count),
            },
            elapsed: self.begun.elapsed(),
            was_interrupted: self.interruption.is_asked(),
        })
    }

    fn say_figures(&mut self, point: TuningPoint, figures: &RoundFigures) {
        let (rate, latency) = (figures.rate, figures.latency_ms);
        let percentile = self.options.percentile.name;
        self.say(format_args!("{point}: {rate:.0} req/s, p{percentile} {latency:.2} ms"));
    }

    fn say(&mut self, text: std::fmt::Arguments<'_>) {
        let seconds = self.begun.elapsed().as_secs_f64();
        // If nobody reads the progress, the error does not matter.
        let _ = writeln!(self.err, "{seconds:6.1} s  {text}");
    }
}

/// A round should have so many answers, at least.
const ANSWERS_OF_A_ROUND: f64 = 60.0;
