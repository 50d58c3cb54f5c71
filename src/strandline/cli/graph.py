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
    from strandline.log.reading.stream_graph import StreamNode
    from strandline.log.reading.summary import Summary
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
    """Show which streams below a folder are made of which.

    Each stream stands below the streams that it is made of. The graph shows the number of tuples or results, open
    windows and waiting input offsets of each, and the state of operators with a bound. A stream is live if its newest
    batch is at most a minute old; of these it shows the rate. It opens no block, and it may run while others write.
    """
    from strandline.clock import SYSTEM_CLOCK
    from strandline.inputs.stream_definition import words_of
    from strandline.log.reading.stream_graph import stream_graph

    if mermaid and as_json:
        raise OptionError("--mermaid does not go with --json", todo="leave out one of them")
    now_us = SYSTEM_CLOCK.now_us()
    shown = [_Shown(node, now_us) for node in stream_graph(folder, words_of)]
    if svg is not None:
        _draw(shown, svg)
    if as_json:
        print_json({"folder": folder, "streams": [_json(one) for one in shown]})
    elif mermaid:
        typer.echo(_mermaid(shown))
    elif svg is None:
        out().print(panel(_tree(shown), "graph"))


class _Shown:
    """The facts of a stream that all forms of the graph show."""

    def __init__(self, node: StreamNode, now_us: int) -> None:
        self.node = node
        s = node.summary
        o = None if s is None else s.operator
        is_recent = s is not None and s.published_us is not None and now_us - s.published_us <= _LIVE_US
        self.is_live = is_recent and s is not None and not s.finished
        self.rate = s.rate if s is not None and self.is_live else None
        self.state = None if o is None or o.outage is None else str(o.outage["state"])
        """Of an operator with a bound."""
        self.what: str = node.kind
        """The operator or the source that writes the stream, in words."""
        if node.kind == "operator" and s is not None:
            self.what = o.windows if o is not None else f"rekeyed by {', '.join(s.key)}"
        self.figures = [] if s is None else self._figures(s, now_us)

    def _figures(self, s: Summary, now_us: int) -> list[str]:
        found = [plural(s.tuples, "tuple" if s.operator is None else "result")]
        if s.finished:
            found.append("finished")
        elif s.published_us is None:
            found.append("no batch yet")
        elif not self.is_live:
            found.append(f"last batch {ago(s.published_us, now_us)}")
        elif self.rate is not None:
            found.append(rate(self.rate))
        if (o := s.operator) is not None:
            found += [plural(o.open_windows, "open window")] if o.open_windows else []
            found += [f"{o.waiting:,} waiting"] if o.waiting else []
        return found


def _json(shown: _Shown) -> dict[str, Any]:
    node, s = shown.node, shown.node.summary
    o = None if s is None else s.operator
    return {
        "name": node.name,
        "url": node.url,
        "kind": node.kind,
        "what": shown.what,
        "reads": [{"url": r.url, "is_replica": r.is_replica, "is_circle": r.is_circle} for r in node.reads],
        "is_elsewhere": node.is_elsewhere,
        "problem": node.problem,
        "is_live": shown.is_live,
        "tuples": None if s is None else s.tuples,
        "published_us": None if s is None else s.published_us,
        "finished": None if s is None else s.finished,
        "rate": shown.rate,
        "state": shown.state,
        "open_windows": None if o is None else o.open_windows,
        "waiting": None if o is None else o.waiting,
    }


def _tree(all_shown: list[_Shown]) -> RenderableType:
    """Returns each stream once, below the input that is furthest down; of several such inputs, below the first."""
    from rich.tree import Tree

    if not all_shown:
        return Text("there are no streams below this folder")
    there = sum(one.node.kind != "missing" for one in all_shown)
    live = sum(one.is_live for one in all_shown)
    known = {one.node.url: one.node for one in all_shown}
    places: dict[str, Tree] = {}
    roots = []
    for one in all_shown:
        before = [known[read.url] for read in one.node.reads if not read.is_circle]
        last = max(before, key=lambda node: node.level, default=None)
        label = _label(one, last, known)
        if last is None:
            roots.append(Tree(label, guide_style=QUIET))
        places[one.node.url] = roots[-1] if last is None else places[last.url].add(label)
    return Group(f"{plural(there, 'stream')}, {live:,} live", *roots)


def _label(shown: _Shown, last: StreamNode | None, known: dict[str, StreamNode]) -> Text:
    """Returns a stream's name with the lines below it; `last` is the input that it is below in the tree."""
    node, style = shown.node, _STYLES.get(shown.node.kind, "")
    replicas = [known[read.url].name for read in node.reads if read.is_replica]
    others = [r.url for r in node.reads if not r.is_replica and not r.is_circle and r.url != (last and last.url)]
    circle = [known[read.url].name for read in node.reads if read.is_circle]
    lines = (
        (", ".join(shown.figures), "green" if shown.is_live else QUIET),
        (shown.state, "green" if shown.state == _STABLE else "yellow"),
        (f"reads one of {', '.join(replicas)}" if replicas else None, QUIET),
        (f"and reads {', '.join(known[url].name for url in others)}" if others else None, QUIET),
        (f"reads {', '.join(circle)}, which is made of its results" if circle else None, "red"),
        (node.problem, _STYLES.get(node.kind, "red")),
    )
    label = Text.assemble((node.name, f"bold {style}"), "  ", (shown.what, style or ACCENT), overflow="fold")
    for text, line_style in lines:
        if text:
            label.append(f"\n  {text}", line_style)
    return label


def _mermaid(all_shown: list[_Shown]) -> Diagram:
    from strandline.mermaid import flowchart

    boxes = {}
    for shown in all_shown:
        node = shown.node
        shape = "missing" if node.problem is not None else "stream" if node.is_elsewhere else node.kind
        texts = [node.name, shown.what, ", ".join(shown.figures), shown.state, node.problem]
        boxes[node.url] = (shape, [text for text in texts if text])
    arrows = [(r.url, one.node.url, "or" if r.is_replica else "") for one in all_shown for r in one.node.reads]
    return flowchart(boxes, arrows)


def _draw(all_shown: list[_Shown], file: Path) -> None:
    from strandline.cli.graph_svg import Arrow, Box, drawing

    boxes, arrows = {}, []
    for shown in all_shown:
        node = shown.node
        look = "elsewhere" if node.is_elsewhere and node.summary is not None else node.kind
        boxes[node.url] = Box(
            node.level,
            node.name,
            shown.what,
            tuple(shown.figures),
            look="damaged" if node.problem is not None and look != "missing" else look,
            state=shown.state,
            problem=node.problem,
            is_live=shown.is_live,
        )
        arrows += [Arrow(r.url, node.url, is_dashed=r.is_replica, is_circle=r.is_circle) for r in node.reads]
    try:
        file.write_text(drawing(boxes, arrows), encoding="utf-8")
    except OSError as error:
        what = f"the image cannot be written: {error.strerror}"
        raise OptionError(what, where=str(file), todo="choose another file") from None
    aside().print(f"the graph of {plural(len(boxes), 'stream')} is in {file}")
