"""A plan as plain values, and back: for JSON, and for a table of measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from steelyard.errors import RefusedError
from steelyard.memory.plan import Engine, Lora, Plan
from steelyard.memory.shapes import ModelShape


def values_of(plan: Plan) -> dict[str, Any]:
    """Every field of a plan but the shape, as numbers, words, and dictionaries of those.

    Examples
    --------
    >>> from steelyard.memory.catalogue import shape_of
    >>> shape = shape_of("Qwen3-0.6B")
    >>> plan = Plan(model=shape, lora=Lora(rank=8), engine=None)
    >>> plan_of(values_of(plan), shape, place="here") == plan
    True
    """
    found = {one.name: getattr(plan, one.name) for one in fields(plan) if one.name != "model"}
    for name in ("lora", "engine"):
        found[name] = None if found[name] is None else asdict(found[name])
    return found


def plan_of(values: Mapping[str, Any], shape: ModelShape, *, place: str) -> Plan:
    """A plan of such values; what is left out is as in `Plan`.

    Parameters
    ----------
    values
        By field.
    shape
        The model.
    place
        Where they were read, for messages.

    Raises
    ------
    RefusedError
        A field that no plan has, or a value that it cannot have.
    """
    known = {one.name for one in fields(Plan)} - {"model"}
    if unknown := sorted(values.keys() - known):
        raise _refused(f"its plan has {', '.join(unknown)}, which no plan has", place)
    found = dict(values)
    try:
        if (lora := found.get("lora")) is not None:
            targets = lora.get("targets")
            found["lora"] = Lora(**{**lora, "targets": None if targets is None else tuple(targets)})
        if (engine := found.get("engine")) is not None:
            found["engine"] = Engine(**engine)
        return Plan(model=shape, **found)
    except (AttributeError, TypeError) as error:
        raise _refused(f"its plan cannot be read: {error}", place) from error


def _refused(reason: str, place: str) -> RefusedError:
    return RefusedError(reason, where=place, remedy="take the plan as `steelyard fit --json` writes it")
