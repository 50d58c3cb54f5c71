"""Functions of users: their identity, what they refer to, their compiled form."""
