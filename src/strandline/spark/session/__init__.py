"""The Spark session, places of streams, and what the workers' Python needs."""
