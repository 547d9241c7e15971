"""A module that a worker cannot import."""

raise LookupError("the gold file is missing")
