"""`strandline demo`: an operator that is killed and recovers, and one whose input falls silent, with their pictures."""
