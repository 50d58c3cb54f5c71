"""`strandline consumers`: the registered readers, which keep a stream from being truncated, and forgetting them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from strandline.cli.arguments import AsJson, StreamPath, open_log
from strandline.cli.terminal import ago, count, facts_table, folded, needs_text, out, panel, print_json, size
from strandline.errors import OptionError
from strandline.wording import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.log.reading.summary import ConsumerSummary
    from strandline.log.stream.log import Log


def consumers(
    path: StreamPath,
    forget: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Forget the consumer with this name, or with this output.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show which consumers keep tuples from being truncated.

    It shows how many tuples each consumer keeps, and when it last registered what it needs.

    Consumers are readers with a name, and operators. An operator has the name of its query, or else of the folder that
    it writes. A consumer that will not come back keeps its tuples until you forget it. A consumer that was forgotten
    and still runs registers again with its next batch.
    """
    from strandline.log.reading.summary import summary

    log = open_log(path)
    known = summary(log).consumers
    gone = None
    if forget is not None:
        gone = _forget(log, forget, known)
        known = summary(log).consumers
    if as_json:
        body = {} if gone is None else {"forgotten": asdict(gone)}
        print_json({**body, "consumers": [asdict(c) for c in known]})
    elif gone is not None:
        out().print(_let_go(gone))
    elif not known:
        out().print("No consumer is registered: everything may be truncated.")
    else:
        console = out()
        console.print(panel(_facts(known, log.clock.now_us(), console.width - 4), "consumers"))


def _forget(log: Log, name: str, known: Sequence[ConsumerSummary]) -> ConsumerSummary:
    from strandline.log.upkeep.consumer_registry import unregister

    found = next(([c] for c in known if c.name == name), None) or [c for c in known if name in (c.label, c.writes)]
    if not found:
        names = ", ".join(c.label for c in known)
        raise OptionError(
            f"there is no consumer {name!r}",
            where=log.storage.url,
            todo=f"choose one of {names}" if names else "nothing to do: no consumer is registered",
        )
    if len(found) > 1:
        raise OptionError(
            f"{len(found)} consumers are called {name!r}",
            where=log.storage.url,
            todo=f"choose one of {', '.join(c.writes or c.name for c in found)}",
        )
    unregister(log, found[0].name)
    return found[0]


def _let_go(c: ConsumerSummary) -> Text:
    text = Text.assemble(("Forgotten: ", "bold"), f"{c.label}, {_what(c)}. ")
    if not c.held_tuples:
        return text.append("It held nothing back.")
    text.append(f"It held back {plural(c.held_tuples, 'tuple')} ({size(c.held_bytes)}); ")
    if not c.alone_tuples:
        return text.append("others need all of them.")
    text.append(f"no other consumer needs {count(c.alone_tuples)} of them ({size(c.alone_bytes)}): they may go with ")
    return text.append("strandline truncate", style="bold").append(" or the stream's retention.")


def _facts(known: Sequence[ConsumerSummary], now_us: int, width: int) -> RenderableType:
    """Shows the consumers one below the other, because paths are long."""
    shown: list[RenderableType] = []
    for c in known:
        facts = {
            "consumer": c.label,
            "is": _what(c),
            "needs from": needs_text(c.needs),
            "holds back": f"{plural(c.held_tuples, 'tuple')} ({size(c.held_bytes)}), {size(c.alone_bytes)} only for it",
            "moved on": ago(c.updated_us, now_us),
        }
        room = width - 2 - max(map(len, facts))
        texts = {name: Text(folded(text, room)) for name, text in facts.items()}
        texts["consumer"].stylize("bold")
        shown += [*([""] if shown else []), facts_table(texts)]
    return Group(*shown)


def _what(c: ConsumerSummary) -> str:
    from strandline.log.upkeep.consumer_registry import OPERATOR_PREFIX

    if c.writes:
        return f"operator that writes {c.writes}"
    return "operator" if c.name.startswith(OPERATOR_PREFIX) else "reader"
