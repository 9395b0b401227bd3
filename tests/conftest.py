"""Settings that hold for every test."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# No test may depend on how fast the machine is today.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

# A shell that runs the suite in its background has it ignore Ctrl-C, and servers that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
