"""The picture of a pipeline as Mermaid text, which notebooks and many Markdown viewers draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from strandline.log.storage.redaction import redacted_url
from strandline.spark.describe.stage import Stage
from strandline.spark.pipeline.network import Network

_SHAPES = {"source": ('(["', '"])'), "operator": ('["', '"]'), "stream": ('[("', '")]')}
_ESCAPED = {"#": "#35;", "&": "#amp;", chr(34): "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;"}


class Diagram(str):
    """Mermaid text. A notebook draws it; `print` shows the text."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return f"```mermaid\n{self}\n```"

    def __repr__(self) -> str:
        return str(self)


def diagram_of(network: Network) -> Diagram:
    """Returns the elements of a pipeline and the streams that they read, from left to right."""
    urls = [*network.others, *network.elements]
    names = {url: f"s{number}" for number, url in enumerate(urls)}
    short = _short_names(urls)
    lines = ["flowchart LR"]
    for url, name in names.items():
        element = network.elements.get(url)
        kind = "stream" if element is None else "operator" if isinstance(element, Stage) else "source"
        texts = [short[url]]
        if isinstance(element, Stage):
            operator = element.operator
            is_timestamp = operator.inputs[0]._input_spec.time_is_timestamp
            texts.append(operator.definition.text(is_timestamp=is_timestamp))
        lines.append(f"  {name}{_node(kind, texts)}")
    lines += [f"  {names[read]} --> {names[url]}" for url, inputs in _edges(network).items() for read in inputs]
    return Diagram("\n".join(lines))


def _edges(network: Network) -> Mapping[str, tuple[str, ...]]:
    return {url: tuple(dict.fromkeys(network.reads[url])) for url in network.elements}


def _node(kind: str, texts: list[str]) -> str:
    opened, closed = _SHAPES[kind]
    return opened + "<br/>".join("".join(_ESCAPED.get(c, c) for c in text) for text in texts) + closed


def _short_names(urls: Sequence[str]) -> dict[str, str]:
    """Returns each address without the folder that all of them lie in."""
    parts = [redacted_url(url).split("/") for url in urls]
    shared = sum(1 for _ in takewhile(lambda level: len(set(level)) == 1, zip(*(p[:-1] for p in parts), strict=False)))
    return {url: "/".join(p[shared:]) for url, p in zip(urls, parts, strict=True)}
