//! Our header is what C and C++ compilers take without a complaint.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]
use std::fs;

use testing::plugins::check_syntax;

/// What a plug-in's author writes first: the header alone, and an entry with the mark that old sources carry.
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
