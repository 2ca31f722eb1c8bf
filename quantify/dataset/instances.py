"""A `.npy` file, or the name of a set that is generated, to instances; adversarial instances to an `.npz` file."""

from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path

import numpy as np

from quantify.dataset import packing
from quantify.dataset.evolve import Table
from quantify.dataset.packing import Packing
from quantify.errors import InputError
from quantify.ir.evolved import Evolved
from quantify.ir.record import DataRef
from quantify.ir.selector import Domain, Instances

GENERATED = re.compile(rf"({'|'.join(packing.SETS)}):([0-9]{{1,7}})(?::(rejection|search))?")
MISNAMED = re.compile(r"ds[0-9]*:.*", re.IGNORECASE)
"""Meant as such a set."""
MAGIC, SEVERAL = b"\x93NUMPY", b"PK"
"""How `.npy` files and `.npz` files begin."""


def load(source: str, domain: Domain, seed: int) -> Table:
    """Instances from a file, or `ds2:COUNT`, `ds4:COUNT` with `:search` or `:rejection` behind.

    Raises:
        InputError: There is no such file, it holds no matrix of integers, or the domain is no packing of bins.
    """
    named = GENERATED.fullmatch(source)
    if named is not None:
        kind, count, balance = named.groups()
        if not isinstance(domain, Packing):
            raise InputError(f"--instances {source}: such sets are of bin packing", "give a .npy file of the domain")
        if int(count) < 1:
            raise InputError(f"--instances {source}: no instances", f"write --instances {kind}:100")
        made, _ = packing.generate(
            int(count),
            packing.SETS[kind],
            seed,
            balance="search" if balance == "search" else "rejection",
            domain=domain,
        )
        return Table(made, f"{source}, generated with seed {seed}", kind)
    path = Path(source)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if MISNAMED.fullmatch(source):
            known = " or ".join(f"{name}:100" for name in packing.SETS)
            raise InputError(
                f"--instances {source}: no name of a set of bin packing",
                f"write {known}, the number of instances behind",
            ) from None
        raise InputError(
            f"{source}: there is no such file", "give a .npy file, or ds2:100 to generate 100 instances"
        ) from None
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror}", "give a .npy file") from None
    instances = _matrix(source, data)
    sha256 = hashlib.sha256(data).hexdigest()
    return Table(instances, source, path.name, DataRef("table", source, sha256, len(instances)))


def _matrix(source: str, data: bytes) -> Instances:
    hint = "save integers, an instance a row, with numpy.save"
    if data.startswith(SEVERAL):
        raise InputError(f"{source}: several arrays", hint)
    if not data.startswith(MAGIC):
        raise InputError(f"{source}: not a .npy file", hint)
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        # NumPy's advice for what it would have to unpickle is to do so.
        why = "it holds Python objects" if "pickle" in str(error) else f"not a .npy file: {error}"
        raise InputError(f"{source}: {why}", hint) from None
    if array.ndim != 2 or not array.size:
        raise InputError(f"{source}: an array of shape {array.shape}", "save a matrix with an instance a row")
    if array.dtype.kind not in "iuf":
        raise InputError(f"{source}: {array.dtype} is no type of numbers", "save integers")
    wrong = ~((array >= -(2**31)) & (array < 2**31))  # NaN is neither
    if array.dtype.kind == "f":
        wrong |= array != np.rint(array)
    if wrong.any():
        row, item = (int(at) for at in np.argwhere(wrong)[0])
        raise InputError(f"{source}: row {row}, item {item} is {array[row, item]}", "instances are integers")
    return np.ascontiguousarray(array, dtype=np.int64)


def adversarial(evolved: Evolved, instances: Instances) -> bytes:
    """An `.npz` with the strongest adversarial instance of every trial that found one, one a row.

    Arrays: `row`, `run` (−1: a random mask), `original` and `instance` [n, length], `mask`, `winner` (place of the
    better solver on the perturbed instance), `predicted`, `scores` [n, 2], `fitness`.
    """
    found = [(one.row, best) for one in evolved.searched for best in one.found]
    length = instances.shape[1]
    rows = np.array([row for row, _ in found], dtype=np.int64)
    winner = np.array([best.winner for _, best in found], dtype=np.int8)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        row=rows,
        run=np.array([best.run for _, best in found], dtype=np.int64),
        original=instances[rows],
        instance=np.array([best.instance for _, best in found], dtype=np.int64).reshape(-1, length),
        mask=np.array([best.mask for _, best in found], dtype=np.int8).reshape(-1, length),
        winner=winner,
        predicted=(1 - winner).astype(np.int8),
        scores=np.array([best.scores for _, best in found], dtype=np.float64).reshape(-1, 2),
        fitness=np.array([best.fitness for _, best in found], dtype=np.float64),
    )
    return buffer.getvalue()
