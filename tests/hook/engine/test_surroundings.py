"""What of the process has changed since a session was made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepd.hook.engine import surroundings
from stepd.hook.engine.graphview import GraphView

tf = pytest.importorskip("tensorflow.compat.v1")

from tensorflow.python.framework import config  # noqa: E402


def test_deterministic_ops_are_noticed() -> None:
    noted = surroundings.now()
    assert surroundings.against_kernels(noted) == ""
    config.enable_op_determinism()
    try:
        assert "deterministic ops" in surroundings.against_kernels(noted)
    finally:
        config.disable_op_determinism()
    assert surroundings.against_kernels(noted) == ""


def view(name: str, mapped: str) -> GraphView:
    with tf.Graph().as_default() as graph:
        data = tf.data.TextLineDataset(name).flat_map(lambda _: tf.data.TextLineDataset(mapped))
        tf.data.make_initializable_iterator(data)
        return GraphView.parse(graph.as_graph_def().SerializeToString(), lambda op: op)


def test_a_pipe_and_another_folder_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    noted = surroundings.now()
    os.mkfifo("pipe")
    Path("file").write_text("one\n", encoding="ascii")

    assert surroundings.against_opening(noted, view("file", "file")) == ""
    assert surroundings.against_opening(noted, view("", "no such file")) == ""
    for names in (("pipe", "file"), ("file", "pipe")):
        assert surroundings.against_opening(noted, view(*names)).startswith("pipe is a pipe")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert str(tmp_path) in surroundings.against_opening(noted, view("file", "file"))


def test_a_link_that_was_pointed_elsewhere_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("A", "B"):
        Path(folder).mkdir()
        Path(folder, "lines").write_text(folder, encoding="ascii")
    Path("current").symlink_to("A")
    Path("latest").symlink_to(tmp_path / "current")
    noted = surroundings.now()._replace(unix_nanos=os.lstat("latest").st_mtime_ns)
    seen = [view(name, "A/lines") for name in ("current/lines", "latest/lines", str(tmp_path / "latest/*s"))]
    assert [surroundings.against_opening(noted, each) for each in seen] == [""] * 3
    Path("current").unlink()
    Path("current").symlink_to("B")
    os.utime("current", ns=(noted.unix_nanos + 1, noted.unix_nanos + 1), follow_symlinks=False)
    for each in seen:
        assert surroundings.against_opening(noted, each).startswith(f"{tmp_path / 'current'}, a link on the way to ")
    assert surroundings.against_opening(noted, view("A/lines", "no/current")) == ""
