"""The elements of a pipeline and the streams between them, in an order in which each follows its inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from strandline.errors import OptionError
from strandline.log.storage.redaction import redacted_url
from strandline.running.oldest_waiting import Passage
from strandline.spark.describe.operator_description import OperatorDescription
from strandline.spark.describe.stage import ReplicatedStage, Stage
from strandline.spark.entry.entry import Entry
from strandline.spark.operator.processing_element import Upstream
from strandline.spark.session.place import Place
from strandline.supervision import Copy

Element = Entry | Stage
"""An element of a pipeline: it writes one stream."""


@dataclass(frozen=True, slots=True)
class Network:
    """The elements by the addresses of the streams that they write. Each comes behind the elements that it reads."""

    elements: Mapping[str, Element]
    reads: Mapping[str, tuple[str, ...]]
    """The streams that each element reads, of this pipeline and others."""
    places: Mapping[str, Place]
    """The places of all streams that elements read, by address."""
    finished: frozenset[str] = frozenset()
    """The streams of elements that were left out, because nothing can be added to them."""

    @classmethod
    def of(cls, wanted: Sequence[Any]) -> Network:
        """Returns the elements and all that they are made of; raises if they cannot run together."""
        found: dict[str, Element] = {}
        for element in wanted:
            _collect(_required(element), found)
        streams = {
            url: [place for input_ in _inputs_of(element) for place in input_._input_places]
            for url, element in found.items()
        }
        reads = {url: tuple(place.url for place in places) for url, places in streams.items()}
        order = _ordered(found, reads)
        places = {place.url: place for own in streams.values() for place in own}
        return cls({url: found[url] for url in order}, reads, places)

    @property
    def stages(self) -> dict[str, Stage]:
        """The operators, in order."""
        return {url: element for url, element in self.elements.items() if isinstance(element, Stage)}

    @property
    def others(self) -> list[str]:
        """The streams that elements read and that this pipeline does not write, in order."""
        known = (url for element in self.elements for url in self.reads[element])
        return [url for url in dict.fromkeys(known) if url not in self.elements]

    @property
    def awaited(self) -> list[str]:
        """The streams of `others` on which the end of this pipeline depends: not a replica of an element's output."""
        replicated = [element for element in self.elements.values() if isinstance(element, ReplicatedStage)]
        replicas = {place.url for element in replicated for place in element.places}
        return [url for url in self.others if url not in replicas]

    def of_copy(self, copy: Copy | None) -> Network:
        """Returns the elements that a copy of the program runs: the first one all, the others those with replicas."""
        if copy is None or copy.writes_all:
            return self
        own = {url: element for url, element in self.elements.items() if isinstance(element, ReplicatedStage)}
        if not own:
            raise OptionError(
                f"this is copy {copy.number} of {copy.of} of the program, and no element of the pipeline has replicas",
                where=", ".join(map(redacted_url, self.elements)),
                todo="mark the elements that every copy runs: .into(path).replicated()",
            )
        return replace(self, elements=own)

    def without(self, finished: Collection[str]) -> Network:
        """Returns the elements but for those whose streams are finished: they are only read."""
        left = {url: one for url, one in self.elements.items() if url not in finished}
        return replace(self, elements=left, finished=self.finished | frozenset(finished))

    def require_finished_by_others(self) -> None:
        """Raises `OptionError` if the end of this pipeline depends on a stream that others have not finished."""
        for url in self.awaited:
            if not self.places[url].open().state.finished:
                raise OptionError(
                    "the pipeline cannot be finished: it reads a stream of another program, which has not finished it",
                    where=redacted_url(url),
                    todo="finish that stream in the program that writes it, or stop the pipeline: run.stop()",
                )

    def written_for(self, url: str) -> str:
        """Returns the address that is written for one that the program names: that of the replica of this copy."""
        for own, element in self.elements.items():
            if isinstance(element, ReplicatedStage) and element.asked.url == url:
                return own
        return url

    def behind(self, url: str, but: Set[str] = frozenset()) -> list[str]:
        """Returns the elements that need the results of this one, directly or not, in order.

        Those of `but` do not need any of their inputs, nor does what only they stand between.
        """
        found = {url}
        for other, inputs in ((one, self.reads[one]) for one in self.elements):
            if other not in but and found.intersection(inputs):
                found.add(other)
        return [one for one in self.elements if one in found and one != url]

    @property
    def passages(self) -> list[Passage]:
        """The operators as tuples pass them, in order; without those whose results have no times of the inputs."""
        found = []
        for url, stage in self.stages.items():
            definition = stage.operator.definition
            if definition.keeps_time:
                found.append(Passage(url, self.reads[url], partial(definition.result_boundary, input_end=0)))
        return found

    def longest_path(self, url: str) -> int:
        """Returns how many operators the longest path through this one has."""
        before, after = dict[str, int](), dict[str, int]()
        for one in self.stages:
            before[one] = 1 + max((before.get(read, 0) for read in self.reads[one]), default=0)
        for one in reversed(self.stages):
            behind = [other for other in self.stages if one in self.reads[other]]
            after[one] = 1 + max((after[other] for other in behind), default=0)
        return before[url] + after[url] - 1


