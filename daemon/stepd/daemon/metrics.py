"""Prometheus metrics on loopback: base units, no per-op labels. A table of what there is; nothing here
decides.

| metric | meaning |
|---|---|
| stepd_jobs | attached training processes |
| stepd_profiles_total | profiled steps received |
| stepd_profile_errors_total | profiles that could not be read |
| stepd_phase_entered_total{phase} | transitions of sessions |
| stepd_plan_seconds | time of plans, processes included |
| stepd_trials_total{outcome} | verdicts of the guards |
| stepd_step_seconds{session} | median step time now, of the main step kind |
"""

from __future__ import annotations

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from stepd.core.activation_values import Phase


class Metrics:
    """One registry a daemon."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._jobs = Gauge("stepd_jobs", "Attached training processes.", registry=self.registry)
        self._profiles = Counter("stepd_profiles", "Profiled steps received.", registry=self.registry)
        self._errors = Counter("stepd_profile_errors", "Profiles that could not be read.", registry=self.registry)
        self._phases = Counter("stepd_phase_entered", "Transitions of sessions.", ["phase"], registry=self.registry)
        self._plans = Histogram("stepd_plan_seconds", "Time of plans.", registry=self.registry)
        self._trials = Counter("stepd_trials", "Verdicts of the guards.", ["outcome"], registry=self.registry)
        self._steps = Gauge("stepd_step_seconds", "Median step time now.", ["session"], registry=self.registry)

    def serve(self, port: int) -> None:
        """Listen on 127.0.0.1. Raises OSError."""
        start_http_server(port, addr="127.0.0.1", registry=self.registry)

    def jobs(self, count: int) -> None:
        self._jobs.set(count)

    def profiled(self, ok: bool) -> None:
        (self._profiles if ok else self._errors).inc()

    def entered(self, phase: Phase) -> None:
        self._phases.labels(phase.value).inc()

    def planned(self, seconds: float) -> None:
        self._plans.observe(seconds)

    def judged(self, outcome: str) -> None:
        self._trials.labels(outcome).inc()

    def stepped(self, session_id: str, seconds: float) -> None:
        self._steps.labels(session_id).set(seconds)

    def forget(self, session_id: str) -> None:
        """A session ended."""
        with suppress(KeyError):
            self._steps.remove(session_id)
