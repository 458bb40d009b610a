"""A demonstration: `python -m nereid_server.demo`. It needs the extra `demo` of the wheel."""
