"""What every discovered reader must do, whatever it reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from quantify.errors import InputError
from quantify.readers import Reader, discover, read_model

READERS = discover()


def test_readers_are_discovered_once_each() -> None:
    assert READERS
    assert len({reader.name for reader in READERS}) == len(READERS)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_suffixes_are_lower_case_endings(reader: Reader) -> None:
    assert reader.suffixes
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in reader.suffixes)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_noise_is_an_error_whatever_it_is_called(reader: Reader, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for suffix in reader.suffixes:
        for size in (1, 2, 3, 10, 1000):
            path = tmp_path / f"model{suffix.upper() if size % 2 else suffix}"
            path.write_bytes(rng.bytes(size))
            assert reader.sniff(path.read_bytes()) in (True, False)
            with pytest.raises(InputError, match="model") as caught:
                read_model(path)
            assert str(path) in caught.value.message
            assert caught.value.hint
