"""`strandline graph`: the streams below a folder, and which of them each is made of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from strandline.cli.arguments import AsJson
from strandline.cli.terminal import ACCENT, QUIET, ago, aside, out, panel, print_json, rate
from strandline.errors import OptionError
from strandline.wording import plural

if TYPE_CHECKING:
    from strandline.cli.graph_svg import Box
    from strandline.log.reading.stream_graph import StreamNode
    from strandline.mermaid import Diagram

_LIVE_US = 60_000_000
"""A stream is live if its newest batch is no older."""
_STYLES = {"missing": "yellow", "damaged": "red"}
_STABLE = "STABLE"


def graph(
    folder: Annotated[
        str,
        typer.Argument(metavar="FOLDER", help="Where the streams lie: a folder, or a URL such as s3://bucket/streams."),
    ],
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Draw it as an image instead.", show_default=False)
    ] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", metavar="", help="Print it as Mermaid text instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the streams below a folder as a graph: what each is made of.

    With the number of tuples or results, the open windows, the offsets of its inputs that wait for an operator, and the
    state of one with a bound. Of live streams, whose newest batch is at most a minute old, also the rate. Below each
    stream are those that are made of it. Opens no block, and may be used while others write.
    """
    from strandline.clock import SYSTEM_CLOCK
    from strandline.inputs.stated_operator import words_of
    from strandline.log.reading.stream_graph import stream_graph

    if mermaid and as_json:
        raise OptionError("--mermaid and --json at once", todo="leave out one of them")
    nodes = stream_graph(folder, words_of)
    now_us = SYSTEM_CLOCK.now_us()
    if svg is not None:
        _draw(nodes, now_us, svg)
    if as_json:
        print_json({"folder": folder, "streams": [_json(node, now_us) for node in nodes]})
    elif mermaid:
        typer.echo(_mermaid(nodes, now_us))
    elif svg is None:
        out().print(panel(_tree(nodes, now_us), "graph"))


# ---------------------------------------------------------------------- facts of a stream


def _is_live(node: StreamNode, now_us: int) -> bool:
    s = node.summary
    return s is not None and not s.finished and s.published_us is not None and now_us - s.published_us <= _LIVE_US


def _what(node: StreamNode) -> str:
    """Returns what writes a stream, in words."""
    s = node.summary
    if node.kind != "operator" or s is None:
        return node.kind
    return s.operator.windows if s.operator is not None else f"rekeyed by {', '.join(s.key)}"


def _state(node: StreamNode) -> str | None:
    """Returns the state of an operator with a bound."""
    operator = None if node.summary is None else node.summary.operator
    return None if operator is None or operator.outage is None else str(operator.outage["state"])


def _figures(node: StreamNode, now_us: int) -> list[str]:
    s = node.summary
    if s is None:
        return []
    found = [plural(s.tuples, "tuple" if s.operator is None else "result")]
    if s.finished:
        found.append("finished")
    elif s.published_us is None:
        found.append("no batch yet")
    elif not _is_live(node, now_us):
        found.append(f"last batch {ago(s.published_us, now_us)}")
    elif s.rate is not None:
        found.append(rate(s.rate))
    if (o := s.operator) is not None:
        found.append(plural(o.open_windows, "open window"))
        found += [f"{o.waiting:,} waiting"] if o.waiting else []
    return found


def _json(node: StreamNode, now_us: int) -> dict[str, Any]:
    s = node.summary
    o = None if s is None else s.operator
    return {
        "name": node.name,
        "url": node.url,
        "kind": node.kind,
        "what": _what(node),
        "reads": [{"url": r.url, "is_replica": r.is_replica, "is_circle": r.is_circle} for r in node.reads],
        "is_elsewhere": node.is_elsewhere,
        "problem": node.problem,
        "is_live": _is_live(node, now_us),
        "tuples": None if s is None else s.tuples,
        "published_us": None if s is None else s.published_us,
        "finished": None if s is None else s.finished,
        "rate": s.rate if s is not None and _is_live(node, now_us) else None,
        "state": _state(node),
        "open_windows": None if o is None else o.open_windows,
        "waiting": None if o is None else o.waiting,
    }


