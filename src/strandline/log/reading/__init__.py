"""Reading a stream as tables: results, bounds, merged partitions, summaries."""
