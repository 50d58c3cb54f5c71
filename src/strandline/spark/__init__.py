"""The only package that imports PySpark: entry point, reader, queries, session."""
