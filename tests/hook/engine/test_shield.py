"""Work that a signal handler's exception cannot break off."""

from __future__ import annotations

import signal
import threading

import pytest

from stepd.hook.engine.shield import AtWork, _wait, unbroken


class HandlerError(Exception):
    """What the handler raises."""


@pytest.fixture
def handler() -> object:
    def raise_it(*_: object) -> None:
        raise HandlerError

    before = signal.signal(signal.SIGUSR1, raise_it)
    yield
    signal.signal(signal.SIGUSR1, before)


def test_work_is_whole_and_then_the_interrupt_comes(handler: object) -> None:
    main = threading.main_thread().ident
    assert main is not None
    done = []

    def work() -> str:
        for k in range(3):
            signal.pthread_kill(main, signal.SIGUSR1)
            done.append(k)
        return "result"

    with pytest.raises(HandlerError):
        unbroken(work)
    assert done == [0, 1, 2]


def test_result_and_error_are_the_works_own() -> None:
    assert unbroken(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        unbroken(lambda: 1 // 0)


def test_other_threads_do_it_themselves() -> None:
    seen = []
    thread = threading.Thread(target=lambda: seen.append(unbroken(threading.get_ident)))
    thread.start()
    ident = thread.ident
    thread.join()
    assert seen == [ident]


def test_the_interpreter_goes_when_no_thread_is_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that comes back from TensorFlow later would end the process."""
    at_work = AtWork()
    monkeypatch.setattr("stepd.hook.engine.shield.at_work", at_work)
    begun, goes_on = threading.Event(), threading.Event()
    order = []

    def work() -> None:
        begun.set()
        goes_on.wait()
        order.append("worked")

    def leave() -> None:
        at_work.stop()
        order.append("left")

    threads = [threading.Thread(target=unbroken, args=[work]), threading.Thread(target=leave)]
    threads[0].start()
    begun.wait()
    threads[1].start()
    while not at_work.leaving:
        threads[1].join(0.001)
    assert order == []
    goes_on.set()
    for thread in threads:
        thread.join()
    assert order == ["worked", "left"]


class Raising:
    """A lock of work that is over: whenever the main thread gets somewhere a handler raises, `times` in all."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.acquired = False

    def handle(self) -> None:
        if self.times:
            self.times -= 1
            raise HandlerError

    def acquire(self) -> None:
        assert not self.acquired, "nobody will release it again"
        self.acquired = True
        self.handle()

    def is_over(self) -> bool:
        self.handle()
        return self.acquired


@pytest.mark.parametrize("times", [0, 1, 2, 3, 7])
def test_whatever_handlers_raise_while_the_work_ends_nobody_waits_for_it_again(times: int) -> None:
    lock, broken = Raising(times), list[BaseException]()
    _wait(lock, lock.is_over, broken)
    assert lock.acquired and [type(e) for e in broken] == [HandlerError] * times
