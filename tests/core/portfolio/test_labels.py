"""Structure is seen with names and without: layers by the weights they use, towers by repetition."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from stepd.core.portfolio.labels import labellings, numbered_parts, towers_and_weights
from stepd.core.portfolio.name_labels import forward_path

BIG = 10**12


def test_gradients_and_updates_belong_to_their_forward_ops():
    assert forward_path("gradients/tower_1/conv/Conv2D_grad/Conv2DBackpropFilter")[:3] == ("tower_1", "conv", "Conv2D")
    assert forward_path("train/gradients_1/dense/MatMul_grad/MatMul")[:2] == ("dense", "MatMul")
    assert forward_path("Adam/update_dense/kernel/ApplyAdam")[1:] == ("dense", "kernel", "ApplyAdam")
    assert forward_path("gradients") == ("gradients",)


def towers(lab, count=3, length=6):
    """`count` equal chains over a shared input and a sum; op types tell the places in a chain apart."""
    seconds, edges, names, types = [[1e-6]], [], ["input"], ["Input"]
    for tower in range(count):
        for step in range(length):
            edges.append((0 if step == 0 else len(seconds) - 1, len(seconds), 0, 10))
            names.append(f"tower_{tower}/layer_{step}/op")
            types.append(f"Type{step}")
            seconds.append([1e-3 * (1 + step)])
    edges += [(1 + tower * length + length - 1, len(seconds), 0, 10) for tower in range(count)]
    seconds.append([1e-6])
    problem = lab.make_problem(seconds, edges, [], [BIG])
    return replace(problem, op_names=(*names, "sum"), op_types=(*types, "Sum"))


def parts(labelling, problem, length=6):
    """The label of each tower's ops, as a set per tower."""
    return [set(labelling.label[1 + k : 1 + k + length].tolist()) for k in range(0, problem.n_ops - 2, length)]


def test_towers_are_found_by_name(lab):
    problem = towers(lab)
    found = {item.kind: item for item in labellings(problem)}
    assert parts(found["scope-1"], problem) == [{0}, {1}, {2}]


def test_cells_of_numbered_stacks_are_one_family(lab):
    """NASNet's cells are named stack0_cell_0 to stack2_cell_5: stack by stack they are parts of a third of the graph each."""
    problem = towers(lab, count=4)
    named = [re.sub(r"tower_(\d)/", lambda m: f"stack{int(m[1]) // 2}_cell_{int(m[1]) % 2}/", name) for name in problem.op_names]
    found = {item.kind: item for item in numbered_parts(replace(problem, op_names=tuple(named)))}
    assert parts(found["index 'stack#_cell'"], problem) == [{0}, {1}, {2}, {3}]


def test_the_family_of_most_ops_comes_first(lab):
    problem = towers(lab)
    names = [name.replace("layer_4/", "layer/") for name in problem.op_names]
    assert [item.kind for item in numbered_parts(replace(problem, op_names=tuple(names)))] == ["index 'tower'", "index 'layer'"]


def test_towers_are_found_without_names(lab):
    problem = towers(lab)
    nameless = replace(problem, op_names=tuple(f"n{i}" for i in range(problem.n_ops)))
    found = {item.kind: item for item in labellings(nameless)}
    assert sorted(map(sorted, parts(found["towers"], problem))) == [[0], [1], [2]]


def test_time_steps_of_a_cell_are_one_part_by_its_weights(lab):
    """Two cells unrolled over three steps; op k of step t reads the cell's weights and the step before."""
    seconds, edges, resident, types = [], [], [], []

    def op(kind, *inputs, weight=0):
        for source in inputs:
            edges.append((source, len(seconds), 0, 100))
        seconds.append([1e-3])
        resident.append(weight)
        types.append(kind)
        return len(seconds) - 1

    weights = [op("Var", weight=1000), op("Var", weight=1000)]
    state, cells = [None, None], [[], []]
    for _ in range(3):
        below = None
        for cell in range(2):
            inputs = [source for source in (weights[cell], below, state[cell]) if source is not None]
            state[cell] = below = op("MatMul", *inputs)
            cells[cell].append(below)
    problem = lab.make_problem(seconds, edges, [], [BIG], resident=resident)
    found = {item.kind: item for item in labellings(replace(problem, op_types=tuple(types)))}
    label = found["weights"].label
    assert len(set(label[cells[0]])) == len(set(label[cells[1]])) == 1
    assert label[cells[0][0]] == 0 and label[cells[1][0]] == 1
    assert np.array_equal(label[weights], [0, 1])


def test_each_weight_that_towers_share_is_a_part_with_its_update(lab):
    problem = lab.replicated(3, [1000, 2000, 3000, 4000], 3)
    (found,) = towers_and_weights(problem)
    parts = {name: int(part) for name, part in zip(problem.op_names, found.label, strict=True)}
    assert found.count == 3 + 4 and len({parts[f"w{k}"] for k in range(4)}) == 4
    for k in range(4):
        assert parts[f"w{k}"] == parts[f"w{k}/read"] == parts[f"sum{k}"] == parts[f"mean{k}"] == parts[f"update{k}"]
    for k in range(3):
        assert {part for name, part in parts.items() if name.startswith(f"tower_{k}/")} == {parts[f"tower_{k}/layer0"]}
    assert towers_and_weights(lab.replicated(1, [1000], 2)) == []
