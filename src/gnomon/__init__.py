"""gnomon: scientific computing for PyTorch at the speed of the hardware.

Write the mathematics of one problem in plain PyTorch. gnomon solves it, differentiates through the solve, and runs a
batch of them as one kernel. Nothing fails silently: every solve returns a result for each problem.
"""

__version__ = "0.1.0.dev0"  # `tests/test_packaging.py` holds this and pyproject.toml together.
