"""A rule and the store in, the evidence about it out: of the right subject and model, what is stale told as such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quantify.errors import InputError
from quantify.evidence.store import Stored
from quantify.gate.files import Files
from quantify.gate.policy import Policy, Rule
from quantify.ir.record import DataRef, PropertyRef, Reading, Record
from quantify.ir.verdict import Reason, Source
from quantify.properties.yaml import listed, suggest

CASES = "cases"
"""Role of the file that a suite is."""
TABLE = "table"
"""Role of the file that a rate of a table is of."""
OPERATING = "operating"
"""Role of the file that a loss is predicted for."""


@dataclass(frozen=True)
class Selected:
    """The evidence about one rule, for one group."""

    rule: Rule
    subject: str
    group: str | None
    sources: tuple[Source, ...]
    """In the order of recording; those with a reason are refused."""
    missing: Reason | None = None
    """Why there are none."""


@dataclass(frozen=True)
class _Candidate:
    stored: Stored
    reading: Reading
    reason: Reason | None = None


def select(rule: Rule, policy: Policy, stored: Sequence[Stored], files: Files) -> tuple[Selected, ...]:
    """The evidence about a rule, one entry a group.

    Raises:
        InputError: The rule does not say which of several models, subjects, property files, suites or groups it means.
    """
    every = [
        _Candidate(one, reading) for one in stored for reading in one.record.readings if reading.metric == rule.metric
    ]
    about = _of_subject(rule, every, files)
    if not about:
        return (Selected(rule, rule.subject or "", None, (), _never(rule, every, stored)),)
    of_model = _of_model(rule, about, files)
    if not of_model:
        text = f"there is no evidence of {rule.metric} for {rule.model}"
        return (Selected(rule, about[0].reading.subject, None, (), Reason("never_measured", text)),)
    of_model = _without_failed_runs(of_model)
    checked = _of_suite(rule, policy, [_property_and_data(one, files) for one in of_model], files)
    checked = _one_property(rule, checked)
    _refuse_several_tables(rule, checked)
    _refuse_several_domains(rule, checked)
    return tuple(_by_group(rule, _latest(checked, files)))


# --- what it is about ----------------------------------------------------------------------------------------------
def _of_subject(rule: Rule, every: Sequence[_Candidate], files: Files) -> list[_Candidate]:
    if rule.subject is None:
        found = [one for one in every if rule.about is None or one.reading.about == rule.about]
        subjects = dict.fromkeys((one.reading.about, one.reading.subject) for one in found)
        if len(subjects) > 1:
            named = ", ".join(f"{about}: {subject}" for about, subject in subjects)
            raise rule.fail(f"there is evidence of {rule.metric} for several: {named}", "name one of them in the rule")
        return found
    of_kind = [one for one in every if one.reading.about == rule.about]
    if rule.about == "property" and rule.subject.endswith((".yaml", ".yml")):
        path = files.named(rule.subject)
        if path is None:
            raise rule.fail(f"there is no property file {rule.subject}", "give its path from the policy's folder")
        now = files.sha256(path)
        return [one for one in of_kind if _is_of_file(one.stored.record.property, path, now, files)]
    if rule.about == "table" and "/" in rule.subject:
        return _of_table(rule, of_kind, files)
    return [one for one in of_kind if one.reading.subject == rule.subject]


def _of_table(rule: Rule, of_kind: Sequence[_Candidate], files: Files) -> list[_Candidate]:
    """Evidence about the table at a path; one that is not there is known by the path on record."""
    path = files.named(str(rule.subject))
    tables = [(one, _data(one.stored.record, TABLE)) for one in of_kind]
    if path is None:
        found = [one for one, table in tables if table is not None and table.path == rule.subject]
        if not found:
            raise rule.fail(f"there is no table {rule.subject}", "give its path from the policy's folder")
        return found
    now = files.sha256(path)
    return [one for one, table in tables if _is_of_file(table, path, now, files)]


def _is_of_file(ref: PropertyRef | DataRef | None, path: Path, now: str, files: Files) -> bool:
    return ref is not None and (ref.sha256 == now or files.same(ref.path) == str(path))


def _data(record: Record, role: str) -> DataRef | None:
    return next((data for data in record.data if data.role == role), None)


def _never(rule: Rule, every: Sequence[_Candidate], stored: Sequence[Stored]) -> Reason:
    known = dict.fromkeys(one.reading.subject for one in every)
    if rule.subject is None:
        return Reason("never_measured", f"{rule.metric} was never measured")
    close = suggest(rule.subject, known)
    verb = "counted" if rule.about == "property" else "measured"
    readings = (reading for one in stored for reading in one.record.readings)
    given = dict.fromkeys(one.metric for one in readings if (one.about, one.subject) == (rule.about, rule.subject))
    other = f"; on record of it: {', '.join(given)}" if given else ""
    return Reason("never_measured", f"{rule.metric} of {rule.subject!r} was never {verb}{close}{other}")


# --- which model ---------------------------------------------------------------------------------------------------
def _of_model(rule: Rule, found: Sequence[_Candidate], files: Files) -> list[_Candidate]:
    """Evidence about the rule's model, other versions of its file marked as stale."""
    if rule.model is None:
        _refuse_several(rule, found, files)
        return [_checked(one, files) for one in found]
    path = files.named(rule.model)
    if path is None:
        if any(one.stored.record.model is not None and one.stored.record.model.path == rule.model for one in found):
            return [_checked(one, files) for one in found if _path(one.stored.record) in (None, rule.model)]
        raise rule.fail(f"there is no model file {rule.model}", "give its path from the policy's folder")
    now = files.sha256(path)
    kept = []
    for one in found:
        model = one.stored.record.model
        if model is None or model.sha256 == now:
            kept.append(one)
        elif files.same(model.path) == str(path):
            kept.append(_stale(one, "model", model.path, model.sha256, now))
    return kept


