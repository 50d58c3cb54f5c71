"""What is written into Spark's checkpoint, file by file, without Spark. Kafka stands for any source with offsets."""

import json

import pytest

from strandline.errors import SparkCheckpointError
from strandline.log.stream.append_commit import Append
from strandline.log.stream.log import Log
from strandline.log.stream.manifest import Writer
from strandline.spark.entry.spark_checkpoint import SourcePlan, SparkCheckpoint
from strandline.testing import Crash, MemoryStorage
from tests.support.items import item_spec

KAFKA = SourcePlan(("kafka", "kafka"), stateful=False)
FILES = {
    "sources/0/0": '\0v1\n{"clicks":{"0":0,"1":0}}',
    "sources/1/0": '\0v1\n{"orders":{"0":100}}',
}


def offsets(batch):
    """What Spark writes before the batch runs: how far it will have read each topic."""
    ends = [{"clicks": {"0": 10 * batch, "1": 7 * batch}}, {"orders": {"0": 100 + batch}}]
    return [json.dumps(end, separators=(",", ":")) for end in ends]


def offsets_file(batch):
    metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000 + batch, "conf": {"some": "setting"}}
    return "\n".join(["v1", json.dumps(metadata), *offsets(batch)])


COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


class Brittle(MemoryStorage):
    """Dies before the n-th change."""

    def __init__(self) -> None:
        super().__init__()
        self.changes_left = 1 << 30

    def _change(self) -> None:
        if self.changes_left == 0:
            raise Crash
        self.changes_left -= 1

    def put(self, key: str, data: bytes) -> None:
        self._change()
        super().put(key, data)

    def delete(self, key: str) -> None:
        if self.exists(key):
            self._change()
        super().delete(key)


@pytest.fixture
def checkpoint():
    """Spark's folder after batch 5, of which batch 6 is planned."""
    storage = Brittle()
    for batch in range(7):
        storage.put(f"offsets/{batch}", offsets_file(batch).encode())
        if batch < 6:
            storage.put(f"commits/{batch}", COMMIT.encode())
    storage.put("metadata", b'{"id":"our query"}')
    for key, text in FILES.items():
        storage.put(key, text.encode())
    return storage


@pytest.fixture
def log(checkpoint):
    """A stream into which batches 0 to 5 were published."""
    log = Log.create(MemoryStorage(), item_spec())
    for batch in range(6):
        publish(log, checkpoint, batch)
    return log


def publish(log, checkpoint, batch):
    source = SparkCheckpoint(checkpoint, KAFKA).source(batch)
    log.append(Append(writer=Writer("our query", "a run", batch), source=source))


def files(storage):
    return {listed.key: storage.read(listed.key).decode() for listed in storage.list("")}


def where_spark_goes_on(storage):
    """As Spark does: the next batch, and its offsets if they are planned already."""
    found = files(storage)
    planned = max((int(k.split("/")[1]) for k in found if k.startswith("offsets/")), default=-1)
    done = max((int(k.split("/")[1]) for k in found if k.startswith("commits/")), default=-1)
    assert planned - done in (0, 1), "Spark would refuse this"
    assert planned < 1 or f"offsets/{planned - 1}" in found, "Spark wants the batch before the last one"
    read_so_far = found[f"offsets/{done}"].splitlines()[2:] if done >= 0 else None
    return done + 1, read_so_far


def test_a_manifest_keeps_what_spark_wrote_about_the_batch(log):
    assert log.state.source == {"sources": ["kafka", "kafka"], "version": "v1", "offsets": offsets(5), "files": FILES}


def test_nothing_is_touched_when_both_agree(log, checkpoint):
    before = files(checkpoint)
    assert SparkCheckpoint(checkpoint, KAFKA).reconcile(log) is None
    assert files(checkpoint) == before


def test_a_lost_checkpoint_is_written_from_the_manifests(log):
    empty = MemoryStorage()
    assert "up to batch 5" in SparkCheckpoint(empty, KAFKA).reconcile(log)
    found = files(empty)
    assert found.pop("metadata") == '{"id": "our query"}'
    assert {k: text.splitlines()[2:] for k, text in found.items() if k.startswith("offsets/")} == {
        "offsets/4": offsets(4),
        "offsets/5": offsets(5),
    }
    assert found["commits/5"] == COMMIT
    assert {k: found[k] for k in FILES} == FILES
    assert where_spark_goes_on(empty) == (6, offsets(5))
    assert SparkCheckpoint(empty, KAFKA).reconcile(log) is None, "the second start finds nothing to do"


def test_a_new_stream_does_not_begin_with_the_checkpoint_of_another(log, checkpoint):
    for _ in range(2):
        SparkCheckpoint(checkpoint, KAFKA).claim(log)
    new = Log.create(MemoryStorage(), item_spec(name="new"))
    with pytest.raises(SparkCheckpointError, match="belongs to another stream") as refused:
        SparkCheckpoint(checkpoint, KAFKA).claim(new)
    assert "spark_checkpoint_dir of its own" in refused.value.todo
    assert SparkCheckpoint(checkpoint, KAFKA).reconcile(log) is None
    publish(new, checkpoint, 0)  # by a query of before that nobody had noted
    SparkCheckpoint(checkpoint, KAFKA).claim(new)


