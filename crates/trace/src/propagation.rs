//! The context of a trace that begins elsewhere, in the form of W3C: `traceparent` and `tracestate`.

/// What a client says about the trace that its request belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteContext {
    pub(crate) trace_id: u128,
    pub(crate) parent_span: u64,
    /// As the client wrote it.
    pub(crate) state: Option<String>,
}

/// The longest `tracestate` that is passed on, in bytes.
const MAX_STATE_BYTES: usize = 512;

impl RemoteContext {
    /// The header with the ids.
    pub const PARENT_HEADER: &'static str = "traceparent";
    /// The header with values of the systems that take part.
    pub const STATE_HEADER: &'static str = "tracestate";

    /// Reads the headers. `None` unless `parent` is valid. An invalid `state` is ignored.
    pub fn parse(parent: &[u8], state: Option<&[u8]>) -> Option<Self> {
        let parent = std::str::from_utf8(parent).ok()?.trim();
        let mut parts = parent.split('-');
        let (version, trace_id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let version = hex(version, 2)?;
        // Versions after 00 may have further parts.
        if version == 0xff || (version == 0 && parts.next().is_some()) || hex(flags, 2).is_none() {
            return None;
        }
        let trace_id = hex(trace_id, 32).filter(|id| *id != 0)?;
        let parent_span = u64::try_from(hex(span, 16)?).ok().filter(|id| *id != 0)?;
        let state = state.and_then(|state| std::str::from_utf8(state).ok()).map(str::trim);
        let is_state = |state: &&str| {
            !state.is_empty()
                && state.len() <= MAX_STATE_BYTES
                && state.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        Some(Self { trace_id, parent_span, state: state.filter(is_state).map(str::to_owned) })
    }
}

/// A number of exactly so many digits. Only lower case is valid.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == digits && text.bytes().all(is_digit)).then(|| u128::from_str_radix(text, 16).ok())?
}

/// What a backend passes on to others: the ids of the span in which it works.
pub(crate) fn as_json(trace_id: u128, span: u64, state: Option<&str>) -> String {
    let parent = format!("00-{trace_id:032x}-{span:016x}-01");
    let mut object = format!("{{\"traceparent\":\"{parent}\"");
    if let Some(state) = state {
        object += &format!(",\"tracestate\":{}", serde_json::Value::from(state));
    }
    object + "}"
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_valid_context_is_read_and_passed_on() {
        let read = RemoteContext::parse(PARENT.as_bytes(), Some(b" a=b,c=d ")).unwrap();
        assert_eq!(read.trace_id, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(read.parent_span, 0xb7ad_6b71_6920_3331);
        assert_eq!(
            as_json(read.trace_id, read.parent_span, read.state.as_deref()),
            format!("{{\"traceparent\":\"{PARENT}\",\"tracestate\":\"a=b,c=d\"}}")
        );
        assert_eq!(
            as_json(1, 2, None),
            "{\"traceparent\":\"00-00000000000000000000000000000001-0000000000000002-01\"}"
        );
    }

    #[test]
    fn a_later_version_may_say_more() {
        let later = PARENT.replacen("00-", "cc-", 1) + "-more";
        assert!(RemoteContext::parse(later.as_bytes(), None).is_some());
        assert!(RemoteContext::parse((PARENT.to_owned() + "-more").as_bytes(), None).is_none());
    }

    #[test]
    fn an_invalid_context_is_no_context() {
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
        ] {
            assert_eq!(RemoteContext::parse(wrong.as_bytes(), None), None, "{wrong}");
        }
        assert_eq!(RemoteContext::parse(b"\xff", None), None);
    }

    #[test]
    fn an_invalid_state_is_ignored() {
        let state = |state: &[u8]| RemoteContext::parse(PARENT.as_bytes(), Some(state)).unwrap().state;
        assert_eq!(state(b"a=\nb"), None);
        assert_eq!(state(&[b'a'; 513]), None);
        assert_eq!(state(b""), None);
        assert_eq!(state(b"a=\"b\""), Some("a=\"b\"".to_owned()));
    }
}
