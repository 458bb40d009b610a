"""The measurements of `promises.py`."""
