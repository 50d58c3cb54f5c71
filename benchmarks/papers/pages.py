"""The pages of a run: one for each paper, and `index.html`, which leads to them. They need no other host."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.papers.catalogue import PAPERS, Paper, experiments
from benchmarks.papers.drawing import as_svg
from benchmarks.papers.figure import Experiment, Figure, Verdict
from benchmarks.papers.results import FILE, Results, claims, command, verdict

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --quiet: #777; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: .6rem 0; } td, th { border-bottom: 1px solid var(--line); text-align: left;
padding: .25rem .8rem .25rem 0; vertical-align: top; } .wide { overflow-x: auto; }
img { max-width: 100%; background: #fff; border-radius: 4px; }
code { background: #8882; padding: .1rem .3rem; border-radius: 3px; } section { margin: 2.5rem 0; }
.verdict { font-weight: 600; padding: .05rem .5rem; border-radius: 1rem; color: #fff; white-space: nowrap; }
.agrees { background: #2f7d4f; } .better { background: #1f6f8b; } .differs { background: #b4552d; }
.failed { background: #8b1f2f; } .quiet { color: var(--quiet); }
"""


def write_pages(results: Results) -> None:
    """Draws every figure that was measured, and writes all pages."""
    for experiment, figure in _measured(results, None):
        outcome = results.experiments[experiment.name]
        if "data" in outcome and (panels := figure.panels(outcome["data"])):
            (results.folder / f"{figure.name}.svg").write_text(as_svg(panels))
    for paper in PAPERS:
        if any(_measured(results, paper)):
            (results.folder / f"{paper.name}.html").write_text(_paper_page(paper, results))
    (results.folder / "index.html").write_text(_index(results))


def _measured(results: Results, paper: Paper | None) -> Iterator[tuple[Experiment, Figure]]:
    """Yields the figures of a paper, or of all, that were measured."""
    for experiment in experiments():
        if experiment.name in results.experiments and (paper is None or experiment.paper == paper.name):
            yield from ((experiment, figure) for figure in experiment.figures)


def _index(results: Results) -> str:
    parts = [
        "<h1>The figures of the papers, measured again</h1>",
        f"<p>Strandline implements four papers. Each of their figures and tables is measured here by one command, and "
        f"compared with what the paper says. All values are in <a href='{FILE}'>{FILE}</a>.</p>",
        "<p><b>agrees</b>: all claims of the paper hold. <b>better</b>: what does not hold is surpassed. "
        "<b>differs</b>: a claim does not hold, and the page says why.</p>",
    ]
    for paper in PAPERS:
        rows = [
            (
                f"<a href='{paper.name}.html#{figure.name}'>{figure.name}</a>",
                html.escape(figure.title),
                _badge(verdict(figure, results.experiments[experiment.name])),
            )
            for experiment, figure in _measured(results, paper)
        ]
        if rows:
            parts += [f"<h2>{html.escape(paper.title)}</h2>", _table([("figure", "what it shows", ""), *rows])]
    return _page("The papers' figures", parts)


def _paper_page(paper: Paper, results: Results) -> str:
    parts = [f"<p><a href='index.html'>all papers</a></p><h1>{html.escape(paper.title)}</h1>"]
    for experiment, figure in _measured(results, paper):
        parts.append(_section(figure, results.experiments[experiment.name]))
    return _page(paper.name, parts)


def _section(figure: Figure, outcome: dict[str, Any]) -> str:
    own = verdict(figure, outcome)
    parts = [
        f"<section id='{figure.name}'><h2>{html.escape(figure.title)} {_badge(own)}</h2>",
        f"<p><b>The paper ran</b> {html.escape(figure.setting)}</p>",
        f"<p><b>The paper found</b> {html.escape(figure.found)}</p>",
        f"<p><b>We run</b> {html.escape(figure.ours)}</p>",
    ]
    if "data" in outcome:
        data = outcome["data"]
        if figure.panels(data):
            parts.append(f"<p><img src='{figure.name}.svg' alt='{html.escape(figure.title, quote=True)}'></p>")
        if figure.table is not None:
            rows = figure.table(data)
            parts.append(_table([tuple(html.escape(cell) for cell in row) for row in rows]))
        found = [
            (html.escape(one["claim"]), _badge(Verdict(one["verdict"])), html.escape(one.get("why", "")))
            for one in claims(figure, data)
        ]
        parts.append(_table([("what the paper claims", "ours", "why"), *found]))
    else:
        parts.append(f"<pre>{html.escape(outcome['problem'])}</pre>")
    machine = outcome["machine"]
    parts.append(
        f"<p class='quiet'><code>{command(figure, outcome['size'])}</code> · {outcome['seconds']:.0f} s on "
        f"{machine['cores']} cores, {machine['memory_gb']} GB, load {machine['load']} before it · strandline "
        f"{machine['strandline']} {machine.get('commit', '')}</p></section>"
    )
    return "\n".join(parts)


def _badge(own: Verdict) -> str:
    return f"<span class='verdict {own.value}'>{own.value}</span>"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Returns a table of cells that are HTML already; the first row is its heading."""
    head = "".join(f"<th>{cell}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f"<div class='wide'><table><tr>{head}</tr>{body}</table></div>"


def _page(title: str, parts: Sequence[str]) -> str:
    head = (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
        f"content='width=device-width, initial-scale=1'><title>{html.escape(title)}</title><style>{_STYLE}</style>"
    )
    return f"{head}</head><body>\n" + "\n".join(parts) + "\n</body></html>\n"