def test_a_batch_that_was_published_counts_as_done(log, checkpoint):
    publish(log, checkpoint, 6)
    assert SparkCheckpoint(checkpoint, KAFKA).reconcile(log) is None
    assert where_spark_goes_on(checkpoint) == (7, offsets(6))


def test_the_first_batch_of_all(checkpoint):
    for key in list(files(checkpoint)):
        if key not in ("offsets/0", "metadata", *FILES):
            checkpoint.delete(key)
    log = Log.create(MemoryStorage(), item_spec())
    assert SparkCheckpoint(checkpoint, KAFKA).reconcile(log) is None
    assert where_spark_goes_on(checkpoint) == (0, None)
    publish(log, checkpoint, 0)
    assert SparkCheckpoint(checkpoint, KAFKA).reconcile(log) is None
    assert where_spark_goes_on(checkpoint) == (1, offsets(0))


def test_a_stream_that_lost_batches_takes_spark_with_it(checkpoint):
    older = Log.create(MemoryStorage(), item_spec())
    for batch in range(3):
        publish(older, checkpoint, batch)
    assert "back to batch 2" in SparkCheckpoint(checkpoint, KAFKA).reconcile(older)
    assert where_spark_goes_on(checkpoint) == (3, offsets(2))
    assert files(checkpoint)["offsets/3"] == offsets_file(3), "the next batch keeps its offsets"


def test_checksums_of_hadoop_do_not_outlive_their_files(log, checkpoint):
    for key in ("offsets/.5.crc", "offsets/.4.crc", "commits/.5.crc", ".metadata.crc"):
        checkpoint.put(key, b"crc")
    checkpoint.delete("offsets/5")
    SparkCheckpoint(checkpoint, KAFKA).reconcile(log)
    assert [key for key in files(checkpoint) if key.endswith(".crc")] == []


def tear(key):
    return lambda storage: storage.put(key, storage.read(key)[:20])


def lose(*keys):
    return lambda storage: [storage.delete(key) for key in keys]


def take_anothers(storage):
    storage.put("metadata", b'{"id":"another query"}')
    storage.put("offsets/9", offsets_file(9).encode())
    storage.put("commits/8", COMMIT.encode())


DAMAGES = {
    "nothing": lambda storage: None,
    "no metadata": lose("metadata"),
    "torn offsets": tear("offsets/5"),
    "torn offsets of the batch before": tear("offsets/4"),
    "torn plan": tear("offsets/6"),
    "torn commit": tear("commits/5"),
    "no commit": lose("commits/5"),
    "no commits": lose(*[f"commits/{b}" for b in range(6)]),
    "no sources": lose(*FILES),
    "torn source": tear("sources/0/0"),
    "stale": lose("offsets/4", "offsets/5", "offsets/6", "commits/3", "commits/4", "commits/5"),
    "another's": take_anothers,
    "other offsets": lambda storage: storage.put("offsets/5", offsets_file(4).encode()),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_spark_goes_on_after_the_last_published_batch_wherever_mending_was_interrupted(damage, log, checkpoint):
    damage(checkpoint)
    before = files(checkpoint)
    for crash_after in range(40):
        for key in files(checkpoint).keys() - before.keys():
            checkpoint.delete(key)
        for key, text in before.items():
            checkpoint.put(key, text.encode())
        checkpoint.changes_left = crash_after
        try:
            SparkCheckpoint(checkpoint, KAFKA).reconcile(log)
            done = True
        except Crash:
            done = False
        checkpoint.changes_left = 1 << 30
        SparkCheckpoint(checkpoint, KAFKA).reconcile(log)
        assert where_spark_goes_on(checkpoint) == (6, offsets(5)), f"after a crash before change {crash_after}"
        assert {k: files(checkpoint)[k] for k in FILES} == FILES
        assert json.loads(files(checkpoint)["metadata"]) == {"id": "our query"}
        if done:
            return
    pytest.fail("mending never ended")


REFUSED = [
    (SourcePlan(("kafka", "kafka"), stateful=True), "a stateful operator"),
    (SourcePlan(("FileSource[in]",), stateful=False), "written from kafka, kafka, this query reads FileSource"),
    (SourcePlan(("rate",), stateful=False), "written from kafka, kafka, this query reads rate"),
    (SourcePlan(("kafka",), stateful=False), "written from kafka, kafka, this query reads kafka"),
]


@pytest.mark.parametrize(("plan", "reason"), REFUSED, ids=[str(row[0]) for row in REFUSED])
def test_a_lost_checkpoint_is_not_rebuilt_for_another_plan(plan, reason, log):
    empty = MemoryStorage()
    with pytest.raises(SparkCheckpointError, match=reason) as raised:
        SparkCheckpoint(empty, plan).reconcile(log)
    assert "restore" in raised.value.todo
    assert files(empty) == {}


def test_an_empty_stream_does_not_take_over_a_checkpoint_without_its_beginning(checkpoint):
    lose("offsets/0", "offsets/1")(checkpoint)
    log = Log.create(MemoryStorage(), item_spec())
    before = files(checkpoint)
    with pytest.raises(SparkCheckpointError, match="the stream is empty, but Spark's checkpoint is at batch 6"):
        SparkCheckpoint(checkpoint, KAFKA).reconcile(log)
    assert files(checkpoint) == before
