"""Wheel build hook: compiles native/ and puts the module into `quantify/engines/`, with a stable-ABI tag."""

from __future__ import annotations

import importlib.util
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds `_native.abi3.so`, compiled in a temporary folder, to a wheel tagged cp311-abi3."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is put together."""
        script = Path(self.root) / "native" / "build_ffi.py"
        specification = importlib.util.spec_from_file_location("build_ffi", script)
        if specification is None or specification.loader is None:
            raise FileNotFoundError(script)
        build_ffi = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(build_ffi)
        self.scratch = tempfile.TemporaryDirectory()
        module = build_ffi.build(Path(self.scratch.name))
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["force_include"][str(module)] = "quantify/engines/_native.abi3.so"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        self.scratch.cleanup()
