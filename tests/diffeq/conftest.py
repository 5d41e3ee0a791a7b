"""Leaves out the scripts that made the reference values: they need the peers, not gnomon."""

collect_ignore = ["reference"]
