"""Reading streams with Spark and Arrow."""
