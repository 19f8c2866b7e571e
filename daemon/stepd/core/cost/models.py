"""All that is known of one graph on one set of devices, and whether it is known well enough (FastT, section
4).

Pure: the daemon feeds observations, stores `to_state` and asks for a `Knowledge` view when it plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepd.core.cost.communication import CommunicationModel
from stepd.core.cost.computation import ComputationModel
from stepd.core.cost.observation import StepObservation
from stepd.core.cost.sizes import SizeModel

STATE_VERSION = 2


@dataclass(frozen=True)
class Change:
    """How far the models moved: share of the step's device time that changed, and device pairs that became
    known.
    """

    computation: float
    communication: float
    new_pairs: int
    new_devices: int

    def stable(self, threshold: float) -> bool:
        """FastT, section 4: the average time of the same op on the same device does not vary much."""
        return self.new_devices == 0 and self.computation <= threshold

    def worth_planning(self, threshold: float) -> bool:
        """Changed enough that a new plan may differ."""
        return self.new_devices > 0 or self.new_pairs > 0 or self.computation > threshold or self.communication > 2 * threshold


NOTHING_KNOWN = Change(1.0, 1.0, 0, 1)


class CostModels:
    """Computation, communication and sizes of one graph, learned step by step."""

    def __init__(self) -> None:
        self.computation = ComputationModel()
        self.communication = CommunicationModel()
        self.outputs = SizeModel()
        self.temporary = SizeModel()
        self.resident = SizeModel()
        self.steps = 0
        self.batch = 0
        self.overhead_seconds = 0.0

    def observe(self, step: StepObservation) -> None:
        """Learn from one profiled step."""
        for seen in step.devices:
            self.computation.observe(seen, step.batch, self.steps)
        for transfer in step.transfers:
            self.communication.observe(transfer.src, transfer.dst, transfer.bytes, transfer.seconds)
        slots = {f"{op}:{slot}": size for op, by_slot in step.output_bytes.items() for slot, size in by_slot.items()}
        self.outputs.observe(slots, step.batch)
        self.temporary.observe(step.temp_bytes, step.batch)
        self.resident.observe(step.resident_bytes, step.batch)
        self.steps += 1
        self.batch = step.batch
        self.overhead_seconds = step.overhead_seconds

    def mark(self) -> Mark:
        """The models as they are now, to measure change against later."""
        return Mark(self.computation.snapshot(), self.communication.summary())

    def to_state(self) -> dict[str, Any]:
        """Plain containers and arrays; `from_state` rebuilds."""
        return {
            "version": STATE_VERSION,
            "steps": self.steps,
            "batch": self.batch,
            "overhead_seconds": self.overhead_seconds,
            "computation": self.computation.to_state(),
            "communication": self.communication.to_state(),
            "outputs": self.outputs.to_state(),
            "temporary": self.temporary.to_state(),
            "resident": self.resident.to_state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> CostModels:
        """Rebuild what `to_state` gave. ValueError: written by another version."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"cost models of version {state.get('version')}, this is {STATE_VERSION}")
        models = cls()
        models.steps, models.batch = int(state["steps"]), int(state["batch"])
        models.overhead_seconds = float(state["overhead_seconds"])
        models.computation = ComputationModel.from_state(state["computation"])
        models.communication = CommunicationModel.from_state(state["communication"])
        models.outputs = SizeModel.from_state(state["outputs"])
        models.temporary = SizeModel.from_state(state["temporary"])
        models.resident = SizeModel.from_state(state["resident"])
        return models


@dataclass(frozen=True)
class Mark:
    """Medians at one moment."""

    computation: dict[tuple[str, int], dict[str, float]]
    communication: dict[tuple[str, str], float]

    def change_to(self, models: CostModels) -> Change:
        """From this moment to the models as they are now."""
        moved = total = 0.0
        new_devices = 0
        for key, now in models.computation.snapshot().items():
            then = self.computation.get(key)
            if then is None:
                new_devices += 1
                continue
            moved += sum(abs(value - then.get(op, 0.0)) for op, value in now.items())
            total += sum(now.values())
        pairs = models.communication.summary()
        shifts = [abs(v / self.communication[p] - 1.0) for p, v in pairs.items() if self.communication.get(p, 0.0) > 0]
        return Change(
            computation=moved / total if total > 0 else (1.0 if new_devices else 0.0),
            communication=max(shifts, default=0.0),
            new_pairs=sum(1 for pair in pairs if pair not in self.communication),
            new_devices=new_devices,
        )
