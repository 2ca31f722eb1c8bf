"""`leakage: required` and the checks on record in, what they say of each suite out, and which rules that blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from quantify.errors import InputError
from quantify.evidence.store import Stored
from quantify.gate.files import Files
from quantify.gate.policy import Policy
from quantify.gate.selection import CASES, Selected
from quantify.ir.record import DataRef, Record
from quantify.ir.verdict import REASONS, Finding, Need, Outcome, Reason, Source, worst

RULE = "leakage"
COMMAND = "quantify leakage --cases {} --training TRAINING --record"


def check(policy: Policy, stored: Sequence[Stored], every: Sequence[Selected], files: Files) -> tuple[Finding, ...]:
    """One finding a suite: the policy's, or those of the evidence that its rules use, or all that were ever checked.

    Raises:
        InputError: The policy names a suite that is not there.
    """
    checks = [one for one in stored if one.record.kind == "leakage" and _cases(one.record) is not None]
    suites = _suites(policy, checks, every, files)
    if not suites:
        need = Need("other", None, f"record a check: {COMMAND.format('CASES')}")
        return (_finding(policy, "", Outcome.INSUFFICIENT_EVIDENCE, _unchecked("no suite was ever checked"), need, ()),)
    return tuple(_of_suite(policy, path, digest, checks, files) for digest, path in suites.items())


def blocks(selected: Selected, checks: Sequence[Finding]) -> tuple[Outcome, Reason] | None:
    """How the checks decide a rule whose evidence is of a suite, or None: nothing stands in its way."""
    names = {data.sha256 for source in selected.sources if (data := _cases(source.record)) is not None}
    bad = [one for one in checks if one.outcome is not Outcome.PASS and one.group in names]
    if not bad:
        return None
    outcome = worst(one.outcome for one in bad)
    reason = next(one.reasons[0] for one in bad if one.outcome is outcome)
    return outcome, reason


def _suites(policy: Policy, checks: Sequence[Stored], every: Sequence[Selected], files: Files) -> dict[str, str]:
    """Digest → path of the suites that must be clean."""
    if policy.suite is not None:
        path = files.named(policy.suite)
        if path is None:
            message = f"{policy.path}: there is no suite {policy.suite}"
            raise InputError(message, "give its path from the policy's folder")
        return {files.sha256(path): policy.suite}
    used = [
        data
        for selected in every
        for source in selected.sources
        if source.reason is None and (data := _cases(source.record)) is not None
    ]
    known = used or [data for one in checks if (data := _cases(one.record)) is not None]
    found = {}
    for data in known:
        there = files.recorded(data.path)
        # The suite as it is now: an older version of it may have been clean.
        found[data.sha256 if there is None else files.sha256(there)] = data.path
    return found


def _of_suite(policy: Policy, path: str, digest: str, checks: Sequence[Stored], files: Files) -> Finding:
    """The last check against each training file decides."""
    last: dict[str, Source] = {}
    older = False
    for one in checks:
        data = _cases(one.record)
        assert data is not None
        if data.sha256 != digest:
            older = older or files.same(data.path) == files.same(path)
            continue
        training = _training(one.record)
        name = "" if training is None else files.same(training.path)
        last[name] = _source(one, training, files)
    sources = tuple(last.values())
    need = Need("other", None, f"record a check: {COMMAND.format(path)}")
    leaked = [source for source in sources if source.record.status != "ok"]
    if leaked:
        reason = Reason("leaked", f"cases of {path} are in the training data (record {leaked[0].digest[:12]})")
        need = Need("other", None, "take the cases out of the suite, or out of the training data, and run it again")
        return _finding(policy, digest, Outcome.INVALID, reason, need, sources, path)
    fresh = [source for source in sources if source.reason is None]
    if fresh:
        sources = tuple(replace(source, use="decides") if source in fresh else source for source in sources)
        return _finding(
            policy, digest, Outcome.PASS, Reason("leakage_clean", REASONS["leakage_clean"]), None, sources, path
        )
    if sources:
        reason = next(source.reason for source in sources if source.reason is not None)
        return _finding(policy, digest, Outcome.INSUFFICIENT_EVIDENCE, reason, need, sources, path)
    if older:
        reason = Reason("stale", f"another version of {path} was checked, not the present one")
    else:
        reason = _unchecked(f"{path} was never checked against the training data")
    return _finding(policy, digest, Outcome.INSUFFICIENT_EVIDENCE, reason, need, (), path)


def _source(one: Stored, training: DataRef | None, files: Files) -> Source:
    """A check, refused when its training file is another now."""
    reason = None
    if training is not None and files.changed(training.path, training.sha256) is not None:
        reason = Reason("stale", f"the training file {training.path} is another now")
    return Source(one.digest, one.record, None, "considered" if reason is None else "refused", reason)


def _unchecked(text: str) -> Reason:
    return Reason("leakage_unchecked", text)


def _finding(
    policy: Policy,
    digest: str,
    outcome: Outcome,
    reason: Reason,
    need: Need | None,
    sources: tuple[Source, ...],
    path: str = "",
) -> Finding:
    """A finding about a suite; its group is the suite's digest."""
    return Finding(
        RULE, policy.leakage_line, RULE, path, digest or None, None, None, outcome, (reason,),
        () if need is None else (need,), sources=sources,
    )  # fmt: skip


def _cases(record: Record) -> DataRef | None:
    return next((data for data in record.data if data.role == CASES), None)


def _training(record: Record) -> DataRef | None:
    return next((data for data in record.data if data.role == "training"), None)
