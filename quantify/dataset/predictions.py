"""A table and a model in, the model's answer for each row out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quantify import properties
from quantify.dataset import answers
from quantify.dataset.columns import Columns
from quantify.dataset.slices import Predicted
from quantify.dataset.suite import Case, Suite
from quantify.errors import InputError
from quantify.evidence import records
from quantify.ir.record import DataRef, ModelRef, PropertyRef


def of_model(
    table: Columns,
    model_path: Path,
    label: str,
    features: Sequence[str] | None,
    property_path: Path | None,
    *,
    trust_pickle: bool = False,
) -> Predicted:
    """Ask a model about every row; its inputs are the columns that it, or its property file, names.

    Args:
        features: Columns in the order of the model's inputs, where nothing names them.

    Raises:
        InputError: A column is not there, text where the model takes numbers, a regressor, nothing names the inputs.
    """
    model, problem = answers.read(model_path, property_path, trust_pickle=trust_pickle)
    named = model.column_names if problem is None else [feature.name for feature in problem.domain.features]
    names = features or named
    if names is None:
        raise InputError(
            f"{model_path}: the model does not name its {model.columns} inputs", "name their columns: --features A,B"
        )
    if answers.is_regressor(model):
        raise InputError(
            f"{model_path}: a regressor is not right or wrong", "give a column of losses: --metric loss --column LOSS"
        )
    if label in names:
        raise InputError(f"{table.path}: {label!r} is the label and an input", "name the inputs with --features")
    decoded = [table.column(name) for name in names]
    cells = [(*column.cells, None) for column in decoded]
    places = zip(*(column.codes.tolist() for column in decoded), strict=True)
    cases = tuple(
        Case(str(row), row + 2, tuple(some[code] for some, code in zip(cells, codes, strict=True)))
        for row, codes in enumerate(places)
    )
    suite = Suite(table.path, table.sha256, cases, tuple(names))
    found = answers.ask(answers.match(model, problem, suite), cases)
    refs = () if property_path is None else _refs(property_path)
    return Predicted(
        tuple(None if answer is None else str(answer) for answer in found),
        model.path,
        model=ModelRef(model.path, model.sha256, model.kind),
        property=None if problem is None else PropertyRef(problem.name, problem.property_path, problem.property_sha256),
        data=refs,
    )


def _refs(property_path: Path) -> tuple[DataRef, ...]:
    files = properties.data_files(properties.load(property_path))
    return tuple(DataRef(role, str(path), records.file_sha256(str(path))) for role, path in dict.fromkeys(files))
