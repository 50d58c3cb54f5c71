"""The parts of commits that concern operators: standings, inputs, losses, outages."""
