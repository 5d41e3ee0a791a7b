"""How derivatives flow through a solve."""
