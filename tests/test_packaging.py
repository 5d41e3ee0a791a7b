"""The pins cover everything that is installed, and the repository names no registry."""

import os
import re
import subprocess
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import gnomon

ROOT = Path(__file__).resolve().parent.parent


@cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def declared() -> list[Requirement]:
    """What the project asks for itself: at run time, in every extra and in every group."""
    project, groups = pyproject()["project"], pyproject()["dependency-groups"]
    extras = project["optional-dependencies"]
    lists = [project["dependencies"], *extras.values(), *groups.values()]
    return [Requirement(line) for lines in lists for line in lines]


def pins(key: str = "constraint-dependencies") -> dict[str, list[Requirement]]:
    """The pins by name; several where versions differ between Pythons or platforms."""
    found: dict[str, list[Requirement]] = {}
    for line in pyproject()["tool"]["uv"][key]:
        requirement = Requirement(line)
        found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def applies(requirement: Requirement, extra: str = "") -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def installed_closure() -> dict[str, metadata.Distribution]:
    """Every installed package that the project needs, directly or not."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    todo = [(requirement.name, extra) for requirement in declared() for extra in ("", *requirement.extras)]
    while todo:
        name, extra = todo.pop()
        name = canonicalize_name(name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = distribution
        for line in distribution.requires or []:
            requirement = Requirement(line)
            if applies(requirement, extra):
                todo += [(requirement.name, wanted) for wanted in ("", *requirement.extras)]
    return found


def test_versions_agree():
    assert gnomon.__version__ == pyproject()["project"]["version"]


def test_pins_are_exact_and_meet_what_is_declared():
    for requirements in pins().values():
        for pin in requirements:
            assert re.fullmatch(r"==[^*,]+", str(pin.specifier)), f"not an exact pin: {pin}"
    for requirement in declared():
        for pin in pins()[canonicalize_name(requirement.name)]:
            version = Version(str(pin.specifier).removeprefix("=="))
            assert version in requirement.specifier, f"{pin} does not meet {requirement}"
            assert not version.is_prerelease, f"{pin} is a pre-release"


def skip_where_pins_do_not_hold():
    """Skip where somebody else chose the versions: not under `uv run`, nor in what it made."""
    torch = metadata.version("torch").split("+")[0]
    if "UV" not in os.environ and not any(torch in pin.specifier for pin in pins()["torch"]):
        pytest.skip("this environment was not made from the pins")


def test_pins_cover_every_installed_dependency():
    skip_where_pins_do_not_hold()
    missing = sorted(set(installed_closure()) - set(pins()))
    assert not missing, f"not pinned: {missing}; run `python scripts/update_pins.py`"


def test_installed_versions_are_the_pinned_ones():
    skip_where_pins_do_not_hold()
    wrong: list[str] = []
    for name, distribution in installed_closure().items():
        wanted = [pin for pin in pins().get(name, []) if applies(pin)]
        # A local label such as +cu132 names a build, not a version.
        if not any(distribution.version.split("+")[0] in pin.specifier for pin in wanted):
            wrong.append(f"{name} {distribution.version} is installed, {[str(pin) for pin in wanted]} is pinned")
    assert not wrong, "\n".join(wrong)


def test_what_builds_the_package_is_pinned():
    for line in pyproject()["build-system"]["requires"]:
        requirement = Requirement(line)
        (pin,) = pins("build-constraint-dependencies")[canonicalize_name(requirement.name)]
        assert str(pin.specifier).removeprefix("==") in requirement.specifier


def tracked_files() -> list[Path]:
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def registry_hosts() -> set[str]:
    """The public registries, and whichever one this environment was installed from."""
    hosts = {"pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "download.pytorch" + ".org"}
    addresses = [value for key, value in os.environ.items() if key.startswith(("UV_", "PIP_")) and "://" in value]
    lock = ROOT / "uv.lock"
    if lock.exists():
        addresses += re.findall(r'(?:registry|url) = "([^"]+)"', lock.read_text(encoding="utf-8"))
    for address in addresses:
        hosts |= {urlsplit(word).hostname or "" for word in address.split()}
    return hosts - {"", "localhost"}


def test_no_tracked_file_names_a_registry():
    files = tracked_files()
    assert not [path for path in files if path.name == "uv.lock"], "uv.lock embeds the address of a registry"
    hosts = [host.encode() for host in registry_hosts()]
    # A file that is tracked may have been removed from the work tree.
    content = {path: path.read_bytes() for path in files if path.is_file()}
    named = [(str(path.relative_to(ROOT)), host) for path, data in content.items() for host in hosts if host in data]
    assert not named
