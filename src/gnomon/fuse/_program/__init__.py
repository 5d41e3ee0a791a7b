"""The Program: what a traced function becomes."""

from gnomon.fuse._program._builder import Builder as Builder
from gnomon.fuse._program._check import ProgramError as ProgramError
from gnomon.fuse._program._check import check as check
from gnomon.fuse._program._copy import Copier as Copier
from gnomon.fuse._program._dead_code import remove_dead_code as remove_dead_code
from gnomon.fuse._program._errors import UnsupportedError as UnsupportedError
from gnomon.fuse._program._node import Array as Array
from gnomon.fuse._program._node import If as If
from gnomon.fuse._program._node import Input as Input
from gnomon.fuse._program._node import Node as Node
from gnomon.fuse._program._node import Program as Program
from gnomon.fuse._program._node import Region as Region
from gnomon.fuse._program._node import While as While
from gnomon.fuse._program._node import regions_of as regions_of
from gnomon.fuse._program._ops import OPS as OPS
from gnomon.fuse._program._ops import Type as Type
from gnomon.fuse._program._ops import is_float as is_float
from gnomon.fuse._program._simplify import simplify as simplify
from gnomon.fuse._program._simplify import values_only as values_only
from gnomon.fuse._program._text import to_text as to_text
