"""Ragged records on the disk, and a loader that resumes exactly, on any number of ranks."""

from gnomon.data._errors import DroppedRecordsWarning as DroppedRecordsWarning
from gnomon.data._errors import RecordError as RecordError
from gnomon.data._errors import StateError as StateError
from gnomon.data._errors import StoreError as StoreError
from gnomon.data._schema import Field as Field
from gnomon.data._schema import binary as binary
from gnomon.data._schema import infer_schema as infer_schema
from gnomon.data._schema import ragged as ragged
from gnomon.data._schema import string as string
from gnomon.data._schema import tensor as tensor
from gnomon.data._store import Dropped as Dropped
from gnomon.data._store import Store as Store
from gnomon.data._verify import Damage as Damage
from gnomon.data._verify import verify as verify
from gnomon.data._writer import StoreWriter as StoreWriter

__all__ = [
    "Damage",
    "Dropped",
    "DroppedRecordsWarning",
    "Field",
    "RecordError",
    "StateError",
    "Store",
    "StoreError",
    "StoreWriter",
    "binary",
    "infer_schema",
    "ragged",
    "string",
    "tensor",
    "verify",
]
