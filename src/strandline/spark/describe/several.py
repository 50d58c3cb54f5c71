"""Checks of the inputs of an operator over several: different streams or sources that can be read as one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strandline.errors import OptionError
from strandline.inputs.serialisable import require_serialisable
from strandline.spark.operator.processing_element import Upstream


def require_several(inputs: Mapping[str, Any], what: str) -> tuple[Upstream, ...]:
    """Returns the inputs, by their names in messages; raises with what is wrong, or differs, if they cannot be read as
    one."""
    if len(inputs) < 2:
        is_list = any(isinstance(input_, list | tuple) for input_ in inputs.values())
        raise OptionError(
            f"{what} has {len(inputs) or 'no'} input{', a list' if is_list else ''}",
            todo="give it two or more streams, one by one" if is_list else "give it two or more streams",
        )
    for name, input_ in inputs.items():
        if not isinstance(input_, Upstream) or len(input_._input_members) > 1:
            raise OptionError(
                f"{name} of {what} is {input_!r}, not a stream",
                todo="give it sl.stream(…) or sl.source(…), or one of them with where(…) and select(…); an operator or "
                "a union needs an output: .into(path)",
            )
    urls: dict[str, str] = {}
    for name, input_ in inputs.items():
        url = input_._input_place.url
        if url in urls and not url.startswith("memory:"):
            raise OptionError(
                f"{urls[url]} and {name} of {what} are the same stream", where=url, todo="give every stream once"
            )
        urls[url] = name
    require_serialisable({name: input_._input_spec for name, input_ in inputs.items()})
    return tuple(inputs.values())
