"""The zoo's problems: which model, at which size, trained how, on which machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from zoo import convolutional, recurrent, testbeds, transformers
from zoo.roofline import costed
from zoo.testbeds import Testbed
from zoo.training import Loss, step_graph

from stepd.core.graph import problem_of
from stepd.core.problem import Problem


@dataclass(frozen=True)
class Model:
    """A model as a paper trained it: the batch size of one step, and the optimizer (None: inference)."""

    loss: Loss
    batch: int
    optimizer: str | None
    resource_variables: bool = True


@dataclass(frozen=True)
class Entry:
    """One problem of the zoo; `towers` > 1: data parallel by replication in the graph."""

    model: str
    testbed: Callable[[], Testbed]
    towers: int = 1


# FastT, Table 1 (strong scaling: batch of the whole step). Its TensorFlow 1.14 used reference variables.
_FASTT = {
    "lenet": Model(convolutional.lenet, 256, "sgd", False),
    "alexnet": Model(convolutional.alexnet, 256, "momentum", False),
    "vgg19": Model(convolutional.vgg19, 64, "momentum", False),
    "inception_v3": Model(convolutional.inception_v3, 64, "momentum", False),
    "resnet200": Model(convolutional.resnet200, 32, "momentum", False),
    "rnnlm": Model(partial(recurrent.rnnlm, units=1500, length=35), 64, "sgd", False),
    "gnmt": Model(recurrent.gnmt, 128, "adam", False),
    "transformer": Model(transformers.transformer, 64, "adam"),  # 64 sentences of 64: 4096 tokens
    "bert_large": Model(transformers.bert, 16, "adam"),
}
# Celeritas, section 6.2.1, at the op counts of its Table 2: lengths and separate heads are chosen to reach them.
_CELERITAS = {
    "inception_v3-b512": Model(convolutional.inception_v3, 512, "momentum"),
    "nmt-25k": Model(partial(recurrent.nmt, layers=4, units=2048, length=29), 512, "adam"),
    "transformer-36k": Model(
        partial(transformers.transformer, layers=12, width=2048, heads=16, length=32, apart=True), 256, "adam"
    ),
    "holography": Model(convolutional.holography, 32, "adam"),
}
# Pesto, section 5.2.
_PESTO = {
    "rnnlm-2-2048": Model(partial(recurrent.rnnlm, layers=2, units=2048), 128, "sgd"),
    "rnnlm-4-2048": Model(partial(recurrent.rnnlm, layers=4, units=2048), 128, "sgd"),
    "rnnlm-16-1024": Model(partial(recurrent.rnnlm, layers=16, units=1024), 128, "sgd"),
    "nmt-2-1024": Model(partial(recurrent.nmt, layers=2, units=1024), 128, "adam"),
    "nmt-4-1024": Model(partial(recurrent.nmt, layers=4, units=1024), 128, "adam"),
    "transformer-10-1024": Model(partial(transformers.transformer, layers=10, width=1024), 32, "adam"),
    "transformer-6-2048": Model(partial(transformers.transformer, layers=6, width=2048, heads=16), 32, "adam"),
    "nasnet-4-212": Model(partial(convolutional.nasnet, cells=4, filters=212), 32, "momentum"),
    "nasnet-6-148": Model(partial(convolutional.nasnet, cells=6, filters=148), 32, "momentum"),
}
# Moirai, Table IV: inference, one input; the Swin widths are the published model's, not the paper's 1.8 billion.
_MOIRAI = {
    "gpt3-330m": Model(transformers.gpt, 1, None),
    "gpt3-1.3b": Model(partial(transformers.gpt, layers=32, width=2048, heads=32), 1, None),
    "swin": Model(transformers.swin, 1, None),
}
MODELS: dict[str, Model] = _FASTT | _CELERITAS | _PESTO | _MOIRAI
ENTRIES: tuple[Entry, ...] = (
    *(Entry(model, partial(testbeds.fastt, gpus)) for model in _FASTT for gpus in (2, 4)),
    *(Entry(model, partial(testbeds.fastt, gpus), gpus) for model in _FASTT for gpus in (2, 4)),
    *(Entry(model, partial(testbeds.fastt, 8)) for model in ("inception_v3", "transformer", "bert_large")),
    *(Entry(model, testbeds.celeritas) for model in _CELERITAS),
    Entry("transformer-36k", partial(testbeds.fastt, 8)),
    *(Entry(model, testbeds.pesto) for model in _PESTO),
    *(Entry(model, bed) for model in _MOIRAI for bed in (testbeds.moirai_inter, testbeds.moirai_intra)),
)


def name_of(entry: Entry) -> str:
    """The problem's name, and its file's: "vgg19-b64-dp4-nvlink4"."""
    model = MODELS[entry.model]
    size = "" if "-b" in entry.model else f"-b{model.batch}"
    towers = f"-dp{entry.towers}" if entry.towers > 1 else ""
    return f"{entry.model}{size}{towers}-{entry.testbed().name}"


def problem(entry: Entry) -> Problem:
    """Build the entry's graph and cost it."""
    model = MODELS[entry.model]
    graph, target = step_graph(model.loss, model.batch, model.optimizer, entry.towers, model.resource_variables)
    testbed = entry.testbed()
    columns, costs = costed(graph, target, testbed)
    return problem_of(name_of(entry), columns, costs, testbed.devices, testbed.links)
