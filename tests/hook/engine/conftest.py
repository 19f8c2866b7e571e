"""Sessions under the engine, with an observer that writes down what it hears."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import install, session_engine  # noqa: E402
from stepd.hook.engine.failing import updates_first  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402
from stepd.hook.engine.kinds import step_kind  # noqa: E402
from stepd.hook.engine.settings import EngineSettings  # noqa: E402
from stepd.hook.local_devices import LocalCluster, device_name  # noqa: E402


class Listener:
    """An ObserverPort that keeps everything."""

    def __init__(self) -> None:
        self.engines: list[Any] = []
        self.records: list[Any] = []
        self.switches: list[Any] = []
        self.failed: list[tuple[str, str]] = []
        self.trace = False

    def session_opened(self, engine: Any) -> None:
        self.engines.append(engine)

    def graph_extended(self, engine: Any) -> None: ...

    def wants_trace(self, engine: Any, kind: Any) -> bool:
        return self.trace

    def run_finished(self, engine: Any, record: Any) -> None:
        self.records.append(record)

    def strategy_failed(self, engine: Any, strategy_id: str, error: str) -> None:
        self.failed.append((strategy_id, error))

    def switch_done(self, engine: Any, outcome: Any) -> None:
        self.switches.append(outcome)

    def session_closed(self, engine: Any) -> None:
        self.engines.remove(engine)


class Reply:
    """A `done` callback that can be waited for."""

    def __init__(self) -> None:
        self.outcome: Any = None
        self._came = threading.Event()

    def __call__(self, outcome: Any) -> None:
        self.outcome = outcome
        self._came.set()

    def came(self) -> bool:
        return self._came.is_set()

    def pause(self) -> None:
        """Let the engine's thread work."""
        self._came.wait(0.01)

    def wait(self) -> Any:
        assert self._came.wait(60), "no outcome"
        return self.outcome


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Listener]]:
    """Install the engine for one test: `listener = hooked(chaos=..., way=...)`."""
    # Chaos draws by the session's number: what a test sees must not hang on how many sessions ran before it.
    monkeypatch.setattr(session_engine, "_numbers", itertools.count(1))
    removals: list[Callable[[], None]] = []

    def start(**settings: Any) -> Listener:
        listener = Listener()
        removals.append(install(listener, EngineSettings(**settings)))
        return listener

    with tf.Graph().as_default():
        yield start
    for remove in removals:
        remove()


@pytest.fixture
def reply() -> Reply:
    return Reply()


@pytest.fixture
def replies() -> type[Reply]:
    """For tests with more than one request."""
    return Reply


@pytest.fixture(scope="session")
def cluster() -> Any:
    """Two workers and the training process, as servers in this process."""
    config = tf.ConfigProto(inter_op_parallelism_threads=2, device_count={"CPU": 1})
    servers = [tf.train.Server({"stepd": ["localhost:0"]}, job_name="stepd", task_index=0, config=config) for _ in range(3)]
    targets = [server.target if isinstance(server.target, str) else server.target.decode() for server in servers]
    addresses = tuple(target.removeprefix("grpc://") for target in targets)
    return LocalCluster(targets[2], (device_name(0), device_name(1)), device_name(2), addresses), servers


@pytest.fixture
def viewed() -> Callable[[], Any]:
    """A view of the default graph, that asking leaves as it is: an attribute asked for where there is none would be there then."""

    def stays(view: GraphView) -> dict[str, bytes]:
        return {name: node.proto.SerializeToString(deterministic=True) for name, node in view.nodes.items()}

    @contextmanager
    def parsed() -> Iterator[GraphView]:
        view = GraphView.parse(tf.get_default_graph().as_graph_def().SerializeToString(), lambda name: name)
        before = stays(view)
        yield view
        assert stays(view) == before

    return parsed


@pytest.fixture
def pairs(viewed: Callable[[], Any]) -> Callable[..., set[tuple[str, str]]]:
    """(op type of the update, of what may fail and waits for it) of a step of the default graph."""

    def found(*targets: Any, feeds: tuple[Any, ...] = (), shapes: Any = lambda *_: None) -> set[tuple[str, str]]:
        names = [each.name if isinstance(each, tf.Operation) else each.op.name for each in targets]
        with viewed() as view:
            pairs = updates_first(view, step_kind([feed.name for feed in feeds], [], names), shapes=shapes)
            return {(view.nodes[update].op, view.nodes[end].op) for update, end in pairs}

    return found


@pytest.fixture
def following() -> Callable[[], Any]:
    """The next element of new data."""
    return lambda: tf.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next()


@pytest.fixture
def trained() -> Callable[..., tuple[Any, Any]]:
    """A variable and a step that trains it on what is given."""

    def made(x: Any, name: str = "w") -> tuple[Any, Any]:
        w = tf.get_variable(name, [3], initializer=tf.ones_initializer(), use_resource=True)
        return w, tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(x * w)))

    return made


@pytest.fixture
def two_devices() -> Any:
    return tf.ConfigProto(device_count={"CPU": 2})
