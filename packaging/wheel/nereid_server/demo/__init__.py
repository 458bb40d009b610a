"""A demonstration: `python -m nereid_server.demo`. It needs `pip install "nereid-server[demo]"`."""
