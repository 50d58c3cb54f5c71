"""The stream of another element of the same pipeline, as an operator takes it in."""

from __future__ import annotations

from strandline.log.stream.spec import StreamSpec
from strandline.spark.describe.operator_input import OperatorInput
from strandline.spark.entry.entry import Entry
from strandline.spark.session.place import Place


class WrittenInput(OperatorInput):
    """The stream of an entry point that has a run of its own: an operator follows it as it follows any stream."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry

    def __repr__(self) -> str:
        return repr(self._entry)

    @property
    def _input_spec(self) -> StreamSpec:
        """The specification of the stream."""
        return self._entry._input_spec

    @property
    def _input_place(self) -> Place:
        """The address of the stream."""
        return self._entry._input_place