# ---------------------------------------------------------------------- pictures


def _tree(nodes: list[StreamNode], now_us: int) -> RenderableType:
    """Returns each stream once, below the last of those that it is made of."""
    from rich.tree import Tree

    if not nodes:
        return Text("there are no streams below this folder")
    there = sum(node.kind != "missing" for node in nodes)
    live = sum(_is_live(node, now_us) for node in nodes)
    known = {node.url: node for node in nodes}
    places: dict[str, Tree] = {}
    roots = []
    for node in nodes:
        before = [known[read.url] for read in node.reads if not read.is_circle]
        last = max(before, key=lambda one: one.level, default=None)
        label = _label(node, last, known, now_us)
        if last is None:
            roots.append(Tree(label, guide_style=QUIET))
        places[node.url] = roots[-1] if last is None else places[last.url].add(label)
    return Group(f"{plural(there, 'stream')}, {live:,} live", *roots)


def _label(node: StreamNode, last: StreamNode | None, known: dict[str, StreamNode], now_us: int) -> Text:
    style = _STYLES.get(node.kind, "")
    label = Text.assemble((node.name, f"bold {style}"), "  ", (_what(node), style or ACCENT), overflow="fold")
    for text, line_style in _lines(node, last, known, now_us):
        label.append(f"\n  {text}", line_style)
    return label


def _lines(
    node: StreamNode, last: StreamNode | None, known: dict[str, StreamNode], now_us: int
) -> list[tuple[str, str]]:
    """Returns the lines below a stream's name, with their styles; `last` is what it stands below in the tree."""
    lines = []
    if figures := _figures(node, now_us):
        lines.append((", ".join(figures), "green" if _is_live(node, now_us) else QUIET))
    if (state := _state(node)) is not None:
        lines.append((state, "green" if state == _STABLE else "yellow"))
    replicas = [known[read.url].name for read in node.reads if read.is_replica]
    others = [r.url for r in node.reads if not r.is_replica and not r.is_circle and r.url != (last and last.url)]
    circle = [known[read.url].name for read in node.reads if read.is_circle]
    if replicas:
        lines.append((f"reads one of {', '.join(replicas)}", QUIET))
    if others:
        lines.append((f"and reads {', '.join(known[url].name for url in others)}", QUIET))
    if circle:
        lines.append((f"reads {', '.join(circle)}, which is made of its results", "red"))
    if node.problem is not None:
        lines.append((node.problem, _STYLES.get(node.kind, "red")))
    return lines


def _mermaid(nodes: list[StreamNode], now_us: int) -> Diagram:
    from strandline.mermaid import flowchart

    boxes = {}
    for node in nodes:
        shape = "missing" if node.problem is not None else "stream" if node.is_elsewhere else node.kind
        texts = [node.name, _what(node), ", ".join(_figures(node, now_us)), _state(node), node.problem]
        boxes[node.url] = (shape, [text for text in texts if text])
    arrows = [(r.url, node.url, "or" if r.is_replica else "") for node in nodes for r in node.reads]
    return flowchart(boxes, arrows)


def _draw(nodes: list[StreamNode], now_us: int, file: Path) -> None:
    from strandline.cli.graph_svg import Arrow, drawing

    arrows = [Arrow(r.url, n.url, is_dashed=r.is_replica, is_circle=r.is_circle) for n in nodes for r in n.reads]
    picture = drawing({node.url: _box(node, now_us) for node in nodes}, arrows)
    try:
        file.write_text(picture, encoding="utf-8")
    except OSError as error:
        what = f"the image cannot be written: {error.strerror}"
        raise OptionError(what, where=str(file), todo="choose another file") from None
    aside().print(f"the graph of {plural(len(nodes), 'stream')} is in {file}")


def _box(node: StreamNode, now_us: int) -> Box:
    from strandline.cli.graph_svg import Box

    look = "elsewhere" if node.is_elsewhere and node.summary is not None else node.kind
    return Box(
        node.level,
        node.name,
        _what(node),
        tuple(_figures(node, now_us)),
        look="damaged" if node.problem is not None and look != "missing" else look,
        state=_state(node),
        problem=node.problem,
        is_live=_is_live(node, now_us),
    )
