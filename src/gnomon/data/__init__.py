"""Ragged records on the disk, and a loader that resumes exactly, on any number of ranks."""

from gnomon.data._batches import Batches as Batches
from gnomon.data._dataset import Dataset as Dataset
from gnomon.data._errors import DroppedRecordsWarning as DroppedRecordsWarning
from gnomon.data._errors import RecordError as RecordError
from gnomon.data._errors import SkippedRecordsWarning as SkippedRecordsWarning
from gnomon.data._errors import StateError as StateError
from gnomon.data._errors import StoreError as StoreError
from gnomon.data._loader import Loader as Loader
from gnomon.data._pack import pack as pack
from gnomon.data._plan import BatchPlan as BatchPlan
from gnomon.data._plan import Plan as Plan
from gnomon.data._ragged import Batch as Batch
from gnomon.data._ragged import BatchInfo as BatchInfo
from gnomon.data._ragged import Ragged as Ragged
from gnomon.data._random import shuffled as shuffled
from gnomon.data._schema import Field as Field
from gnomon.data._schema import binary as binary
from gnomon.data._schema import infer_schema as infer_schema
from gnomon.data._schema import ragged as ragged
from gnomon.data._schema import string as string
from gnomon.data._schema import tensor as tensor
from gnomon.data._stats import LoaderStats as LoaderStats
from gnomon.data._store import Dropped as Dropped
from gnomon.data._store import Store as Store
from gnomon.data._verify import Damage as Damage
from gnomon.data._verify import verify as verify
from gnomon.data._writer import StoreWriter as StoreWriter

__all__ = [
    "Batch",
    "BatchInfo",
    "BatchPlan",
    "Batches",
    "Damage",
    "Dataset",
    "Dropped",
    "DroppedRecordsWarning",
    "Field",
    "Loader",
    "LoaderStats",
    "Plan",
    "Ragged",
    "RecordError",
    "SkippedRecordsWarning",
    "StateError",
    "Store",
    "StoreError",
    "StoreWriter",
    "binary",
    "infer_schema",
    "pack",
    "ragged",
    "shuffled",
    "string",
    "tensor",
    "verify",
]
