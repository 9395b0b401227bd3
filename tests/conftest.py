"""Settings that hold for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# No test may depend on how fast the machine is today.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
