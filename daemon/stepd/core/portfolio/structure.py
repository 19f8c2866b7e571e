"""What the structure of one graph suggests, each part of it found when it is first asked for: a short budget may never ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

from stepd.core.portfolio.candidates import expert_placements
from stepd.core.portfolio.finer_labels import alike, by_role
from stepd.core.portfolio.labels import Labelling, labellings, numbered_parts, towers_and_weights
from stepd.core.prepared import prepare
from stepd.core.problem import Index, Problem


@dataclass(eq=False)
class Structure:
    """That of `problem`."""

    problem: Problem

    @property
    def is_known(self) -> bool:
        """Whether it was asked for before, and so takes no more time."""
        return "labels" in vars(self)

    @cached_property
    def labels(self) -> list[Labelling]:
        """Layers, towers, time steps and so on."""
        return labellings(self.problem, self.numbered)

    @cached_property
    def numbered(self) -> list[Labelling]:
        """Those of these that names number, found in less time."""
        return numbered_parts(self.problem)

    @cached_property
    def roles(self) -> list[Labelling]:
        """The same, cut by what ops' outputs are for."""
        return by_role(self.problem, self.labels)

    @cached_property
    def finer(self) -> list[Labelling]:
        """Parts that are moved as they are."""
        return [*self.roles, *towers_and_weights(self.problem), *alike(self.problem, self.labels)]

    def first_ideas(self) -> Iterator[list[tuple[str, Index]]]:
        """`ideas` from names that are numbered alone."""
        yield from self._ideas(self.numbered)

    def ideas(self) -> Iterator[list[tuple[str, Index]]]:
        """What an expert would try, as placements of groups, in turn over the labellings, so that each gets its best ideas tried in
        time."""
        yield from self._ideas(self.labels)

    def _ideas(self, labels: list[Labelling]) -> Iterator[list[tuple[str, Index]]]:
        prepared = prepare(self.problem)
        for turn in zip_longest(*(expert_placements(prepared, labelling) for labelling in labels)):
            yield [item for item in turn if item is not None]
