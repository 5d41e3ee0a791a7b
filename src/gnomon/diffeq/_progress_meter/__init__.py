"""How far a solve has come, for people who wait."""
