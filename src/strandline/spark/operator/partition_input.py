"""One partition of a stream as an input of its own: an operator with another key takes in each of them."""

from __future__ import annotations

from dataclasses import replace

from strandline.log.operator_state.upstream import Origin
from strandline.log.stream.log import Log
from strandline.log.stream.partition_view import PartitionView
from strandline.log.stream.spec import StreamSpec
from strandline.spark.operator.processing_element import Upstream
from strandline.spark.session.place import PartitionPlace


class PartitionInput(Upstream):
    """An input that shows each partition of an operator the same partition of a stream."""

    def __init__(self, whole: Upstream, number: int, readers: int) -> None:
        """Takes the stream, or the element that writes it, the partition, and how many partitions the operator has."""
        self.number = number
        self._whole = whole
        self._readers = readers
        at, of = whole._input_place, whole._input_spec.partitions
        self._input_place = PartitionPlace(at.url, at.durability, at.options, at.limit_s, number, of, readers)

    def __repr__(self) -> str:
        return f"partition {self.number} of {self._whole!r}"

    @property
    def _input_spec(self) -> StreamSpec:
        """The specification of the stream, with the partitions of the operator."""
        return replace(self._whole._input_spec, partitions=self._readers)

    @property
    def _whole_input(self) -> Upstream:
        """The stream of which this is a partition."""
        return self._whole

    def _origin(self, stream: str) -> Origin:
        """Returns the entry of stream.json for this partition of the stream with this id."""
        return Origin(stream, self._input_place.url, partition=self.number)

    def _opened_input(self, limit_s: float | None = None) -> Log:
        """Opens the stream, see `Place.within`, and shows the partition."""
        return self.view_of(self._whole._opened_input(limit_s))

    def view_of(self, log: Log) -> Log:
        """Returns a view of the partition on this handle."""
        return PartitionView(log, self.number, self._readers)


def partitions_of(whole: Upstream, readers: int) -> tuple[PartitionInput, ...]:
    """Returns each partition of a stream as an input, for an operator with so many partitions."""
    return tuple(PartitionInput(whole, number, readers) for number in range(whole._input_spec.partitions))
