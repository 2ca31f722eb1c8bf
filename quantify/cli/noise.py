"""`quantify noise`: how many answers do declared changes of the cases flip?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from quantify.cli import output
from quantify.cli.options import FILE, limit_options, limits_from, output_options
from quantify.errors import InputError

if TYPE_CHECKING:
    from quantify.dataset.answers import Asked
    from quantify.dataset.noise import Noise
    from quantify.dataset.noise_spec import Spec
    from quantify.ir.problem import Problem
    from quantify.resources import Limits, Progress


@click.command("noise")
@click.argument("spec", type=FILE)
@click.option("--model", type=FILE, metavar="MODEL", help="The model, instead of the one that the file names.")
@click.option("--cases", type=FILE, metavar="SUITE", help="The suite, instead of the one that the file names.")
@click.option(
    "--images", "folder", type=FILE, metavar="DIR", help="Write the changed images to DIR, for people to judge."
)
@limit_options
@output_options
@click.option("--record", "recorded", is_flag=True, help="Keep the answer as evidence for `quantify gate`.")
@click.option("--trust-pickle", is_flag=True, help="Unpickle types outside the allow-list: runs code from the file.")
def command(
    spec: Path,
    model: Path | None,
    cases: Path | None,
    folder: Path | None,
    timeout: float | None,
    memory: int | None,
    seed: int,
    jobs: int,
    json_file: Path | None,
    quiet: bool,
    recorded: bool,
    trust_pickle: bool,
) -> int:
    """Change every case as SPEC declares, and count the answers that flip.

    The seeds of the noise are in SPEC. Noise that is uniform over the balls of a robustness property is counted
    exactly as well, and the two rates are checked against each other.
    """
    limits = limits_from(timeout, memory, seed, jobs)
    output.check_writable(json_file)
    from quantify.cli import recording
    from quantify.dataset import answers, noise, noise_spec
    from quantify.dataset import suite as suites

    if recorded:
        recording.check_store()
    declared = noise_spec.load(spec)
    model, cases = model or declared.model, cases or declared.cases
    for path, key in ((model, "model"), (cases, "cases")):
        if path is None:
            raise InputError(f"{spec}: there is no key {key!r}", f"write {key}: FILE, or give --{key} FILE")
    assert model is not None
    assert cases is not None
    suite = suites.load(cases)
    data: Any = _data(declared) if recorded else ()
    with output.progress(quiet) as shown, output.stoppable(limits):
        shown.update("asking the model", 0, len(suite.cases))
        asked = answers.prepare(
            model, suite, declared.property, trust_pickle=trust_pickle, layout=declared.layout, seed=seed
        )
        problems = _problems(declared, asked, limits, trust_pickle)
        found = noise.try_all(declared, asked, problems, shown, folder)
        found = _counted(found, model, limits, shown, trust_pickle)
    if not quiet and str(json_file) != "-":
        click.echo(_text(found))
    if json_file is not None:
        output.write_json(json_file, noise.to_dict(found))
    if recorded:
        recording.record(noise.to_record(found, data), quiet)
    return 0


def _problems(declared: Spec, asked: Asked, limits: Limits, trust_pickle: bool) -> dict[str, Problem]:
    """The robustness properties over whose balls noise is drawn."""
    from quantify import properties, readers
    from quantify.dataset import noise
    from quantify.evidence import records

    found = {}
    for transform in declared.transforms:
        if transform.region is None:
            continue
        source = properties.load(transform.region)
        files = [Path(path) for role, path in properties.data_files(source) if role == "inputs"]
        if [records.file_sha256(str(path)) for path in files] != [asked.suite.sha256]:
            raise InputError(
                f"{transform.region}: its inputs are not the cases of {asked.suite.path}",
                f"write inputs: {{file: {asked.suite.name}}}; the suite is a CSV file then",
            )
        model = readers.read_model(Path(asked.model.path), trust_pickle=trust_pickle)
        problem = properties.bind(source, model, seed=limits.seed)
        found[transform.name] = noise.region_problem(transform, problem, asked.suite)
    return found


def _counted(found: Noise, model: Path, limits: Limits, progress: Progress, trust_pickle: bool) -> Noise:
    """The noise with the exact counts beside it."""
    from dataclasses import replace

    from quantify import pipeline
    from quantify.dataset import noise

    tried = []
    for one in found.tried:
        if one.transform.region is not None:
            options = pipeline.Options(trust_pickle=trust_pickle, limits=limits)
            evidence = pipeline.count(model, one.transform.region, options, progress)
            one = noise.with_count(one, evidence.cases)
        tried.append(one)
    return replace(found, tried=tuple(tried))


def _data(declared: Spec) -> Any:
    from quantify import properties
    from quantify.cli import recording

    files: list[tuple[str, Path]] = []
    for transform in declared.transforms:
        if transform.labels is not None:
            files.append(("labels", transform.labels))
        if transform.region is not None:
            files.append(("property", transform.region))
            files += [(role, path) for role, path in properties.data_files(properties.load(transform.region))]
    if declared.property is not None:
        files += list(properties.data_files(properties.load(declared.property)))
    return recording.data_refs(dict.fromkeys(files))


def _text(found: Noise) -> str:
    from quantify.dataset import noise
    from quantify.report.numbers import percent_range

    lines = [f"{found.asked.model.path} on {found.asked.suite.path}: {len(found.asked.suite.cases):,} cases"]
    for one in found.tried:
        for reading in noise.readings_of(one):
            (drawn,) = reading.draws
            group = "" if reading.group is None else f" {reading.group}"
            lines.append(
                f"  {one.transform.name}{group}: {drawn.hits:,} of {drawn.samples:,} flip"
                + (f", {drawn.unknown:,} without an answer" if drawn.unknown else "")
                + f" ({percent_range(reading.lower, reading.upper)} at 95 % confidence)"
            )
        if one.counted is not None:
            ends = percent_range(one.counted.lower, one.counted.upper)
            lines.append(f"    counted over all of the noise: {ends} ({one.counted.guarantee}); the sample agrees")
        elif one.note is not None:
            lines.append(f"    {one.note}")
        if one.reason is not None:
            lines.append(f"    decides nothing ({one.reason}): {one.need}")
    return "\n".join(lines)
