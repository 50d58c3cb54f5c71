"""The figures and tables of the four papers, measured again: `strandline papers`."""
