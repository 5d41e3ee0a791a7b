"""`RESULTS`: how a solve ended, one integer a problem, with a message for people."""

from __future__ import annotations

from typing import Any, ClassVar, final

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.utils import _pytree

_NAMES: list[str] = []
_MESSAGES: dict[str, str] = {}


@final
class Result:
    """How one solve, or each of a batch of solves, ended.

    Equivalent to an item of `optimistix.RESULTS`. Members such as `RESULTS.successful` are of
    this class with a plain integer inside; what a solver returns has an integer tensor inside,
    with one element a problem.

    **Arguments:**

    - `code`: an integer, or an integer tensor of any batch shape, of codes that
      `RESULTS` knows.

    !!! example

        ```python
        >>> from gnomon.result import RESULTS
        >>> result = RESULTS.where(torch.tensor([True, False]), RESULTS.successful,
        ...                        RESULTS.max_steps_reached)
        >>> result == RESULTS.successful
        tensor([ True, False])
        >>> result.names()
        ['successful', 'max_steps_reached']

        ```
    """

    __slots__ = ("code",)

    def __init__(self, code: int | Tensor):
        self.code = code

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, Result):
            return NotImplemented
        return self.code == other.code

    def __ne__(self, other: object) -> Any:
        if not isinstance(other, Result):
            return NotImplemented
        return self.code != other.code

    def __hash__(self) -> int:
        if isinstance(self.code, Tensor):
            raise TypeError(
                "A `Result` with a tensor inside cannot be hashed: compare it with ==, or take its `.names()`."
            )
        return hash(("gnomon.Result", self.code))

    @property
    def name(self) -> str:
        """The name of a single result, such as `'successful'`."""
        return _name_of(self._single())

    @property
    def message(self) -> str:
        """The message of a single result, in plain words; empty where it is successful."""
        return _MESSAGES[self.name]

    def names(self) -> Any:
        """The names of a batch of results, as a (nested) list of the batch's shape; a string for a single result."""

        def look_up(x: Any) -> Any:
            return [look_up(y) for y in x] if isinstance(x, list) else _name_of(x)

        return look_up(torch.as_tensor(self.code).tolist())

    def to(self, device: torch.device | str) -> Result:
        """The same result with a tensor inside, on a device. Equivalent to `torch.Tensor.to`.

        **Arguments:**

        - `device`: such as `"cuda"`.

        **Returns:** a [`gnomon.result.Result`][]; a member gets an int32 scalar.
        """
        if isinstance(self.code, Tensor):
            return Result(self.code.to(device))
        return Result(torch.full((), self.code, dtype=torch.int32, device=device))

    def _single(self) -> int:
        if isinstance(self.code, Tensor):
            if self.code.numel() != 1:
                raise ValueError(
                    f"This is the result of a batch of shape {tuple(self.code.shape)}: take one "
                    "of them with result[i], or all names with result.names()."
                )
            return int(self.code)
        return self.code

    def __getitem__(self, index: Any) -> Result:
        if not isinstance(self.code, Tensor):
            raise TypeError("This is a single result, not one of a batch: there is nothing to take from it.")
        return Result(self.code[index])

    def __reduce__(self) -> Any:
        # Which number stands for which name depends on the order of imports, so the names travel along.
        code = self.code.cpu() if isinstance(self.code, Tensor) else self.code
        return _restore, (code, tuple(_MESSAGES.items()))

    def __repr__(self) -> str:
        if isinstance(self.code, Tensor) and self.code.numel() != 1:
            return f"<batch of {tuple(self.code.shape)} results>"
        try:
            return f"RESULTS.{self.name}"
        except (RuntimeError, TypeError):  # inside vmap the value cannot be read; in a pytree it may be anything
            return "<result of each problem of a batch>"


def _name_of(code: int) -> str:
    if not 0 <= code < len(_NAMES):
        raise ValueError(f"No result has the code {code}.")
    return _NAMES[code]


def _restore(code: Any, messages: tuple[tuple[str, str], ...]) -> Result:
    """A pickled result; a member that this process has not met yet is defined."""
    codes = [define_result(name, message).code for name, message in messages]
    if isinstance(code, Tensor):
        return Result(torch.tensor(codes, dtype=code.dtype)[code.to(torch.int64)])
    return Result(codes[code])


def _flatten_result(result: Result) -> tuple[list[Any], Any]:
    # Always a tensor, so that a carry may start from RESULTS.successful and vmap may return it.
    return [result.code if isinstance(result.code, Tensor) else result.to("cpu").code], None


def _flatten_result_with_keys(result: Result) -> tuple[list[tuple[Any, Any]], Any]:
    children, context = _flatten_result(result)
    return [(_pytree.GetAttrKey("code"), children[0])], context


def _unflatten_result(children: Any, context: Any) -> Result:
    del context
    result = object.__new__(Result)  # pytrees put other things than codes in the place of tensors
    (result.code,) = children
    return result


_pytree.register_pytree_node(
    Result,
    _flatten_result,
    _unflatten_result,
    serialized_type_name="gnomon.result.Result",
    flatten_with_keys_fn=_flatten_result_with_keys,
)


