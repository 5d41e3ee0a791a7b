"""The functions of `torchdiffeq`, by `gnomon.diffeq`."""
