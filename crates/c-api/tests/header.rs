//! C and C++ compilers accept the generated header without a warning.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
use std::fs;

use testing::plugins::check_syntax;

/// The first lines of a plug-in: the header alone, and an entry point with the mark that old sources carry.
const SOURCE: &str = "
#include \"nereid.h\"
#ifdef __cplusplus
extern \"C\" {
#endif
TRITONBACKEND_ISPEC TRITONSERVER_Error *TRITONBACKEND_Initialize(TRITONBACKEND_Backend *backend)
{
  (void)backend;
  if (TRITONSERVER_DataTypeByteSize(TRITONSERVER_TYPE_FP32) == 4) return NULL;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, \"strange floats\");
}
#ifdef __cplusplus
}
#endif
";

fn check(language: &str, standard: &str) {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("source");
    fs::write(&source, SOURCE).unwrap();
    check_syntax(&source, language, standard).unwrap();
}

#[test]
fn the_header_is_c_of_1999() {
    check("c", "c99");
}

#[test]
fn the_header_is_c_plus_plus_of_2011() {
    check("c++", "c++11");
}
