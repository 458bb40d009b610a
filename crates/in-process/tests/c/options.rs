//! Options: which values are accepted, which are refused, and with which texts.
use std::{
    ffi::{CStr, c_char},
    ptr,
};

use c_api::types::error::CError;
use in_process::{options::*, server::TRITONSERVER_ServerNew};

use crate::{servers::Chosen, support::result_of};

type SetTexts =
    unsafe extern "C" fn(*mut ServerOptions, *const c_char, *const c_char, *const c_char) -> *mut CError;

fn invalid(text: &str) -> Result<(), String> {
    Err(format!("Invalid argument: {text}"))
}

#[test]
fn an_unknown_control_mode_is_refused_and_copying_threads_have_no_effect() {
    let options = Chosen::new();
    let own = options.handle;
    // SAFETY: live options and texts.
    unsafe {
        let mode = |mode| result_of(TRITONSERVER_ServerOptionsSetModelControlMode(own, mode));
        assert_eq!([mode(0), mode(1), mode(2)], [Ok(()), Ok(()), Ok(())]);
        assert_eq!(mode(3), invalid("unknown control mode '3'"));
        let threads = |count| result_of(TRITONSERVER_ServerOptionsSetBufferManagerThreadCount(own, count));
        assert_eq!((threads(0), threads(1)), (Ok(()), Ok(())));
    }
}

#[test]
fn a_server_has_one_cache_at_most_and_knows_where_it_should_be() {
    let refusal = |configure: &dyn Fn(*mut ServerOptions)| {
        let options = Chosen::new().here();
        configure(options.handle);
        let mut server = ptr::null_mut();
        // SAFETY: live options, and a place of this function.
        result_of(unsafe { TRITONSERVER_ServerNew(&raw mut server, options.handle) })
    };
    let add = |own, name: &CStr, settings: &CStr| {
        // SAFETY: live options and texts.
        result_of(unsafe { TRITONSERVER_ServerOptionsSetCacheConfig(own, name.as_ptr(), settings.as_ptr()) })
    };
    let two = refusal(&|own| {
        // SAFETY: live options.
        let sized = result_of(unsafe { TRITONSERVER_ServerOptionsSetResponseCacheByteSize(own, 1 << 20) });
        assert_eq!((sized, add(own, c"other", c"{}")), (Ok(()), Ok(())));
    });
    let text = "found multiple cache configurations, but only a single cache is currently supported";
    assert_eq!(two, invalid(text));
    let absent = refusal(&|own| assert_eq!(add(own, c"absent", c"{\"size\":1,\"on\":true}"), Ok(())));
    let directory = "/opt/tritonserver/caches";
    assert_eq!(
        absent,
        invalid(&format!("unable to find 'libtritoncache_absent.so' for cache. Searched: {directory}"))
    );
    let options = Chosen::new();
    assert_eq!(
        add(options.handle, c"local", c"{\"size\":[]}"),
        invalid("setting 'size' of a cache is no text, number or truth value")
    );
}

#[test]
fn what_a_build_without_gpus_takes_is_taken() {
    let options = Chosen::new().here();
    let own = options.handle;
    // SAFETY: live options and texts.
    unsafe {
        for taken in [
            TRITONSERVER_ServerOptionsSetPinnedMemoryPoolByteSize(own, 1 << 20),
            TRITONSERVER_ServerOptionsSetCudaMemoryPoolByteSize(own, 0, 1 << 20),
            TRITONSERVER_ServerOptionsSetCudaVirtualAddressSize(own, 0, 1 << 20),
            TRITONSERVER_ServerOptionsSetMinSupportedComputeCapability(own, 7.5),
            TRITONSERVER_ServerOptionsSetEnablePeerAccess(own, true),
            TRITONSERVER_ServerOptionsSetGpuMetrics(own, true),
            TRITONSERVER_ServerOptionsSetMetricsInterval(own, 500),
            TRITONSERVER_ServerOptionsSetCacheDirectory(own, c"/caches".as_ptr()),
            TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(own, 2, 0, 0.5),
        ] {
            assert_eq!(result_of(taken), Ok(()));
        }
        let server = options.server().unwrap();
        result_of(in_process::server::TRITONSERVER_ServerDelete(server)).unwrap();
    }
}

#[test]
fn a_limit_of_device_memory_is_a_fraction_of_a_gpu() {
    let options = Chosen::new();
    let limit = |kind, device, fraction| {
        // SAFETY: live options.
        result_of(unsafe {
            TRITONSERVER_ServerOptionsSetModelLoadDeviceLimit(options.handle, kind, device, fraction)
        })
    };
    assert_eq!(limit(2, -1, 0.5), invalid("expects device ID >= 0, got -1"));
    let range = "expects limit fraction to be in range [0.0, 1.0], got 1.500000";
    assert_eq!(limit(2, 0, 1.5), invalid(range));
    assert_eq!(limit(1, 0, 0.5), invalid("given device kind is not supported, got: CPU"));
}

