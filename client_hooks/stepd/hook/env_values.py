"""What texts of environment variables mean: each parser returns a value, or raises ValueError with what the variable takes."""

from __future__ import annotations

from collections.abc import Callable

from stepd.hook.model import Order, Way

YES = frozenset({"1", "true", "yes", "on"})
NO = frozenset({"0", "false", "no", "off", ""})


def flag(text: str) -> bool:
    """1 or 0, and the words for them."""
    if text.lower() in YES:
        return True
    if text.lower() in NO:
        return False
    raise ValueError("1 or 0")


def choice(*names: str) -> Callable[[str], str]:
    """One of the names, in any case."""

    def parse(text: str) -> str:
        if text.lower() not in names:
            raise ValueError("one of " + ", ".join(names))
        return text.lower()

    return parse


def fraction(low: float, high: float) -> Callable[[str], float]:
    """A number from `low` to `high`."""
    takes = f"a number from {low:g} to {high:g}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(takes) from None
        if not low <= value <= high:
            raise ValueError(takes)
        return value

    return parse


def count(low: int, high: int) -> Callable[[str], int]:
    """A whole number from `low` to `high`."""
    takes = f"a whole number from {low} to {high}"

    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise ValueError(takes)
        return int(text)

    return parse


def way(text: str) -> Way:
    """A way of switching."""
    return Way(choice(*(way.value for way in Way))(text))


def order(text: str) -> Order:
    """A way of enforcing order."""
    return Order(choice(*(order.value for order in Order))(text))


def profile(text: str) -> str:
    """When steps are traced; "every" is "always"."""
    return choice("auto", "off", "always")("always" if text.lower() == "every" else text)
