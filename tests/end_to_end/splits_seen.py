"""A served daemon, seen as tests of ops in parts see it: a job, its ops in parts, their order, what came of trials."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from served import ServedDaemon

from stepd.v1 import operator_pb2


class Daemon(ServedDaemon):
    """Seen as the test here sees it: a job and its ops in parts."""

    def job(self) -> str:
        """The id of the job, once its session has run steps."""
        listed = self.ask("ListJobs", operator_pb2.ListJobsRequest())
        return next((job.id for job in listed.job if any(s.steps for s in job.session)), "") if listed else ""

    def order(self, job: str) -> str:
        """The order in force, as of the last switch."""
        got = self.ask("GetJob", operator_pb2.GetJobRequest(job=job))
        last = [detail.last_switch for detail in got.detail if detail.HasField("last_switch")] if got else []
        return str(last[-1].order_in_force) if last and last[-1].ok else ""

    def splits(self, job: str) -> int:
        """How many ops are in parts, as of the last switch; -1 before there was one."""
        got = self.ask("GetJob", operator_pb2.GetJobRequest(job=job))
        last = [detail.last_switch for detail in got.detail if detail.HasField("last_switch")] if got else []
        return last[-1].splits_in_force if last and last[-1].ok else -1

    def planned(self, job: str) -> Any:
        """What the last switch put in force, once that is a planner's strategy with ops in parts; None before."""
        got = self.ask("GetJob", operator_pb2.GetJobRequest(job=job))
        for detail in got.detail if got else ():
            made = json.loads(detail.strategy.planner or "{}").get("algorithm", "")
            if detail.HasField("last_switch") and detail.last_switch.splits_in_force and made not in ("", "operator"):
                return detail
        return None

    def trial(self, job: str, strategy: str) -> Any:
        """What came of a strategy's trial; None before."""
        got = self.ask("GetHistory", operator_pb2.GetHistoryRequest(job=job))
        return next((trial for trial in got.trial if trial.strategy_id == strategy), None) if got else None

    def state(self, job: str) -> str:
        """The first session's."""
        got = self.ask("GetJob", operator_pb2.GetJobRequest(job=job))
        return next((session.state for session in got.job.session), "") if got else ""

    def show(self, job: str) -> str:
        """What `stepctl show` prints."""
        command = [sys.executable, "-m", "stepd.cli.main", "--socket", str(self.socket), "show", job]
        return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "200"}).stdout
