"""The hook's own node names, and their removal from whatever the program gets to see. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

# Helper ops live under "stepd_<number>/", the copy of an op is called "<its name>-stepd_<number>", what a split op becomes
# "<its name>-stepd_<number>-<words>".
_OWN = re.compile(r"stepd_\d+/.*|.*-stepd_\d+(?:-[a-z][a-z0-9]*)*", re.DOTALL)
_MARK = re.compile(r"stepd_(\d+)/|-stepd_(\d+)(?:-[a-z][a-z0-9]*)*")
# What copies run besides, which stands for no op: what is waited for in the place of others, and what hands a value on.
_WAITED_FOR = re.compile(r"\^?.*-stepd_\d+-(?:open|always|there\d+(?:-given)?)", re.DOTALL)
_HANDING_ON = re.compile(r".*-stepd_\d+-(?:t\d+|sent\d+|fetched|last|stepd_\d+)", re.DOTALL)
# Numbers that the program's own names use.
_foreign: set[str] = set()
LOWEST = ".-stepd_0"  # a name before all others
_BALLAST = "stepd_0/"
EXECUTOR = "STEPD_PRIORITY"
# With whom an op lies; what that was for a copy that lies elsewhere; what keeps a copy apart from its twins.
COLOCATION, LEFT, APART = "_class", "_left", "_apart"
_ALIAS = re.compile(r"stepd_alias_(\d+)")


def prefix(number: int) -> str:
    return f"stepd_{number}"


def avoid(name: str) -> None:
    """A user's op is called `name`: what in it looks like the hook's own stays in texts, and is not used from now on."""
    if "stepd_" in name:
        _foreign.update(number for found in _MARK.finditer(name) for number in found.groups() if number)


def is_free(number: int) -> bool:
    """May the hook use `number`?"""
    return str(number) not in _foreign


def copy_name(name: str, mark: str) -> str:
    """The name of a copy of op `name`: copies and originals sort as the originals do.

    Grappler sorts the inputs of commutative ops by name, and a sum of floats depends on the order. "-" is the lowest character
    of names, so that the copies of "a", "a/b" and "a_1" stay in this order, whichever of them are copied.
    """
    return f"{name}-{mark}"


def is_own(name: str) -> bool:
    return _OWN.fullmatch(name) is not None


def alias(number: int) -> str:
    """The mirror's name for a user's op that cannot have its own there."""
    return f"stepd_alias_{number}"


def is_taken(name: str) -> bool:
    """Would the user's op `name` be mistaken for one of the hook's own?"""
    return "stepd_" in name and (is_own(name) or _ALIAS.search(name) is not None)


def user_text(text: str, aliases: dict[str, str]) -> str:
    """`text` with the user's op names; `aliases` maps the mirror's name of a renamed op to the user's."""
    if "stepd_" not in text:
        return text
    for here, name in aliases.items():
        if is_taken(name):
            text = re.sub(rf"(?:stepd_\d+/)?{re.escape(name)}(?:-stepd_\d+)?(?![\w/-])", here, text)
    text = _MARK.sub(lambda found: found[0] if (found[1] or found[2]) in _foreign else "", text)
    return _ALIAS.sub(lambda found: aliases.get(found.group(0), found.group(0)), text)


def holds_own(data: bytes) -> bool:
    return b"stepd_" in data