#[test]
fn modes_out_of_range_are_refused() {
    let options = Chosen::new();
    // SAFETY: live options.
    unsafe {
        let mode = |mode| result_of(TRITONSERVER_ServerOptionsSetRateLimiterMode(options.handle, mode));
        assert_eq!((mode(0), mode(1)), (Ok(()), Ok(())));
        assert_eq!(mode(2), invalid("unknown rate limit mode '2'"));
        let unknown = TRITONSERVER_ServerOptionsSetLogFormat(options.handle, 2);
        assert_eq!(result_of(unknown), invalid("unknown log format '2'"));
    }
}

#[test]
fn a_host_policy_binds_processors() {
    let options = Chosen::new();
    let policy = |setting: &CStr, value: &CStr| {
        let set: SetTexts = TRITONSERVER_ServerOptionsSetHostPolicy;
        // SAFETY: live options and texts.
        result_of(unsafe { set(options.handle, c"cpu".as_ptr(), setting.as_ptr(), value.as_ptr()) })
    };
    assert_eq!(policy(c"numa-node", c"0"), Ok(()));
    assert_eq!(policy(c"cpu-cores", c"0-1,3"), Ok(()));
    assert_eq!(policy(c"cpu-cores", c"x"), invalid("host policy setting 'cpu-cores' cannot be 'x'"));
    assert_eq!(
        policy(c"speed", c"1"),
        Err("Unsupported: Unsupported host policy setting 'speed' is specified, supported settings are 'numa-node', \
             'cpu-cores'"
            .to_owned())
    );
}

#[test]
fn latencies_are_counted_and_nothing_else() {
    let options = Chosen::new();
    let metric = |name: &CStr, setting: &CStr, value: &CStr| {
        let set: SetTexts = TRITONSERVER_ServerOptionsSetMetricsConfig;
        // SAFETY: live options and texts.
        result_of(unsafe { set(options.handle, name.as_ptr(), setting.as_ptr(), value.as_ptr()) })
    };
    assert_eq!(metric(c"", c"counter_latencies", c"false"), Ok(()));
    assert_eq!(metric(c"", c"summary_latencies", c"false"), Ok(()));
    assert_eq!(metric(c"", c"summary_latencies", c"true"), Ok(()));
    assert_eq!(metric(c"", c"histogram_latencies", c"true"), Ok(()));
    assert_eq!(metric(c"", c"summary_quantiles", c"0.5:0.05,0.9:0.01"), Ok(()));
    assert_eq!(metric(c"", c"other", c"x"), Ok(()), "unknown settings have no effect");
    let text = "'0.5' is not <quantile>:<error>, both from 0 to 1";
    assert_eq!(metric(c"", c"summary_quantiles", c"0.5"), invalid(text));
    assert_eq!(metric(c"x", c"buckets", c"1"), Ok(()), "neither have unknown names");
    assert_eq!(metric(c"", c"counter_latencies", c"maybe"), invalid("'maybe' is neither true nor false"));
}

#[test]
fn every_setter_refuses_null() {
    let null = ptr::null_mut();
    let missing = invalid("unexpected null TRITONSERVER_ServerOptions");
    let (options, text) = (Chosen::new(), ptr::null());
    // SAFETY: null where it is allowed to be refused.
    unsafe {
        assert_eq!(result_of(TRITONSERVER_ServerOptionsSetServerId(null, c"x".as_ptr())), missing);
        assert_eq!(result_of(TRITONSERVER_ServerOptionsSetExitTimeout(null, 1)), missing);
        assert_eq!(result_of(TRITONSERVER_ServerOptionsSetLogInfo(null, true)), missing);
        let no_text = invalid("unexpected null text");
        for set in [
            TRITONSERVER_ServerOptionsSetServerId,
            TRITONSERVER_ServerOptionsSetModelRepositoryPath,
            TRITONSERVER_ServerOptionsSetStartupModel,
            TRITONSERVER_ServerOptionsSetModelConfigName,
            TRITONSERVER_ServerOptionsSetBackendDirectory,
            TRITONSERVER_ServerOptionsSetRepoAgentDirectory,
            TRITONSERVER_ServerOptionsSetCacheDirectory,
        ] {
            assert_eq!(result_of(set(options.handle, text)), no_text);
        }
        let set: SetTexts = TRITONSERVER_ServerOptionsSetBackendConfig;
        assert_eq!(result_of(set(options.handle, c"b".as_ptr(), text, c"v".as_ptr())), no_text);
        assert_eq!(result_of(TRITONSERVER_ServerOptionsDelete(null)), Ok(()));
        let new = in_process::server::TRITONSERVER_ServerNew;
        let mut server = ptr::null_mut();
        assert_eq!(result_of(new(&mut server, null)), missing);
    }
}
