//! Options that have a successor. Each works as far as its successor works, and prints a warning.

use super::option_spec::{INT_MAX, OptionSpec, OptionValue, boolean, checked, text};

/// The largest number of 32 bits.
const UINT_MAX: i64 = u32::MAX as i64;

pub(super) const DEPRECATED: &[OptionSpec] = &[
    boolean(
        "strict-model-config",
        |typed, value| typed.repository.strict_model_config = Some(value),
        "If true, the same as --disable-auto-complete-config. Use that option.",
    )
    .deprecated(
        "Warning: '--strict-model-config' has been deprecated! Please use \
             '--disable-auto-complete-config' instead.",
    ),
    OptionSpec::new(
        "response-cache-byte-size",
        OptionValue::Integer(i64::MIN, i64::MAX, |typed, value| {
            let settings = typed.cache.configs.entry("local".to_owned()).or_default();
            settings.insert("size".to_owned(), value.to_string());
        }),
        "Use --cache-config=local,size=<bytes>.",
    )
    .deprecated(
        "Warning: '--response-cache-byte-size' has been deprecated! It stands for the 'local' \
             cache; please use '--cache-config=local,size={value}' instead.",
    ),
    text(
        "trace-file",
        |typed, value| typed.trace.file = value.to_owned(),
        "Use --trace-config=triton,file=<path>.",
    )
    .deprecated(
        "Warning: '--trace-file' has been deprecated and will be removed in future releases. Please use \
         '--trace-config triton,file=<filepath>' instead.",
    ),
    checked(
        "trace-level",
        "off|timestamps|tensors",
        |typed, value| typed.trace.add_level(value),
        "Use --trace-config=level=<level>. May be given several times.",
    )
    .deprecated(
        "Warning: '--trace-level' has been deprecated and will be removed in future releases. Please use \
         '--trace-config level=<OFF|TIMESTAMPS|TENSORS>' instead.",
    ),
    OptionSpec::new(
        "trace-rate",
        OptionValue::Integer(0, UINT_MAX, |typed, value| typed.trace.rate = Some(value)),
        "Use --trace-config=rate=<number>.",
    )
    .default_note("1000")
    .deprecated(
        "Warning: '--trace-rate' has been deprecated and will be removed in future releases. Please use \
         '--trace-config rate=<rate value>' instead.",
    ),
    OptionSpec::new(
        "trace-count",
        OptionValue::Integer(-1, INT_MAX, |typed, value| typed.trace.count = value),
        "Use --trace-config=count=<number>.",
    )
    .default("-1")
    .deprecated(
        "Warning: '--trace-count' has been deprecated and will be removed in future releases. Please use \
         '--trace-config count=<count value>' instead.",
    ),
    OptionSpec::new(
        "trace-log-frequency",
        OptionValue::Integer(0, UINT_MAX, |typed, value| typed.trace.log_frequency = value),
        "Use --trace-config=triton,log-frequency=<number>.",
    )
    .default("0")
    .deprecated(
        "Warning: '--trace-log-frequency' has been deprecated and will be removed in future \
             releases. Please use '--trace-config triton,log-frequency=<log frequency value>' instead.",
    ),
];
