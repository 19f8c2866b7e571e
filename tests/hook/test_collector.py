"""The program's finalizers run on its own threads, and the collector is as the program set it."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from stepd.hook import collector
from stepd.hook.collector import pause
from stepd.hook.engine.shield import unbroken


class Cycle:
    """Only the collector finds it."""

    def __init__(self, gone: list[str]) -> None:
        self.me, self.gone = self, gone

    def __del__(self) -> None:
        self.gone.append(threading.current_thread().name)


def settle() -> None:
    """Let a thread that an earlier test's session has left end what it does."""
    for _ in range(2000):
        pause.give_up()
        if not pause.off:
            return
        threading.Event().wait(0.01)


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    settle()
    functions, enabled = (gc.enable, gc.disable, gc.isenabled), gc.isenabled()
    yield
    if pause._depth:  # of another thread: what a test itself leaves behind has no thread in it
        settle()
    assert (gc.enable, gc.disable, gc.isenabled) == functions and gc.isenabled() == enabled and not pause.off


def elsewhere(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work, name="elsewhere")
    thread.start()
    thread.join()


def make_many() -> list[list[int]]:
    """More objects than the collector leaves alone."""
    return [[k] for k in range(5 * gc.get_threshold()[0])]


def test_what_a_thread_of_the_hook_makes_has_nobody_finalized_there() -> None:
    gone: list[str] = []

    def work() -> None:
        with pause:
            make_many()

    for _ in range(20):
        Cycle(gone)
        elsewhere(work)
        pause.catch_up()
    gc.collect()
    assert gone == ["MainThread"] * 20


def test_a_finalizer_may_take_a_lock_that_the_waiting_thread_holds() -> None:
    lock, gone = threading.RLock(), []

    class Guarded(Cycle):
        def __del__(self) -> None:
            with lock:
                super().__del__()

    with lock:
        for _ in range(20):
            Guarded(gone)
            assert len(unbroken(make_many)) > 0
    gc.collect()
    assert gone == ["MainThread"] * 20


def test_the_program_sees_and_sets_the_collector_as_ever() -> None:
    with pause:
        assert gc.isenabled()
        gc.disable()
        assert not gc.isenabled()
        with pause:
            assert not gc.isenabled()
        disable = gc.disable
    assert not gc.isenabled()
    gc.enable()
    with pause:
        gc.disable()
        gc.enable()
    assert gc.isenabled()
    disable()  # taken while the hook's threads worked
    assert not gc.isenabled()
    gc.enable()


def test_runs_of_the_program_collect_meanwhile() -> None:
    gone: list[str] = []
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        with pause:
            begun.set()
            ended.wait()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    try:
        Cycle(gone)
        kept = make_many()
        assert gone == [] and kept
        pause.catch_up()
        assert gone == ["MainThread"]
    finally:
        ended.set()
        thread.join()


def test_a_child_forked_meanwhile_collects() -> None:
    with pause:
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled is collector._is_enabled and gc.isenabled() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_collector_is_on_again_where_no_step_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pause:
        make_many()
        kept = make_many()
    assert pause.off and kept, "its time has come"
    monkeypatch.setattr(collector, "PATIENCE_SECONDS", -1.0)
    elsewhere(pause.__enter__)
    elsewhere(lambda: pause.__exit__(None, None, None))
    assert not pause.off and gc.isenabled()