def _required(element: Any) -> Element:
    if isinstance(element, Entry | Stage):
        return element
    if isinstance(element, OperatorDescription):
        raise OptionError(
            f"{element!r} has no output, and an element of a pipeline needs one",
            todo='give it an output: .into("streams/…")',
        )
    todo = "pass what sl.source(…), sl.persist(…) or .into(path) return"
    if isinstance(element, list | tuple | set):
        raise OptionError(
            f"sl.pipeline takes elements one by one, and this is a {type(element).__name__} of {len(element)}",
            todo=f"{todo}, one by one: sl.pipeline(a, b)",
        )
    raise OptionError(
        f"a pipeline is made of elements that write a stream, and {element!r} writes none",
        todo=todo,
    )


def _collect(element: Element, found: dict[str, Element]) -> None:
    """Adds an element, and those that it is made of, to the elements by address."""
    url = element._input_place.url
    if (known := found.get(url)) is not None:
        if known is not element:
            raise OptionError(
                "two elements of the pipeline write into the same stream",
                where=redacted_url(url),
                todo="give each a path of its own; to use one element twice, keep it in a variable",
            )
        return
    for other in found:
        if f"{url}/".startswith(f"{other}/") or f"{other}/".startswith(f"{url}/"):
            raise OptionError(
                "one element of the pipeline would write into the folder of another one's stream",
                where=", ".join(map(redacted_url, (other, url))),
                todo="give each a folder of its own, beside the other",
            )
    found[url] = element
    for input_ in _inputs_of(element):
        if isinstance(input_, Entry | Stage):
            _collect(input_, found)


def _inputs_of(element: Element) -> Sequence[Upstream]:
    return element.operator.inputs if isinstance(element, Stage) else ()


def _ordered(elements: Mapping[str, Element], reads: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the addresses, sources first, else as given; raises if elements read each other's results in a circle."""
    order: list[str] = []
    left = sorted(elements, key=lambda url: isinstance(elements[url], Stage))
    while left:
        ready = [url for url in left if not any(read in left for read in reads[url])]
        if not ready:
            raise OptionError(
                "the elements read each other's results in a circle",
                where=" -> ".join(map(redacted_url, _circle(left, reads))),
                todo="remove one of these inputs: each element would wait for the other",
            )
        order += ready
        left = [url for url in left if url not in ready]
    return order


def _circle(left: Sequence[str], reads: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns a circle among elements of which each reads another one, in the direction in which tuples go."""
    walk = [left[0]]
    while (before := next(read for read in reads[walk[-1]] if read in left)) not in walk:
        walk.append(before)
    return [*walk[walk.index(before) :], before][::-1]
