"""The picture of a pipeline as Mermaid text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from strandline.log.storage.redaction import redacted_url
from strandline.mermaid import Diagram, flowchart
from strandline.spark.describe.stage import Stage
from strandline.spark.pipeline.network import Element, Network


def diagram_of(network: Network) -> Diagram:
    """Returns the elements of a pipeline and the streams that they read, from left to right."""
    urls = [*network.others, *network.elements]
    short = _short_names(urls)
    boxes = {url: _box(network.elements.get(url), short[url]) for url in urls}
    reads = {url: dict.fromkeys(network.reads[url]) for url in network.elements}
    return flowchart(boxes, [(read, url, "") for url, inputs in reads.items() for read in inputs])


def _box(element: Element | None, name: str) -> tuple[str, list[str]]:
    """Returns the shape of an element, or of a stream that others write, and the lines in it."""
    if not isinstance(element, Stage):
        return "stream" if element is None else "source", [name]
    operator = element.operator
    is_timestamp = operator.inputs[0]._input_spec.time_is_timestamp
    return "operator", [name, operator.definition.text(is_timestamp=is_timestamp)]


def _short_names(urls: Sequence[str]) -> dict[str, str]:
    """Returns each address without the folder that all of them lie in."""
    parts = [redacted_url(url).split("/") for url in urls]
    shared = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, zip(*(p[:-1] for p in parts), strict=False)))
    return {url: "/".join(p[shared:]) for url, p in zip(urls, parts, strict=True)}
