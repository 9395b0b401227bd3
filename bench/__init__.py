"""Benchmarks, each one command; the test suite runs them only on tiny files.

Matrix products use one thread, as in the server (``server.cli``): what is measured in process is what it takes there.
"""

import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # read when numpy is first imported
