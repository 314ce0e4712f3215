"""Where a result came from: versions of libraries and physics engines, hardware, the code."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import torch

from damper.version import __version__

DISTRIBUTION = "damper-rl"  # the package's name for pip, where "damper" is another project
PACKAGE = Path(__file__).resolve().parent
_PACKAGES = ("numpy", "gymnasium", "mujoco", "box2d", "envpool", "stable-baselines3", "safetensors")
_HASHED = (".py", ".json")  # files that can change results
# What neither trains nor evaluates: an edit there leaves the code of the records the same.
NOT_HASHED = (
    *("cli", "plots", "export", "sb3", "rsl_rl", "compare.py", "intervals.py", "tables.py"),
    *("terminal.py", "theory.py"),
)


def versions() -> dict[str, str]:
    """Installed versions of everything that can change a result."""
    installed = {"python": platform.python_version(), "damper": __version__}
    installed["torch"] = torch.__version__
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            installed[package] = importlib.metadata.version(package)
    return installed


def hardware(device: str) -> dict[str, str | int]:
    """Processor, cores, threads and GPU."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        model = re.search(r"^model name\s*:(.*)$", info.read_text(), re.MULTILINE)
        cpu = model[1].strip() if model else cpu
    facts: dict[str, str | int] = {"cpu": cpu, "cores": os.cpu_count() or 1}
    facts["threads"] = torch.get_num_threads()
    if device.startswith("cuda"):
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


def code_version() -> dict[str, str | None]:
    """The running code: digest of its source, its commit or where it was installed from."""
    named = commit()
    return {"source": source_digest(), "commit": named, "origin": None if named else origin()}


@functools.cache
def source_digest() -> str:
    """The package's digest: results with the same one come from the same code."""
    return digest_of(PACKAGE)


def digest_of(package: Path) -> str:
    """80 bits of BLAKE2b over the sorted relative paths and the texts of what trains and evaluates.

    It is the same in a checkout, an installation and a bare copy, with any line endings.
    """
    digest = hashlib.blake2b(digest_size=10)
    files = {
        path.relative_to(package).as_posix(): path
        for path in package.rglob("*")
        if path.suffix in _HASHED and path.relative_to(package).parts[0] not in NOT_HASHED
    }
    for name in sorted(files):
        text = files[name].read_text(encoding="utf-8").encode()
        digest.update(f"{name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()


def canonical(value: Any) -> Any:
    """Plain data in one form: 1 and 1.0 the same, lists and tuples the same, keys sorted."""
    if isinstance(value, Mapping):
        return {str(key): canonical(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    number = float(f"{float(value):.12g}")
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def digest(value: Any) -> str:
    """A short name for plain data: 80 bits of BLAKE2b over its canonical JSON."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


def commit() -> str | None:
    """The commit of the checkout that this code runs from, marked if the package has changed since.

    None for an installed or vendored copy, even if it lies inside another git repository. For a
    copy without its history, set the environment variable ``DAMPER_COMMIT``.
    """
    if given := os.environ.get("DAMPER_COMMIT"):
        return given
    try:
        root, head = _git("rev-parse", "--show-toplevel", "HEAD").splitlines()
        _git("ls-files", "--error-unmatch", "__init__.py")
        project = tomllib.loads((Path(root) / "pyproject.toml").read_text(encoding="utf-8"))
        changes = _git("status", "--porcelain", ".")
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None
    is_ours = project.get("project", {}).get("name") == DISTRIBUTION
    if not is_ours or Path(root, "src", "damper").resolve() != PACKAGE:
        return None
    return head + ("+changes" if changes else "")


def _git(*arguments: str) -> str:
    return subprocess.check_output(
        ["git", *arguments], cwd=PACKAGE, stderr=subprocess.DEVNULL, text=True
    ).strip()


def origin() -> str | None:
    """Where pip installed this code from, as a requirement; None if pip did not install it.

    ``name==version`` from an index, ``git+url@commit``, or an archive's address with its hash. For
    a local folder or file only its name is given: its path means nothing on another machine.
    """
    for installed in importlib.metadata.distributions(name=DISTRIBUTION):
        direct_url = json.loads(installed.read_text("direct_url.json") or "{}")
        installed_at = Path(str(installed.locate_file("damper")))
        if direct_url.get("dir_info", {}).get("editable"):
            installed_at = Path(url2pathname(urlsplit(direct_url["url"]).path), "src", "damper")
        if installed_at.resolve() != PACKAGE:  # it is not the copy that runs
            continue
        return _requirement(direct_url) if direct_url else f"{DISTRIBUTION}=={installed.version}"
    return None


def _requirement(direct_url: Mapping[str, Any]) -> str:
    """The requirement that an installation's ``direct_url.json`` (PEP 610) describes."""
    url, vcs = direct_url["url"], direct_url.get("vcs_info")
    hashes = direct_url.get("archive_info", {}).get("hashes", {})
    if url.startswith("file:"):
        url = f"file:{PurePosixPath(urlsplit(url).path).name}"
    if vcs:
        return f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return "#".join([url, *(f"{name}={value}" for name, value in hashes.items())])
