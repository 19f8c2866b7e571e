"""`stepd-run --local-devices N`, seen from the training process: finds the workers and joins them in a cluster of one session.

The workers (local_worker.py) are N processes, each pinned to a core. They are tasks 0..N-1 of job "localhost"; the training
process is task N, through a server that is made at the first session, for ops that need the process itself (py_func and such).
Each session carries its own cluster definition and isolates its state, so that sessions do not see each other's variables, as
sessions of one process do not. It decides no placement: the engine does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepd.hook.local_folder import Followed
from stepd.hook.local_handling import Cost
from stepd.hook.local_order import WorkerTables, request
from stepd.hook.log import logger, tell_operator

CLUSTER_FILE = "cluster.json"
READY_SECONDS = 180.0
NOT_KNOWN: Cost = (0.0, 0.0)
JOB = "localhost"  # the job name of plain sessions: device names in user code and in traces mean what they say
SERVER_JOB = "stepd"  # what servers call themselves; must differ from JOB, or the master takes task 0 for itself

# Environment that changes what TensorFlow computes or how fast: workers take it over from the training process.
RELEVANT_ENVIRONMENT = ("TF_", "ONEDNN_", "DNNL_", "XLA_")

# Ops that act on the training process (Python functions, its output streams, its working folder): they run there.
TRAINER_OPS = frozenset(
    {
        *("PyFunc", "PyFuncStateless", "EagerPyFunc", "GeneratorDataset"),
        *("Print", "PrintV2"),
        *("ReadFile", "WriteFile", "MatchingFiles", "ImmutableConst"),
        *("Save", "SaveV2", "SaveSlices", "Restore", "RestoreV2", "RestoreSlice", "MergeV2Checkpoints"),
        *("WholeFileReader", "WholeFileReaderV2", "TextLineReader", "TextLineReaderV2", "LMDBReader"),
        *("FixedLengthRecordReader", "FixedLengthRecordReaderV2", "TFRecordReader", "TFRecordReaderV2"),
        *("InitializeTableFromTextFile", "InitializeTableFromTextFileV2"),
        *(
            "SummaryWriter",
            "CreateSummaryFileWriter",
            "CreateSummaryDbWriter",
            "FlushSummaryWriter",
            "CloseSummaryWriter",
        ),
        *(
            "WriteSummary",
            "WriteRawProtoSummary",
            "WriteScalarSummary",
            "WriteHistogramSummary",
            "WriteImageSummary",
        ),
        *("WriteAudioSummary", "WriteGraphSummary", "ImportEvent"),
    }
)

# What a step over several processes adds to an error: who says so, and what gRPC thinks of it (to the end of the text).
_GRPC_DETAILS = re.compile(r"\nAdditional GRPC error information from remote target .*\Z", re.DOTALL)
_FROM_TASK = re.compile(rf"^From /job:{JOB}/replica:\d+/task:\d+:\n", re.MULTILINE)
# One error that reached the master from several tasks, told once for each between two lines.
_SEVERAL = re.compile(r"\A\n=+\n(.*)\n=+\n\Z", re.DOTALL)
# What a master says in words of its own.
_OTHER_WORDS = {
    "Operation timed out.": "Timed out waiting for notification",
    "Must run PartialRunSetup before performing partial runs": "Must run 'setup' before performing partial runs!",
}
_EACH = re.compile(rf"^([A-Z_]+): (?=From /job:{JOB}/)", re.MULTILINE)


def device_name(task: int) -> str:
    """The CPU of a task of the cluster, in full."""
    return f"/job:{JOB}/replica:0/task:{task}/device:CPU:0"


class Handling:
    """What a transfer between two workers costs each of their cores, as the first of them measures it while the program goes on."""

    def __init__(self, path: str, peer: str) -> None:
        """Asks the worker at the socket `path`. Raises OSError when it is gone."""
        self._connection: socket.socket | None = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(path)
        self._connection.sendall(json.dumps({"peer": peer}).encode())
        self._connection.shutdown(socket.SHUT_WR)
        self._connection.setblocking(False)
        self._answer = b""
        self._cost = NOT_KNOWN
        self._lock = threading.Lock()

    def known(self) -> Cost:
        """(seconds a transfer, seconds a byte); zeros until it is known, and where it could not be measured. Never waits."""
        with self._lock, contextlib.suppress(BlockingIOError, ValueError):
            while self._connection is not None:
                try:
                    part = self._connection.recv(4096)
                except ConnectionError:
                    part = b""
                self._answer += part
                if not part:
                    self._connection.close()
                    self._connection = None
                    each, per_byte = json.loads(self._answer or b"{}").get("handling") or NOT_KNOWN
                    self._cost = float(each), float(per_byte)
        return self._cost


@dataclass(frozen=True)
class LocalCluster:
    """`target`: of the server in this process. `workers`: their devices, worker 0 (the default) first. `trainer`: the device of
    the training process itself. `addresses`: host:port of all tasks, the trainer's last. `handling`: what transfers cost them.
    `tables`: by which they keep an order. `folder`: where they are."""

    target: str
    workers: tuple[str, ...]
    trainer: str
    addresses: tuple[str, ...]
    handling: Handling | None = None
    tables: WorkerTables | None = None
    folder: Followed | None = None

    def session_config(self, config: Any) -> Any:
        """A copy of the program's ConfigProto that makes a session of this cluster, with state of its own."""
        copy = type(config)()
        copy.CopyFrom(config)
        copy.isolate_session_state = True
        for local in ("cluster_def", "session_inter_op_thread_pool", "use_per_session_threads", "device_filters"):
            copy.ClearField(local)  # a cluster refuses pools of a session's own, and takes filters at their word
        if copy.graph_options.place_pruned_graph:  # as in every InteractiveSession: a direct session leaves Grappler out then
            copy.graph_options.rewrite_options.disable_meta_optimizer = True
        copy.graph_options.enable_bfloat16_sendrecv = False  # means nothing in one process, and rounds what tasks send
        job = copy.cluster_def.job.add()
        job.name = JOB
        for task, address in enumerate(self.addresses):
            job.tasks[task] = address
        return copy

    def follow(self) -> None:
        """Have relative paths in ops that run on workers begin where they would in this process."""
        if self.folder is not None:
            self.folder.follow()

    @staticmethod
    def plain_error_text(text: str) -> str:
        """An error message as a plain session words it: once, without the task that it comes from and without details of gRPC."""
        if several := _SEVERAL.match(text):
            _, *parts = _EACH.split(several[1])
            # Whom another task's error stopped only says so, and whom it reached repeats it.
            told = sorted(zip(parts[::2], parts[1::2], strict=True), key=_is_from_elsewhere)
            text = (told[0][1] if told else several[1]).removesuffix("\n")
        text = _GRPC_DETAILS.sub("", _FROM_TASK.sub("", text))
        return _OTHER_WORDS.get(text, text)