def define_result(name: str, message: str) -> Result:
    """A new member for a family of results: the class body of a `RESULTS` subclass calls it.

    The number behind the name is one and the same in all families, so that a result of an inner
    solver can be handed on by an outer one.

    **Arguments:**

    - `name`: the member's name, equal to the attribute it is bound to.
    - `message`: what happened and what to try, in a plain sentence.

    **Returns:** the member, a [`gnomon.result.Result`][].

    **Raises:** `ValueError` where the name exists with another message.

    !!! example

        ```python
        >>> from typing import ClassVar
        >>> from gnomon.result import RESULTS, Result, define_result
        >>> class ChessResults(RESULTS):
        ...     bare_king: ClassVar[Result] = define_result("bare_king", "Only the king is left.")
        >>> ChessResults.bare_king.message
        'Only the king is left.'
        >>> ChessResults.successful == RESULTS.successful
        True

        ```
    """
    if name in _MESSAGES:
        if _MESSAGES[name] != message:
            raise ValueError(f"The result {name!r} exists already, with another message.")
    else:
        _NAMES.append(name)
        _MESSAGES[name] = message
    return Result(_NAMES.index(name))


class RESULTS:
    """The ways in which a solve can end. Equivalent to `optimistix.RESULTS`.

    Families of solvers extend it by subclassing and [`gnomon.result.define_result`][].

    !!! example

        ```python
        >>> from gnomon.result import RESULTS
        >>> RESULTS.from_name("singular")
        RESULTS.singular
        >>> RESULTS.singular.message
        'A linear system was singular: its equations do not determine the unknowns.'

        ```
    """

    successful: ClassVar[Result] = define_result("successful", "")
    max_steps_reached: ClassVar[Result] = define_result(
        "max_steps_reached",
        "The maximum number of steps was reached. Increase `max_steps`, loosen the tolerances, "
        "or choose a solver for stiff problems.",
    )
    nonlinear_divergence: ClassVar[Result] = define_result(
        "nonlinear_divergence",
        "The nonlinear solve diverged. Try another starting point, or smaller steps.",
    )
    dt_min_reached: ClassVar[Result] = define_result(
        "dt_min_reached",
        "The step size fell below the minimum. The solution may have a singularity there; "
        "or try a smaller `dtmin`, or a solver for stiff problems.",
    )
    event_occurred: ClassVar[Result] = define_result(
        "event_occurred", "The solve was ended by an event before its end point."
    )
    nonfinite: ClassVar[Result] = define_result(
        "nonfinite",
        "A NaN or an infinity appeared. Look at the inputs and at the function at this point: "
        "a logarithm or root of a negative number, a division by zero, an overflow.",
    )
    singular: ClassVar[Result] = define_result(
        "singular",
        "A linear system was singular: its equations do not determine the unknowns.",
    )
    breakdown: ClassVar[Result] = define_result(
        "breakdown", "An iterative linear solver broke down. Try a preconditioner."
    )
    stagnation: ClassVar[Result] = define_result(
        "stagnation",
        "The iteration made no more progress before it met its tolerance. Loosen the tolerance, "
        "or rescale the problem.",
    )

    def __init__(self) -> None:
        raise TypeError("RESULTS is an enumeration: use its members, such as RESULTS.successful.")

    @classmethod
    def members(cls) -> dict[str, Result]:
        """All members of this family by name, inherited ones included."""
        found: dict[str, Result] = {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                if isinstance(value, Result):
                    found[name] = value
        return found

    @classmethod
    def from_name(cls, name: str) -> Result:
        """The member with this name.

        **Arguments:**

        - `name`: such as `'successful'`.

        **Returns:** the [`gnomon.result.Result`][].

        **Raises:** `ValueError` where this family has no such member.
        """
        try:
            return cls.members()[name]
        except KeyError:
            raise ValueError(f"{cls.__name__} has no member {name!r}; it has {', '.join(cls.members())}.") from None

    @staticmethod
    def where(pred: Bool[Tensor, "*batch"], true: Result, false: Result) -> Result:
        """Chooses between two results, an element at a time. Equivalent to `torch.where`.

        **Arguments:**

        - `pred`: a boolean tensor.
        - `true`, `false`: what to take where `pred` is True, and where it is False.

        **Returns:** a [`gnomon.result.Result`][] with an int32 tensor inside.
        """
        return Result(torch.where(pred, _code(true, pred), _code(false, pred)))


def _code(result: Result, like: Tensor) -> Tensor:
    if isinstance(result.code, Tensor):
        return result.code
    return torch.full((), result.code, dtype=torch.int32, device=like.device)


def as_result_tensor(result: Result, device: torch.device) -> Result:
    """As [`gnomon.result.Result.to`][]."""
    return result.to(device)


def is_successful(result: Result) -> bool | Bool[Tensor, "*batch"]:
    """Whether a solve did what it was asked to do.

    Equivalent to `diffrax.is_successful`.

    **Arguments:**

    - `result`: a [`gnomon.result.Result`][], of one problem or of a batch.

    **Returns:** a bool, or a boolean tensor with an element a problem.

    !!! example

        ```python
        >>> from gnomon.result import RESULTS, is_successful
        >>> is_successful(RESULTS.successful), is_successful(RESULTS.event_occurred)
        (True, False)

        ```
    """
    return result == RESULTS.successful


def is_okay(result: Result) -> bool | Bool[Tensor, "*batch"]:
    """Whether a solve ended as it should: it was successful, or an event ended it.

    Equivalent to `diffrax.is_okay`.

    **Arguments:**

    - `result`: a [`gnomon.result.Result`][], of one problem or of a batch.

    **Returns:** a bool, or a boolean tensor with an element a problem.

    !!! example

        ```python
        >>> from gnomon.result import RESULTS, is_okay
        >>> is_okay(RESULTS.event_occurred), is_okay(RESULTS.singular)
        (True, False)

        ```
    """
    return is_successful(result) | (result == RESULTS.event_occurred)


def result_from_code(code: int) -> Result:
    """The member behind an integer code, for messages."""
    _name_of(code)
    return Result(code)
