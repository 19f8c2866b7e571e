"""Training graphs from forward graphs: gradients, weights and their updates, as columns of a planning problem.

A forward graph says what each op costs and which weights it reads; `training` adds what TensorFlow's gradients add: an op for
the gradient of every op (two where it has weights: of its inputs and of its weights), sums where an output is read more than
once, a variable with its slots and its update in one colocation group. It knows no devices and no family of graphs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BATCH = "batch"


@dataclass
class Forward:
    """A forward graph under construction; ops are numbered in the order in which they are added, producers first."""

    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    made: list[int] = field(default_factory=list)  # bytes of the op's output
    inputs: list[list[int]] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)  # number of the weights that it reads, -1 for none
    weight_names: list[str] = field(default_factory=list)
    weight_bytes: list[int] = field(default_factory=list)
    towers: list[int] = field(default_factory=list)  # the device that the user's code names, -1 for none

    def weight(self, name: str, size: int) -> int:
        """New weights of `size` bytes; their number."""
        self.weight_names.append(name)
        self.weight_bytes.append(size)
        return len(self.weight_bytes) - 1

    def op(self, name: str, kind: str, seconds: float, made: int, inputs: list[int], weight: int = -1, tower: int = -1) -> int:
        """A new op; its number."""
        self.names.append(name)
        self.kinds.append(kind)
        self.seconds.append(seconds)
        self.made.append(made)
        self.inputs.append(list(dict.fromkeys(inputs)))
        self.weights.append(weight)
        self.towers.append(tower)
        return len(self.names) - 1


@dataclass
class Columns:
    """Columns of a problem but for the devices: per op, and per edge."""

    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    temp: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    user: list[int] = field(default_factory=list)
    edges: list[tuple[int, int, int, int]] = field(default_factory=list)  # source, destination, output, bytes
    splits: list[tuple[int, tuple[int, ...], tuple[int, ...], bool]] = field(default_factory=list)  # op, cut, joined, adds

    def op(self, name: str, kind: str, seconds: float, resident: int = 0, temp: int = 0, group: int = -1, user: int = -1) -> int:
        """A new op; its number."""
        self.names.append(name)
        self.kinds.append(kind)
        self.seconds.append(seconds)
        self.resident.append(resident)
        self.temp.append(temp)
        self.group.append(group)
        self.user.append(user)
        return len(self.names) - 1

    def edge(self, src: int, output: int, dst: int, size: int) -> None:
        """Output `output` of `src`, read by `dst`; -1 for a control edge."""
        self.edges.append((src, dst, output, size))


def training(forward: Forward, slots: int = 2, copy_bytes_per_second: float = 4e11, launch_seconds: float = 5e-6) -> Columns:
    """The training step of `forward`. slots: of the optimizer, each as large as its weights."""
    columns = Columns()
    variables = [
        columns.op(f"{name}/kernel", "VariableV2", 0.0, (1 + slots) * size, 0, number)
        for number, (name, size) in enumerate(zip(forward.weight_names, forward.weight_bytes, strict=True))
    ]
    ops = [_forward_op(columns, forward, variables, i) for i in range(len(forward.names))]
    gradients: list[list[tuple[int, int]]] = [[] for _ in ops]  # of each op's output: (op, output)
    updates: list[list[int]] = [[] for _ in variables]
    read = {i for inputs in forward.inputs for i in inputs}
    loss = columns.op("loss", "Mean", launch_seconds)
    for i, op in enumerate(ops):
        if i not in read:
            columns.edge(op, 0, loss, forward.made[i])
            gradients[i].append((loss, 0))

    def summed(terms: list[tuple[int, int]], size: int, name: str, group: int, user: int) -> tuple[int, int]:
        if len(terms) == 1:
            return terms[0]
        seconds = launch_seconds + (len(terms) + 1) * size / copy_bytes_per_second
        total = columns.op(name, "AddN", seconds, 0, size, group, user)
        for term, output in terms:
            columns.edge(term, output, total, size)
        return total, 0

    for i in range(len(ops) - 1, -1, -1):
        name, size, tower = forward.names[i], forward.made[i], forward.towers[i]
        source, output = summed(gradients[i], size, f"gradients/{name}_sum", -1, tower)
        weight = forward.weights[i]
        inputs = forward.inputs[i]
        into = [forward.made[k] for k in inputs]
        if inputs:
            gradient = columns.op(f"gradients/{name}_grad", f"{forward.kinds[i]}Grad", forward.seconds[i], 0, sum(into), -1, tower)
            columns.edge(source, output, gradient, size)
            for k, producer in enumerate(inputs):
                gradients[producer].append((gradient, k))
            if weight >= 0:
                columns.edge(variables[weight], 0, gradient, forward.weight_bytes[weight])
                columns.splits.append((gradient, (size, 0), tuple(into), False))
            else:
                columns.edge(ops[i], 0, gradient, size)
        if weight >= 0:
            update = columns.op(
                f"gradients/{name}_kernel_grad",
                f"{forward.kinds[i]}Grad",
                forward.seconds[i],
                0,
                forward.weight_bytes[weight],
                -1,
                tower,
            )
            columns.edge(source, output, update, size)
            for producer in inputs:
                columns.edge(ops[producer], 0, update, forward.made[producer])
            updates[weight].append(update)
            columns.splits.append((update, (size, *into), (forward.weight_bytes[weight],), True))
    done = columns.op("train", "NoOp", 0.0)
    for weight, terms in enumerate(updates):
        size, name = forward.weight_bytes[weight], forward.weight_names[weight]
        if not terms:
            continue
        source, output = summed([(term, 0) for term in terms], size, f"gradients/{name}_sum", -1, -1)
        apply = columns.op(f"train/update_{name}", "ApplyAdam", launch_seconds + 5 * size / copy_bytes_per_second, group=weight)
        columns.edge(source, output, apply, size)
        columns.edge(variables[weight], 0, apply, size)
        columns.edge(apply, -1, done, 0)
    return columns


def _forward_op(columns: Columns, forward: Forward, variables: list[int], i: int) -> int:
    op = columns.op(forward.names[i], forward.kinds[i], forward.seconds[i], 0, forward.made[i], -1, forward.towers[i])
    for producer in forward.inputs[i]:
        columns.edge(len(variables) + producer, 0, op, forward.made[producer])
    weight = forward.weights[i]
    if weight >= 0:
        columns.edge(variables[weight], 0, op, forward.weight_bytes[weight])
        columns.splits.append((op, (*(forward.made[k] for k in forward.inputs[i]), 0), (forward.made[i],), False))
    return op
