"""Plain-Python twins of the operators: what compiled code is compared with."""
