"""Compile the accelerator, `tarkit/tar/_fast.c`, when tarkit is installed; where that fails, tarkit works without it.

A wheel with it is for this platform and any Python from 3.11 on, one without it for all of them. TARKIT_PURE=1 leaves
it out. A free-threaded Python does not load extensions of the limited API, so a wheel for it is for its version alone.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension

MODULE, PATH = "tarkit.tar._fast", "tarkit/tar/_fast"
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")


class AcceleratorHook(BuildHookInterface):
    """The step that compiles; hatchling finds it by its base class."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library to what is installed; beside its source for an editable installation."""
        if os.environ.get("TARKIT_PURE", "0") not in ("", "0"):
            return
        editable = version == "editable"
        library = compile_accelerator(Path(self.root), Path(self.root if editable else mkdtemp()))
        if library is not None and not editable:
            tag = self.build_config.builder.get_best_matching_tag()
            if LIMITED:
                tag = f"cp311-abi3-{tag.rpartition('-')[2]}"
            build_data |= {"pure_python": False, "tag": tag}
            build_data["force_include"][str(library)] = f"tarkit/tar/{library.name}"


def compile_accelerator(root: Path, target: Path) -> Path | None:
    """Return the compiled library below `target`, None if there is no compiler or no header of Python."""
    source = Extension(
        MODULE,
        [str(root / f"{PATH}.c")],
        define_macros=[("Py_LIMITED_API", "0x030b0000")] if LIMITED else [],
        extra_compile_args=["-O3"],
        py_limited_api=LIMITED,
    )
    build = Distribution({"ext_modules": [source]}).get_command_obj("build_ext")
    build.build_lib, build.build_temp = str(target), mkdtemp()
    try:
        build.ensure_finalized()
        build.run()
    except Exception as error:  # setuptools has several, and compilers have more
        print(f"tarkit is installed without its accelerator, which is optional: {error}")  # noqa: T201
        return None
    return Path(build.get_ext_fullpath(MODULE))
