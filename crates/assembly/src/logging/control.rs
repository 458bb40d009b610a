//! The log settings for clients of the network protocols.
use kserve::log_control::{LogChange, LogControl, LogLine, LogState, UnknownLogFormat};

use super::{LogFormat, LogSettings, tail::LogTail};

impl LogControl for LogSettings {
    fn state(&self) -> LogState {
        let levels = self.levels();
        LogState {
            file: self.file().map(|file| file.display().to_string()).unwrap_or_default(),
            info: levels.info,
            warning: levels.warning,
            error: levels.error,
            verbose_level: levels.verbose,
            format: levels.format.name(),
        }
    }

    fn apply(&self, change: &LogChange) -> Result<LogState, UnknownLogFormat> {
        let format = match &change.format {
            Some(name) => Some(LogFormat::named(name).ok_or(UnknownLogFormat)?),
            None => None,
        };
        self.update(|levels| {
            levels.info = change.info.unwrap_or(levels.info);
            levels.warning = change.warning.unwrap_or(levels.warning);
            levels.error = change.error.unwrap_or(levels.error);
            levels.verbose = change.verbose_level.unwrap_or(levels.verbose);
            levels.format = format.unwrap_or(levels.format);
        });
        Ok(self.state())
    }

    fn last_lines(&self) -> Option<Vec<LogLine>> {
        self.tail().map(LogTail::lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logging::Levels;

    #[test]
    fn a_change_with_an_unknown_format_changes_nothing() {
        let log = LogSettings::new(Levels::default());
        let before = log.state();
        let change = LogChange { info: Some(false), format: Some("x".to_owned()), ..LogChange::default() };
        assert_eq!(log.apply(&change), Err(UnknownLogFormat));
        assert_eq!(log.state(), before);
    }

    #[test]
    fn a_change_reaches_each_setting_it_names_and_no_other() {
        let log = LogSettings::new(Levels::default());
        let before = log.state();
        assert_eq!(log.apply(&LogChange::default()), Ok(before.clone()));
        let change = |set: fn(&mut LogChange)| {
            let mut change = LogChange::default();
            set(&mut change);
            log.apply(&change).unwrap()
        };
        let mut expected = before;
        expected.info = false;
        assert_eq!(change(|change| change.info = Some(false)), expected);
        expected.warning = false;
        assert_eq!(change(|change| change.warning = Some(false)), expected);
        expected.error = false;
        assert_eq!(change(|change| change.error = Some(false)), expected);
        expected.verbose_level = 3;
        assert_eq!(change(|change| change.verbose_level = Some(3)), expected);
        expected.format = "ISO8601";
        assert_eq!(change(|change| change.format = Some("ISO8601".to_owned())), expected);
    }
}