def _without_failed_runs(found: list[_Candidate]) -> list[_Candidate]:
    """Runs that failed name no model; they are evidence on a recipe, and none on a model that did run."""
    if all(one.stored.record.model is None for one in found):
        return found
    return [one for one in found if one.stored.record.model is not None or one.stored.record.kind != "run"]


def _path(record: Record) -> str | None:
    return None if record.model is None else record.model.path


def _refuse_several(rule: Rule, found: Sequence[_Candidate], files: Files) -> None:
    """Files of one path, or of one content, are one model."""
    groups: list[tuple[set[str], list[str]]] = []
    for one in found:
        model = one.stored.record.model
        if model is None:
            continue
        names, paths = {files.same(model.path), model.sha256}, [model.path]
        apart = []
        for other in groups:
            if other[0] & names:
                names, paths = names | other[0], other[1] + paths
            else:
                apart.append(other)
        groups = [*apart, (names, paths)]
    if len(groups) > 1:
        every = listed(dict.fromkeys(paths[0] for _, paths in groups))
        raise rule.fail(f"several models have evidence of {rule.metric}: {every}", "name one with model: FILE")


def _checked(one: _Candidate, files: Files) -> _Candidate:
    """The candidate, with a reason when its model's file is another now, or is not there."""
    model = one.stored.record.model
    if model is None:
        return one
    if files.recorded(model.path) is None:
        text = f"{model.path} is not there, so whether the evidence is of its present version cannot be told"
        return replace(one, reason=Reason("model_missing", text))
    now = files.changed(model.path, model.sha256)
    return one if now is None else _stale(one, "model", model.path, model.sha256, now)


def _stale(one: _Candidate, what: str, path: str, then: str, now: str) -> _Candidate:
    text = f"the {what} file {path} is another now: sha256 {now[:12]}… instead of {then[:12]}…"
    return replace(one, reason=Reason("stale", text))


# --- which version of everything else --------------------------------------------------------------------------------
def _property_and_data(one: _Candidate, files: Files) -> _Candidate:
    """The candidate, with a reason when its property file or a data file is another now."""
    if one.reason is not None:
        return one
    prop = one.stored.record.property
    if prop is not None and (now := files.changed(prop.path, prop.sha256)) is not None:
        return _stale(one, "property", prop.path, prop.sha256, now)
    for data in one.stored.record.data:
        if (now := files.changed(data.path, data.sha256)) is not None:
            return _stale(one, data.role, data.path, data.sha256, now)
    return one


def _one_property(rule: Rule, found: list[_Candidate]) -> list[_Candidate]:
    """Refuse a name that several property files have; evidence of the present one comes before that of a lost one."""
    known = {
        one.stored.record.property.sha256: one.stored.record.property.path
        for one in found
        if one.stored.record.property is not None and one.reason is None
    }
    if len(known) > 1:
        every = listed(dict.fromkeys(known.values()))
        raise rule.fail(
            f"several versions of the property {rule.subject!r} have evidence: {every}",
            "name its file: property: FILE.yaml",
        )
    return found


def _refuse_several_tables(rule: Rule, found: Sequence[_Candidate]) -> None:
    """The latest run on a table decides, but not one on another table of the same name: content tells them apart."""
    tables = (_data(one.stored.record, TABLE) for one in found if one.reason is None)
    known = {table.sha256: table.path for table in tables if table is not None}
    if len(known) > 1:
        every = listed(f"{path} (sha256 {sha256[:12]}…)" for sha256, path in known.items())
        raise rule.fail(
            f"there is evidence of {rule.metric} for several tables called {found[0].reading.subject!r}: {every}",
            f"name its path, as in table: ./{found[0].reading.subject}, or give each a name of its own",
        )