def repair_error(
    error: Any,
    aliases: dict[str, str],
    cluster: Any = None,
    reader: Callable[[str], str] = lambda variable: "",
    waits: Callable[[], str] = str,
) -> None:
    """Give a TensorFlow OpError, not yet seen by the program, the text that one device and the user's names would give. `reader`:
    which op takes a reference variable's value as it is; `waits`: what the step says where it is broken off while it waits; ""
    where that is not known."""
    if isinstance(error, UnicodeDecodeError):
        _repair_undecodable(error, aliases)
        return
    message = getattr(error, "_message", None)
    if not isinstance(message, (str, bytes)):
        return
    text = message.decode(errors="replace") if isinstance(message, bytes) else message
    if cluster is not None:
        text = cluster.plain_error_text(text)
    sent = _SENT if cluster is None else _SENT_BY_WORKER
    text = _FED_ELSEWHERE.sub(r"\1", user_text(one_error(text), aliases))
    at_home = sent.sub(lambda m: f"{m[1]}{reader(m[2]) or f'_retval_{m[2]}_0_0'}{m[3]}", text)
    set_text(error, (waits() if _BROKEN_OFF.fullmatch(at_home) else "") or at_home)


def is_broken_off(text: str) -> bool:
    """Does an error say nothing but that a transfer was broken off?"""
    return _BROKEN_OFF.fullmatch(one_error(text)) is not None


def _repair_undecodable(error: UnicodeDecodeError, aliases: dict[str, str]) -> None:
    """TensorFlow met an error whose text, which quotes the program's data, is no text: Python says at which byte."""
    text = error.object.decode("utf-8", "surrogateescape")
    data = user_text(one_error(text), aliases).encode("utf-8", "surrogateescape")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as plain:
        error.object, error.start, error.end = data, plain.start, plain.end
        error.args = plain.args


def set_text(error: Any, text: str) -> None:
    """Give a TensorFlow OpError another text."""
    message = error._message
    error._message = text
    error.args = tuple(text if a == message else a for a in error.args)


def without_executor(text: str) -> str:
    """A list of TensorFlow's executors without the hook's own."""
    return text.replace(f"{EXECUTOR}, ", "").replace(f", {EXECUTOR}", "")


def without_frames(error: Any, room: str) -> None:
    """Take the hook's frames, of files below `room`, out of the tracebacks that an error quotes: of a Python function that ran a
    step itself, say."""
    text = getattr(error, "_message", None)
    if isinstance(text, str) and room in text:
        set_text(error, re.sub(_FRAME % re.escape(room), "", text, flags=re.MULTILINE))
    elif type(error) is RuntimeError and _REPLACED in str(error):
        error.args = (re.sub(_AT % re.escape(room), "", str(error), flags=re.MULTILINE),)


def one_error(text: str) -> str:
    """Of several root errors the one that a run on one device reports: no summary, no receiving nodes, no transfer's end."""
    server, receiver = "", _RECEIVER
    if found := _FROM_SERVER.match(text):
        server, text, receiver = found[0], text[found.end() :], _SERVERS_RECEIVER
    if _SEVERAL.match(text):
        body = _SUMMARY.sub("", text[text.index("\n") + 1 :])
        errors = [receiver.sub("", part).rstrip("\n") for part in _NUMBERED.split(body) if part.strip()]
        told = [error for error in errors if _CANCELLED not in error] or errors
        # Of a function's error, the one that says who called it.
        whole = [error for error in told if not any(other != error and other.startswith(error) for other in told)]
        text = min(whole, key=lambda error: error.count("\n"), default=text)
    return server + _HINTS.sub(r"\1", receiver.sub("", text))


