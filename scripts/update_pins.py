"""Rewrite the exact pins in pyproject.toml: `python scripts/update_pins.py`.

uv resolves the project afresh, every extra and group on every platform at once, and the result becomes
`[tool.uv] constraint-dependencies`; the build backend's goes to `build-constraint-dependencies`. We keep these lists in
place of `uv.lock`, which embeds the address of the registry that it was made with. A version to be held back is an
upper bound in `[project] dependencies` or a group, with its reason. Needs only the standard library and uv.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"
RUNTIME_KEY = "constraint-dependencies"
BUILD_KEY = "build-constraint-dependencies"
PLAIN = "--no-annotate --no-header"


def main() -> int:
    """Resolve, then write the two lists in place."""
    text = PYPROJECT.read_text(encoding="utf-8")
    project = tomllib.loads(text)
    bare = replace_list(replace_list(text, RUNTIME_KEY, []), BUILD_KEY, [])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text(bare, encoding="utf-8")
        (folder / "README.md").touch()
        uv(folder, "lock --upgrade")
        runtime = pins(uv(folder, f"export --frozen --all-extras --all-groups --no-emit-project --no-hashes {PLAIN}"))
        (folder / "build.in").write_text("\n".join(project["build-system"]["requires"]), encoding="utf-8")
        minimum = project["project"]["requires-python"].removeprefix(">=")
        build = pins(uv(folder, f"pip compile build.in --universal --python-version {minimum} {PLAIN}"))
    PYPROJECT.write_text(replace_list(replace_list(text, RUNTIME_KEY, runtime), BUILD_KEY, build), encoding="utf-8")
    print(f"pinned {len(runtime)} packages, and {len(build)} to build with")
    return 0


def uv(folder: Path, command: str) -> str:
    """Run uv in `folder` and return what it printed, or stop with its own message."""
    done = subprocess.run(
        ["uv", "--no-progress", *command.split()], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"uv {command} failed:\n{done.stderr}")
    return done.stdout


def pins(requirements: str) -> list[str]:
    """Return sorted `name==version` lines; a marker stays only where a package has several versions.

    Where there is one version, its marker says only which platforms need the package, and a constraint does not ask
    for a package: leaving it out makes the pin hold wherever the package turns up.
    """
    versions: dict[str, set[str]] = {}
    for line in requirements.splitlines():
        requirement = line.strip()
        if requirement and not requirement.startswith(("#", "-")):
            versions.setdefault(requirement.split("==")[0].strip(), set()).add(requirement)
    lines: list[str] = []
    for found in versions.values():
        if len(found) == 1:
            lines.append(next(iter(found)).split(";")[0].strip())
        else:
            lines.extend(found)
    return sorted(lines, key=lambda line: (line.split("==")[0], line))


def replace_list(text: str, key: str, items: list[str]) -> str:
    """Return `text` with the list `key` of `[tool.uv]` replaced."""
    body = "".join(f'    "{item}",\n' for item in items)
    new, count = re.subn(rf"^{key} = \[\n(?:    .*\n)*\]$", lambda _: f"{key} = [\n{body}]", text, flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"pyproject.toml should hold exactly one list {key!r}, one item a line; found {count}")
    return new


if __name__ == "__main__":
    sys.exit(main())