def _is_from_elsewhere(told: tuple[str, str]) -> tuple[bool, bool]:
    code, text = told
    return code == "CANCELLED", bool(_GRPC_DETAILS.search(text))


class _State:
    """The cluster of this process: one of the two places of the hook that own module state."""

    lock = threading.Lock()
    pid = 0
    cluster: LocalCluster | None = None
    server: Any = None  # kept alive as long as the process; a forked child must leave the parent's alone
    failed = False


os.register_at_fork(after_in_child=lambda: setattr(_State, "lock", threading.Lock()))


def local_cluster() -> LocalCluster | None:
    """The cluster of `stepd-run --local-devices`, joined at the first call; None without it.

    Waits for the workers to be up (they start with the job). A cluster that cannot be joined is told to the operator once; the
    program then runs on its own process, as it would without stepd.
    """
    folder = os.environ.get("STEPD_LOCAL_DEVICES", "")
    if not folder:
        return None
    with _State.lock:
        if _State.pid != os.getpid():
            _State.pid, _State.cluster, _State.failed = os.getpid(), None, False
        if _State.cluster is None and not _State.failed:
            try:
                _State.cluster = _join(folder)
            except (OSError, RuntimeError, ValueError) as error:
                _State.failed = True
                tell_operator(f"the local devices cannot be used, the program runs on its own process alone: {error}")
        return _State.cluster


def _join(folder: str) -> LocalCluster:
    names = json.loads(Path(folder, CLUSTER_FILE).read_text(encoding="utf-8"))["workers"]
    paths = [str(Path(folder, name)) for name in names]
    wanted: dict[str, Any] = {"environ": relevant_environment(), "folder": str(Path.cwd())}
    deadline = time.monotonic() + READY_SECONDS
    addresses = [ask(path, wanted, deadline) for path in paths]
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.training import server_lib

    # Threads for blocking py_funcs and receives; computation of the training process has nothing to do on the workers' cores.
    config = config_pb2.ConfigProto(inter_op_parallelism_threads=2, intra_op_parallelism_threads=1)
    _State.server = server_lib.Server({SERVER_JOB: ["localhost:0"]}, job_name=SERVER_JOB, task_index=0, config=config)
    target = _State.server.target.decode() if isinstance(_State.server.target, bytes) else str(_State.server.target)
    logger.info("local devices: workers at %s, this process at %s", addresses, target)
    return LocalCluster(
        target=target,
        workers=tuple(device_name(task) for task in range(len(addresses))),
        trainer=device_name(len(addresses)),
        addresses=(*addresses, target.removeprefix("grpc://")),
        handling=_handling(paths[0], addresses[1:]),
        tables=WorkerTables(paths),
        folder=Followed(paths, wanted["folder"]),
    )


def _handling(path: str, peers: list[str]) -> Handling | None:
    try:
        return Handling(path, peers[0]) if peers else None
    except OSError as error:
        logger.info("what transfers cost is not measured: %s", error)
        return None


def relevant_environment() -> dict[str, str]:
    """The part of this process's environment that its workers must share."""
    return {name: value for name, value in os.environ.items() if name.startswith(RELEVANT_ENVIRONMENT)}


def ask(path: str, wanted: dict[str, Any], deadline: float) -> str:
    """The address of a worker's server. It may be starting up, or start again with the environment that is `wanted`.

    Raises RuntimeError when it is not there by `deadline` (seconds of time.monotonic).
    """
    problem = "it does not answer"
    while time.monotonic() < deadline:
        try:
            answer = request(path, wanted, max(0.1, deadline - time.monotonic()))
            if "address" in answer:
                return str(answer["address"])
            problem = str(answer.get("problem", problem))
        except (OSError, ValueError) as error:
            problem = str(error)
        time.sleep(0.05)
    raise RuntimeError(f"worker at {path}: {problem}")
