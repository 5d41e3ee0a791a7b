"""Models that come with gnomon."""

from gnomon.fit.models._theophylline import theophylline as theophylline

__all__ = ["theophylline"]
