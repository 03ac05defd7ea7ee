"""Packages and devices. Nothing is imported before it is checked: a broken package must not break the check."""

import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from ..errors import in_short
from .findings import Finding, Level, findings_of, note, ok, wrong

PACKAGE = "visual_grounding"
FAIRSEQ = "fairseq-fixed"  # retrieval works without it
FAISS = ("faiss-cpu", "faiss-gpu", "faiss-gpu-cu11", "faiss-gpu-cu12")
_WHEELS = "https://download.pytorch.org/whl/"


def check_packages() -> Iterator[Finding]:
    """Python and everything that the package requires, in versions that it can use."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    try:
        description = metadata.metadata(PACKAGE)
    except metadata.PackageNotFoundError:
        yield note(f"{PACKAGE} isn't installed, so what it requires isn't known here.", "pip install -e '.[cpu]'")
        return
    pythons = description.get("Requires-Python", "")
    if platform.python_version() not in SpecifierSet(pythons):
        yield wrong(f"Python should be {pythons}, but is {platform.python_version()}.")
    good, bad = [f"Python {platform.python_version()}"], 0
    for text in metadata.requires(PACKAGE) or []:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        found = installed(requirement.name)
        if found is not None and requirement.specifier.contains(found, prereleases=True):
            good.append(f"{requirement.name} {found}")
            continue
        bad += 1
        remedy = f'pip install "{requirement.name}{requirement.specifier}"'
        state = "isn't installed" if found is None else f"should be {requirement.specifier}, but is {found}"
        if requirement.name == FAIRSEQ:
            yield note(f"{FAIRSEQ} {state}: extract, index and retrieve work, training doesn't.", remedy)
        else:
            yield wrong(f"{requirement.name} {state}.", remedy)
    yield ok(f"{', '.join(good)}.")


def unfit_packages() -> list[Finding]:
    """Those that are missing, or of a version that this package can't use."""
    return [finding for finding in findings_of(check_packages, "packages") if finding.level is Level.WRONG]


def installed(name: str) -> str | None:
    """The version of a distribution; None where it isn't installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_torchvision() -> Iterator[Finding]:
    """Whether torchvision's compiled part fits torch's: they come from different indexes more often than one thinks."""
    import torch

    try:
        import torchvision
    except Exception as error:
        if installed("torchvision") is None and isinstance(error, ImportError):
            return  # check_packages said so
        reason = in_short(error)
        build = "cpu" if torch.version.cuda is None else f"cu{torch.version.cuda.replace('.', '')}"
        yield wrong(
            f"torchvision {installed('torchvision')} doesn't work with torch {torch.__version__}: {reason}. Both "
            "should come from the same kind of build, CPU or CUDA, and be made for one another.",
            f"pip install --force-reinstall --no-deps torchvision=={matching_torchvision(torch.__version__)} "
            f"--index-url {_WHEELS}{build}",
        )
        return
    yield ok(f"torchvision {torchvision.__version__} works with torch {torch.__version__}.")


def matching_torchvision(torch_version: str) -> str:
    """The torchvision that was released with a torch: its minor number is 15 higher.

    >>> matching_torchvision("2.6.0+cpu")
    '0.21.*'
    """
    return f"0.{int(torch_version.split('.')[1]) + 15}.*"


def check_faiss(needed_by: Path | None) -> Iterator[Finding]:
    """Which faiss there is: none, one that works, or two that overwrite one another.

    Args:
        needed_by: an index that only faiss can read.
    """
    found = {name: version for name in FAISS if (version := installed(name)) is not None}
    extra = "gpu" if _cuda() else "cpu"
    install = f"pip install '{PACKAGE}[{extra}]'"
    if len(found) > 1:
        named = " and ".join(f"{name} {version}" for name, version in found.items())
        yield wrong(
            f"{named} are installed together. They overwrite one another's files; only one may be there.",
            f"pip uninstall -y {' '.join(found)} && {install}",
        )
    elif not found:
        missing = f"faiss isn't installed (extra [{extra}])"
        if needed_by is None:
            yield note(f"{missing}: exact search works without it, approximate indexes don't.", install)
        else:
            yield wrong(f"{missing}, but index {needed_by} was made by it.", install)
    else:
        (name, version), *_ = found.items()
        try:
            import faiss  # noqa: F401
        except Exception as error:
            yield wrong(f"{name} {version} can't be imported: {error}.", f"pip install --force-reinstall {name}")
            return
        yield ok(f"{name} {version}.")
        if name == "faiss-cpu" and _cuda():
            yield note("There is a GPU, but faiss is built for the CPU: approximate search runs on the CPU.")


def _cuda() -> bool:
    try:
        import torch

        return torch.cuda.is_available()
    except Exception:  # check_devices says what is wrong with torch
        return False


def check_devices() -> Iterator[Finding]:
    """What computes: GPUs that torch can use, or why it can't."""
    import torch

    driver = shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia/version").exists()
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(number)
            yield ok(f"cuda:{number} {torch.cuda.get_device_name(number)}, {free >> 20} of {total >> 20} MiB free.")
    elif driver and torch.version.cuda is None:
        yield note(f"There is an NVIDIA driver, but torch {torch.__version__} is built for the CPU alone.")
    elif driver:
        yield wrong(
            f"There is an NVIDIA driver, but torch {torch.__version__}, built for CUDA {torch.version.cuda}, can't use "
            "it: no device is visible, or the driver is too old.",
            "nvidia-smi",
        )
    cores = len(os.sched_getaffinity(0))
    yield ok(f"{cores} CPU core{'s' if cores > 1 else ''}, {torch.get_num_threads()} used by torch.")
