"""The name by which some models import the types of `triton_python_backend_utils`, because Triton defines them here."""

from triton_python_backend_utils import *  # noqa: F403