def _refuse_several_domains(rule: Rule, found: Sequence[_Candidate]) -> None:
    """The latest prediction decides, but of one loss for one operating domain: a rule must not take one for another."""
    known: dict[str | None, dict[tuple[str, str], str]] = {}
    for one in found:
        data = _data(one.stored.record, OPERATING)
        if data is not None and one.reason is None and (one.reading.group is None) == (rule.groups is None):
            column = str(one.stored.record.body["loss"]["column"])
            known.setdefault(one.reading.group, {})[data.sha256, column] = f"{column} in {data.path}"
    for group, predicted in known.items():
        if len(predicted) > 1:
            message = f"there is evidence of {rule.metric} for several: {listed(predicted.values())}"
            hint = "name one operating domain with group: FILE, or write groups: all"
            if group is not None or len({sha256 for sha256, _ in predicted}) == 1:
                hint = "give each loss a table, and each operating domain a file, with a name of its own"
            raise rule.fail(message, hint)


def _of_suite(rule: Rule, policy: Policy, found: list[_Candidate], files: Files) -> list[_Candidate]:
    """Evidence on the policy's suite; without one, refuse evidence on several."""
    if rule.about == "property" or not any(_data(one.stored.record, CASES) for one in found):
        return found
    if policy.suite is not None:
        path = files.named(policy.suite)
        if path is None:
            message = f"{policy.path}: there is no suite {policy.suite}"
            raise InputError(message, "give its path from the policy's folder")
        now = files.sha256(path)
        return [
            one for one in found if (data := _data(one.stored.record, CASES)) is None
            or _is_of_file(data, path, now, files)
        ]  # fmt: skip
    suites = {
        files.same(data.path): data.path
        for one in found
        if one.reason is None and (data := _data(one.stored.record, CASES))
    }
    if len(suites) > 1:
        message = f"there is evidence of {rule.metric} on several suites: {listed(suites.values())}"
        raise rule.fail(message, "name one at the top of the policy: suite: FILE")
    return found


def _latest(found: Sequence[_Candidate], files: Files) -> list[_Candidate]:
    """Of runs on the same cases, the last one alone; counts compete by how tight they are instead."""
    last: dict[tuple[object, ...], str] = {}
    for one in found:
        if one.reason is None:
            last[_key(one, files)] = one.stored.digest
    return [
        one
        if one.reason is not None or one.stored.record.kind == "count" or last[_key(one, files)] == one.stored.digest
        else replace(one, reason=Reason("superseded", "a later run on the same cases replaced it"))
        for one in found
    ]


def _key(one: _Candidate, files: Files) -> tuple[object, ...]:
    data = _data(one.stored.record, CASES)
    return one.reading.about, one.reading.subject, one.reading.group, None if data is None else files.same(data.path)


def _by_group(rule: Rule, found: Sequence[_Candidate]) -> list[Selected]:
    groups: dict[str | None, list[_Candidate]] = {}
    for one in found:
        groups.setdefault(one.reading.group, []).append(one)
    subject = found[0].reading.subject if found else rule.subject or ""
    named = [group for group in groups if group is not None]
    wanted: list[str | None]
    if rule.groups is None:
        if None not in groups and named:
            raise rule.fail(
                f"{rule.metric} of {subject!r} was measured by group only: {listed(named)}",
                "name one with group: NAME, or write groups: all",
            )
        wanted = [None]
    elif rule.groups == "all":
        wanted = [*sorted(named)]
        if not wanted:
            reason = Reason("never_measured", f"{rule.metric} of {subject!r} was never measured by group")
            return [Selected(rule, subject, None, (), reason)]
    else:
        wanted = list(rule.groups)
    return [
        Selected(rule, subject, group, tuple(_source(one) for one in groups[group]))
        if group in groups
        else Selected(rule, subject, group, (), _no_group(rule, subject, str(group), named))
        for group in wanted
    ]


def _no_group(rule: Rule, subject: str, group: str, named: list[str]) -> Reason:
    known = f"; groups are {listed(named)}" if named else ""
    text = f"{rule.metric} of {subject!r} was never measured for {group!r}{suggest(group, named)}{known}"
    return Reason("never_measured", text)


def _source(one: _Candidate) -> Source:
    use = "considered" if one.reason is None else "refused"
    return Source(one.stored.digest, one.stored.record, one.reading, use, one.reason)  # type: ignore[arg-type]
