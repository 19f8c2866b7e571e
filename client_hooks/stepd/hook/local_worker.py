"""A worker process of `stepd-run --local-devices`: one TensorFlow server on one core. Started by the launcher, never by hand.

It ends with the launcher, whatever ends that: the kernel kills it (PR_SET_PDEATHSIG), and a pipe that nobody else holds ends it
where the kernel does not. It answers requests on a Unix socket in the launcher's folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

from stepd.hook import local_handling
from stepd.hook.local_devices import RELEVANT_ENVIRONMENT, SERVER_JOB, relevant_environment
from stepd.hook.local_handling import Cost
from stepd.hook.order.native import library
from stepd.hook.order.native.stamp import NativeError

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> NoReturn:
    """`local_worker SOCKET CORE PARENT PIPE`: serve until the launcher is gone."""
    path, core, parent, pipe = arguments[0], int(arguments[1]), int(arguments[2]), int(arguments[3])
    die_with_parent(parent)
    threading.Thread(target=_end_with_pipe, args=(pipe,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the job's; the launcher ends its workers
    os.sched_setaffinity(0, {core})  # before TensorFlow makes its threads
    Worker(path).serve()


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; end now when it has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _end_with_pipe(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os._exit(0)


class Worker:
    """Imports TensorFlow at once, so that the job need not wait for it; makes its server at the first request."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._environ = relevant_environment()
        self._server: Any = None
        self._costs: dict[str, Cost | None] = {}  # of transfers, by peer: other processes of the job ask again
        self._measuring = threading.Lock()

    def serve(self) -> NoReturn:
        """Answer requests, one after the other, for ever."""
        import tensorflow  # noqa: F401 - takes seconds, and is what the first request would wait for

        temporary = f"{self._path}.new"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(temporary)
        listener.listen(16)
        os.replace(temporary, self._path)  # noqa: PTH105 - whoever sees the socket can connect to it
        while True:
            connection, _ = listener.accept()
            with connection:
                try:
                    request = json.loads(_received(connection))
                    if "peer" in request:  # takes its time, and nobody waits for it
                        threading.Thread(target=self._answer_later, args=(connection.dup(), request), daemon=True).start()
                    elif "forget" in request:
                        library.drop(int(request["forget"]))
                    else:
                        connection.sendall(json.dumps(self._answer(request)).encode())
                except (OSError, ValueError, KeyError) as error:
                    sys.stderr.write(f"request refused: {error}\n")

    def _answer_later(self, connection: socket.socket, request: dict[str, Any]) -> None:
        with connection, contextlib.suppress(OSError), self._measuring:
            connection.sendall(json.dumps({"handling": self._handling(request["peer"])}).encode())

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "keep_order" in request:
            return _keep_order(int(request["keep_order"]))
        if "table" in request:
            return _know(int(request["table"]), request["priorities"])
        if "environ" not in request:
            return _go_to(request["folder"])
        environ: dict[str, str] = request["environ"]
        if environ != self._environ and self._server is None:
            self._start_again(environ)
        if self._server is None:
            if problem := _go_to(request["folder"]).get("problem"):
                sys.stderr.write(f"stays in its own folder: {problem}\n")
            self._server = _server()
        return {"address": self._address()}

    def _address(self) -> str:
        target = self._server.target
        return (target.decode() if isinstance(target, bytes) else str(target)).removeprefix("grpc://")

    def _handling(self, peer: str) -> Cost | None:
        """What transfers to and from the worker at `peer` cost this one; None where that could not be measured."""
        if peer not in self._costs:
            self._costs[peer] = None
            try:
                self._costs[peer] = local_handling.measure(self._address(), peer)
            except Exception as error:  # whatever TensorFlow raises: the job does without the figure
                sys.stderr.write(f"what transfers cost was not measured: {error}\n")
        return self._costs[peer]

    def _start_again(self, environ: dict[str, str]) -> NoReturn:
        """With the environment that the training process set before it imported TensorFlow. The process id stays."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(RELEVANT_ENVIRONMENT)}
        os.unlink(self._path)  # noqa: PTH108
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], kept | environ)


def _go_to(folder: str) -> dict[str, Any]:
    """Relative paths begin at `folder` from now on."""
    try:
        os.chdir(folder)
    except OSError as error:
        return {"problem": str(error)}
    return {"done": True}


def _keep_order(lanes: int) -> dict[str, Any]:
    """Have this process's server run what has priorities in their order; says why it does not."""
    why = library.load_if_built(os.environ)
    if not why:
        try:
            library.take_over(lanes)
        except NativeError as error:
            why = str(error)
    return {"problem": why} if why else {"done": True}


def _know(table: int, priorities: dict[str, int]) -> dict[str, Any]:
    """Add to a table of priorities."""
    if not library.loaded():
        return {"problem": "it has no native executor"}
    library.add(table, priorities)
    return {"done": True}


def _received(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def _server() -> Any:
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.training import server_lib

    # A second thread must be free to serve receives while the first computes (docs/design.md, "Local devices").
    config = config_pb2.ConfigProto(inter_op_parallelism_threads=2, intra_op_parallelism_threads=1)
    return server_lib.Server({SERVER_JOB: ["localhost:0"]}, job_name=SERVER_JOB, task_index=0, config=config)


if __name__ == "__main__":
    main(sys.argv[1:])
