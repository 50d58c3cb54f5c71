"""`strandline`: the program. Each command is one file; what a command needs is imported when it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from strandline.cli.arguments import JSON
from strandline.cli.backup import backup, restore
from strandline.cli.bench import bench
from strandline.cli.collect import collect
from strandline.cli.compact import compact
from strandline.cli.consumers import consumers
from strandline.cli.demo import demo
from strandline.cli.graph import graph
from strandline.cli.inspect import inspect
from strandline.cli.papers import papers
from strandline.cli.replay import replay
from strandline.cli.run import run
from strandline.cli.tail import tail
from strandline.cli.truncate import truncate
from strandline.cli.verify import verify
from strandline.cli.warm_up import warm_up
from strandline.errors import StrandlineError

_INTERRUPTED = 130


class _Command(TyperCommand):
    def get_help_option(self, ctx: Any) -> Any:
        return _without_type(super().get_help_option(ctx))


class _Group(TyperGroup):
    """Errors of ours are shown as what happened, where and what to do; no traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except StrandlineError as error:
            from strandline.cli.terminal import print_error

            print_error(error, as_json=ctx.meta.get(JSON, False))
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None

    def get_help_option(self, ctx: Any) -> Any:
        return _without_type(super().get_help_option(ctx))


def _without_type(option: Any) -> Any:
    """Removes the word <bool> beside a flag, which takes no value."""
    if option is not None:
        option.metavar = ""
    return option


app = typer.Typer(
    name="strandline",
    cls=_Group,
    help="Show, replay, check and maintain persistent streams.",
    epilog="Example: strandline inspect streams/items",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,  # frames are for eyes, not for pipes
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_show_locals=False,
)


def _version(value: bool) -> None:
    if value:
        from strandline.version import VERSION

        typer.echo(f"strandline {VERSION}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", metavar="", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def _add(command: Callable[..., None], example: str) -> None:
    app.command(cls=_Command, help=_unfolded(command.__doc__ or ""), epilog=f"Example: strandline {example}")(command)


def _unfolded(text: str) -> str:
    """Joins the lines of a source's paragraphs; typer would keep them beside the lines of the terminal."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


_add(demo, "demo availability")
_add(run, "run program.py --restart 10s")
_add(inspect, "inspect streams/items --watch 2")
_add(graph, "graph streams --svg streams.svg")
_add(tail, "tail streams/items -n 20 --follow")
_add(replay, 'replay streams/items --since "2026-01-31 12:00" --speed 10x')
_add(verify, "verify streams/items")
_add(backup, "backup streams/items backups/items")
_add(restore, "restore backups/items streams/items")
_add(compact, "compact streams/items --target-size 64MB")
_add(truncate, 'truncate streams/items --before "2026-01-01" --dry-run')
_add(consumers, "consumers streams/items --forget report")
_add(collect, 'collect streams/items --grace "2 h"')
_add(warm_up, "warm-up streams/average")
_add(bench, "bench persist --size small --json")
_add(papers, "papers cec-fig6 --out papers-run")


def main() -> None:
    """Runs the console script."""
    app()
