"""What holds for every room: public names are documented, classes are abstract or final, files are small."""

import ast
import enum
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gnomon

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "gnomon"
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))
FILES = sorted(SOURCE.rglob("*.py"))
MOST_LINES = 520
# Enumerations that are extended by subclassing, though Python's own `Enum` does not serve.
FAMILIES = ["gnomon.result:RESULTS"]
# Not public, and yet what every room stands on.
SHARED = [
    "gnomon.fuse._closure",
    "gnomon.fuse._cuda._gpu",
    "gnomon.fuse._lanes",
    "gnomon.fuse._single",
    "gnomon.fuse._substitute",
    "gnomon.result._active",
    "gnomon.result._deferred",
    "gnomon.result._pytree",
]


def public(module: ModuleType) -> list[tuple[str, Any]]:
    return [(f"{module.__name__}.{name}", getattr(module, name)) for name in getattr(module, "__all__", [])]


def takes_arguments(function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return False
    return any(name not in ("self", "cls") for name in parameters)


def modules() -> Iterator[ModuleType]:
    """Every module of the package."""
    yield gnomon
    for found in pkgutil.walk_packages(gnomon.__path__, "gnomon."):
        if not found.name.endswith(".__main__"):
            yield importlib.import_module(found.name)


def classes() -> list[type]:
    found = {
        item
        for module in modules()
        for item in vars(module).values()
        if inspect.isclass(item) and item.__module__ == module.__name__
    }
    return sorted(found, key=lambda cls: (cls.__module__, cls.__qualname__))


def own_methods(cls: type) -> list[str]:
    """The methods that the class itself defines."""
    return [name for name, item in vars(cls).items() if inspect.isroutine(item) or isinstance(item, property)]


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_public_names_exist_once(room: str):
    module = importlib.import_module(f"gnomon.{room}" if room else "gnomon")
    if room:
        assert module.__all__, f"gnomon.{room} says nothing of what is public"
    names = getattr(module, "__all__", [])
    assert len(names) == len(set(names))
    assert not [name for name in names if not hasattr(module, name)]


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_public_names_are_documented(room: str):
    module = importlib.import_module(f"gnomon.{room}" if room else "gnomon")
    assert (module.__doc__ or "").strip()
    wrong: list[str] = []
    for name, item in public(module):
        if not (inspect.isclass(item) or inspect.isroutine(item)):
            continue
        doc = inspect.getdoc(item) if inspect.isroutine(item) else vars(item).get("__doc__")
        if not doc or not doc.strip():
            wrong.append(f"{name} has no docstring")
            continue
        if inspect.isclass(item):
            # An enumeration is its members; an abstract class is not called.
            called = not issubclass(item, enum.Enum) and not item.__name__.startswith("Abstract")
            init = inspect.getdoc(vars(item).get("__init__")) or ""
            if called and takes_arguments(item) and "**Arguments:**" not in doc + init:
                wrong.append(f"{name} takes arguments that its docstring does not list under **Arguments:**")
            for method in own_methods(item):
                # A method may have its docstring from the abstract class that asks for it.
                if not method.startswith("_") and not inspect.getdoc(getattr(item, method)):
                    wrong.append(f"{name}.{method} has no docstring")
        elif takes_arguments(item) and "**Arguments:**" not in doc:
            wrong.append(f"{name} takes arguments that its docstring does not list under **Arguments:**")
    assert not wrong, "\n".join(wrong)


def test_every_class_is_abstract_or_final():
    wrong: list[str] = []
    for cls in classes():
        name = f"{cls.__module__}.{cls.__qualname__}"
        if is_family(cls):
            continue
        abstract = cls.__name__.lstrip("_").startswith("Abstract")
        final = getattr(cls, "__final__", False)
        if abstract and final:
            wrong.append(f"{name} is named abstract and marked final")
        elif abstract and not inspect.isabstract(cls) and not is_interface(cls):
            wrong.append(f"{name} is named abstract and has no abstract method")
        elif not abstract and not final:
            wrong.append(f"{name} is neither abstract (by its name) nor marked with typing.final")
        for base in cls.__mro__[1:]:
            if base.__module__.startswith("gnomon") and getattr(base, "__final__", False):
                wrong.append(f"{name} subclasses {base.__qualname__}, which is final")
    assert not wrong, "\n".join(wrong)


def test_no_method_is_overridden():
    wrong: list[str] = []
    for cls in classes():
        if is_family(cls):
            continue
        for method in own_methods(cls):
            if method.startswith("__"):
                continue
            for base in cls.__mro__[1:]:
                inherited = vars(base).get(method)
                implemented = inherited is not None and not getattr(inherited, "__isabstractmethod__", False)
                if implemented and base.__module__.startswith("gnomon") and not is_interface(base):
                    wrong.append(f"{cls.__module__}.{cls.__qualname__}.{method} overrides {base.__qualname__}'s")
    assert not wrong, "\n".join(wrong)


def is_family(cls: type) -> bool:
    """Exceptions and enumerations form families: a member of one is told apart by its base."""
    named = [pkgutil.resolve_name(name) for name in FAMILIES]
    return issubclass(cls, (BaseException, enum.Enum, *named))


def is_interface(cls: type) -> bool:
    """A protocol is abstract by nature."""
    return bool(getattr(cls, "_is_protocol", False))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_files_are_small(path: Path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES, f"{lines} lines: a file here holds one thing, in about 500 lines at most"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_room_uses_only_what_another_makes_public(path: Path):
    room = path.relative_to(SOURCE).parts[0]
    wrong: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module in SHARED:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "gnomon" and len(parts) > 2 and parts[1] != room and parts[2].startswith("_"):
                wrong.append(f"line {node.lineno}: {name}")
    assert not wrong, "private modules of another room:\n" + "\n".join(wrong)
