"""Between what stream.json says of an operator and its plan."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from strandline.errors import KeyMissingError, OptionError
from strandline.log import spec as spec_
from strandline.log.columns import fields_of, type_name
from strandline.log.spec import FORMAT, SHAPED_FORMAT, StreamSpec
from strandline.log.storage import Storage
from strandline.operators.aggregates import Aggregate, resolve
from strandline.operators.plan import Plan
from strandline.operators.shape import Shape
from strandline.operators.windows import Window
from strandline.version import VERSION


def plan_of(spec: StreamSpec, where: str, input_: StreamSpec | None = None) -> Plan:
    """The plan of the operator that writes a stream; good for reading its input only if that is given, too.

    Raises `OptionError` if no operator writes the stream.
    """
    operator = spec.operator
    if operator is None:
        raise OptionError("no operator writes this stream", where=where, todo="ask the output stream of an operator")
    types = {f["name"]: type_name(f["type"]) for f in fields_of(spec.schema)}
    window = Window.from_json(operator["window"])
    accumulators = tuple(
        resolve(name, Aggregate.from_json(body, operator.get("expressions", {})), {body[1]: body[2]} if body[1] else {})
        for name, body in operator["aggregates"].items()
    )
    time = ("", types["window_start"])
    if input_ is not None:
        time = (input_.time, next(type_name(f["type"]) for f in fields_of(input_.schema) if f["name"] == input_.time))
    shape = Shape.from_json(operator.get("shape", ()), operator.get("expressions", {}))
    return Plan(window, tuple((c, types[c]) for c in spec.key), time, accumulators, shape)


def output_spec(plan: Plan, input_: StreamSpec, retention: int | None = None) -> StreamSpec:
    """What the stream of a new operator is."""
    return StreamSpec(
        id=str(uuid.uuid4()),
        schema={
            "type": "struct",
            "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in plan.result_columns],
        },
        key=input_.key,
        time="window_end",
        partitions=input_.partitions,
        lateness=0,
        retention=retention,
        created_by=f"strandline {VERSION}",
        operator={**plan.to_json(), "footprints": [list(c) for c in plan.control_columns]},
        format=SHAPED_FORMAT if plan.shape or plan.conditions or plan.sketches else FORMAT,
    )


def continued(plan: Plan, storage: Storage) -> Plan:
    """The plan by the rules of the stream that lies there, if one does: they may be older than today's."""
    spec = _stored(storage)
    return plan if spec is None else plan.continuing(spec.operator)


def stored_expressions(storage: Storage) -> Mapping[str, str]:
    """The expressions by which the stream that lies there is made of another: texts, and Arrow's form of each."""
    spec = _stored(storage)
    found: Mapping[str, str] = ((spec.upstream if spec else None) or {}).get("expressions", {})
    return found


def _stored(storage: Storage) -> StreamSpec | None:
    try:
        data = storage.read(spec_.KEY)
    except KeyMissingError:
        return None
    return StreamSpec.from_json(data, f"{storage.url}/{spec_.KEY}")
