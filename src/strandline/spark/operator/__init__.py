"""Operators in Spark: the driver's job, the tasks, their places, housekeeping."""
