"""Mermaid text of a graph of streams, which notebooks and many viewers of Markdown draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

_SHAPES = {
    "source": ('(["', '"])'),
    "operator": ('["', '"]'),
    "stream": ('[("', '")]'),
    "missing": ('["', '"]:::missing'),
}
_STYLES = {"missing": "  classDef missing stroke-dasharray: 5 5"}
_ESCAPED = {"#": "#35;", "&": "#amp;", chr(34): "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;", "\n": " "}


class Diagram(str):
    """Mermaid text. A notebook draws it; `print` shows the text."""

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return f"```mermaid\n{self}\n```"

    def __repr__(self) -> str:
        return str(self)


def flowchart(boxes: Mapping[str, tuple[str, Sequence[str]]], arrows: Iterable[tuple[str, str, str]]) -> Diagram:
    """Returns boxes, from left to right: of each stream, by its address, a shape (source, operator, stream, missing)
    and the lines in it. An arrow goes from one address to another, and has a text or none.

    >>> print(flowchart({"a": ("source", ["a"]), "b": ("operator", ["b", "count"])}, [("a", "b", "")]))
    flowchart LR
      s0(["a"])
      s1["b<br/>count"]
      s0 --> s1
    """
    names = {url: f"s{number}" for number, url in enumerate(boxes)}
    lines = ["flowchart LR"]
    lines += [f"  {names[url]}{_box(shape, texts)}" for url, (shape, texts) in boxes.items()]
    lines += [f"  {names[a]} --{f' {_escaped(text)} --' if text else ''}> {names[b]}" for a, b, text in arrows]
    lines += [style for shape, style in _STYLES.items() if shape in {shape for shape, _ in boxes.values()}]
    return Diagram("\n".join(lines))


def _box(shape: str, texts: Sequence[str]) -> str:
    opened, closed = _SHAPES[shape]
    return opened + "<br/>".join(map(_escaped, texts)) + closed


def _escaped(text: str) -> str:
    return "".join(_ESCAPED.get(c, c) for c in text)