# What pybind11 says where a signal's handler raises while it raises TensorFlow's error, and a frame as it lists these.
_REPLACED = "pybind11::error_already_set"
_AT = r"^  %s[^\n]*\(\d+\): .*\n"
# With the line of code, what is pointed at, and the empty line by which TensorFlow parts frames.
_FRAME = r'^  File "%s[^"\n]*", line \d+, in .*\n(?:    .*\n)?(?: +[\^~]+ *\n)?\n?'
# Where memory did not suffice every executor of a step adds the same hint.
_HINTS = re.compile(r"(\nHint: If you want to see a list of allocated tensors[^\n]*)(?:\n*\1)+")
_CANCELLED = "RecvAsync is cancelled"
_BROKEN_OFF = re.compile(rf"{_CANCELLED}\.?(?:\s*\[\[[^\[\]]*\]\])?\s*")
_SEVERAL = re.compile(r"\d+ root error\(s\) found\.\n")
_NUMBERED = re.compile(r"^  \(\d+\) (?:[A-Z_]+|[A-Z][a-z][A-Za-z ]+): ", re.MULTILINE)
_SUMMARY = re.compile(r"^\d+ successful operations\.\n\d+ derived errors ignored\.", re.MULTILINE)
# An uninitialized reference variable that is fetched: the run's own end says so or, from elsewhere, what sends it.
_FETCHED = r"(Attempting to use uninitialized value (\S+)\n\t \[\[\{\{node )\2%s(\}\}\]\])"
_SENT = re.compile(_FETCHED % r"/_\d+")
_SENT_BY_WORKER = re.compile(_FETCHED % r"(?:_S\d+|/_\d+)?")  # what reads it last is called as it is itself
# What hands what is fed in a partial run on to another device.
_FED_ELSEWHERE = re.compile(r"(\{\{node _recv_\S+_\d+)/_\d+(?=\}\})")
_RECEIVER = re.compile(r"\n\t \[\[[^\[\]]*/_\d+\]\]")
_SERVERS_RECEIVER = re.compile(r"\n\t \[\[[^\[\]]*(?:/_|_G|_S)\d+\]\]")
_FROM_SERVER = re.compile(r"From /job:[^\n]*:\n")


def repair_metadata(data: bytes, aliases: dict[str, str]) -> bytes:
    """Serialized RunMetadata with the user's names."""
    if b"stepd_" not in data:
        return data
    from tensorflow.core.protobuf import config_pb2

    metadata = config_pb2.RunMetadata.FromString(data)
    for device in metadata.step_stats.dev_stats:
        _drop(device.node_stats, lambda stats: _is_besides(stats.node_name))
        for stats in device.node_stats:
            stats.node_name = user_text(stats.node_name, aliases)
            stats.timeline_label = user_text(stats.timeline_label, aliases)
    _drop(metadata.cost_graph.node, lambda cost: _is_besides(cost.name))
    for cost in metadata.cost_graph.node:
        cost.name = user_text(cost.name, aliases)
    graphs = list(metadata.partition_graphs)
    for functions in metadata.function_graphs:
        graphs += [*functions.partition_graphs, functions.pre_optimization_graph, functions.post_optimization_graph]
    for graph in graphs:
        _drop(graph.node, lambda node: _is_besides(node.name))
        for node in graph.node:
            if is_own(node.name):
                node.attr.pop(APART, None)
                if LEFT in node.attr:
                    node.attr[COLOCATION].CopyFrom(node.attr[LEFT])
                    del node.attr[LEFT]
            node.name = user_text(node.name, aliases)
            sources = [user_text(source, aliases) for source in node.input if not _WAITED_FOR.fullmatch(source)]
            node.input[:] = sources
            for value in node.attr.values():  # what a transfer carries, with whom an op lies
                if value.HasField("list"):
                    value.list.s[:] = [_user_bytes(one, aliases) for one in value.list.s]
                if value.HasField("s"):
                    value.s = _user_bytes(value.s, aliases)
    return metadata.SerializeToString()  # type: ignore[no-any-return]


def _user_bytes(data: bytes, aliases: dict[str, str]) -> bytes:
    return user_text(data.decode("utf-8", "surrogateescape"), aliases).encode("utf-8", "surrogateescape")


def _is_besides(name: str) -> bool:
    """Is it something that copies run besides what the program asks for, which stands for no op of the program's?"""
    besides = _WAITED_FOR.fullmatch(name) or _HANDING_ON.fullmatch(name)
    return name == LOWEST or name.startswith(_BALLAST) or besides is not None


def _drop(items: Any, unwanted: Callable[[Any], bool]) -> None:
    """Take items out of a repeated field."""
    for at in [i for i, item in enumerate(items) if unwanted(item)][::-1]:
        del items[at]
