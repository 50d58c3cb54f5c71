"""Entry points: batches of a Spark query become blocks of a stream."""
