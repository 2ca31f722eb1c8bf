"""What the documents name exists, and what exists is named: commands, options, engines, examples, property files."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from property_files import hand_model

from quantify import engines, properties
from quantify.cli.init import examples, pipelines
from quantify.cli.main import COMMANDS, cli
from quantify.dataset import seeds
from quantify.gate import policy
from quantify.ir.record import METRICS
from quantify.ir.verdict import REASONS, Outcome
from quantify.properties import domain, plan, yaml
from quantify.properties.library import LIBRARY
from quantify.properties.scope import FUNCTIONS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROPERTIES = (ROOT / "docs/properties.md").read_text(encoding="utf-8")
GATE = (ROOT / "docs/gate.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OTHER_PROGRAMS = {"--require-tools", "--force"}
BLOCKS = [
    pytest.param(info.strip(), block, id=f"{path.name}-{place}")
    for path in DOCUMENTS
    for place, (info, block) in enumerate(re.findall(r"^```yaml(.*?)\n(.*?)^```", path.read_text("utf-8"), re.M | re.S))
]


def options_of(*command: str) -> set[str]:
    """The long options in the help of a command, with those of its subcommands."""
    shown = CliRunner().invoke(cli, [*command, "--help"])
    assert shown.exit_code == 0
    here = cli.get_command(click.Context(cli), command[0]) if len(command) == 1 else None
    below = here.commands if isinstance(here, click.Group) else ()
    found = set(re.findall(r"(?<![\w-])--[a-z-]+", shown.output))
    return found.union(*(options_of(*command, name) for name in below))


def test_the_readme_names_every_command_and_no_other() -> None:
    assert set(re.findall(r"`quantify ([a-z]+)", README)) >= set(COMMANDS)
    for path in DOCUMENTS:
        named = re.findall(r"(?:^|`)quantify ([a-z]+)", path.read_text("utf-8"), re.M)
        assert set(named) <= set(COMMANDS), path.name


def test_every_option_that_is_named_exists_and_every_option_is_named() -> None:
    known = {option for command in COMMANDS for option in options_of(command)} | options_of()
    for path in DOCUMENTS:
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", path.read_text("utf-8")))
        assert named <= known | OTHER_PROGRAMS, path.name
    assert known <= set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", README)) | {"--help", "--version"}


def test_commands_are_shown_with_options_they_have() -> None:
    for path in DOCUMENTS:
        for line in re.findall(r"^quantify [a-z]+ .*", path.read_text("utf-8"), re.M):
            assert set(re.findall(r" (--[a-z-]+)", line)) <= options_of(line.split()[1]), line


def test_the_gate_page_is_complete() -> None:
    for word in (*policy.TOP, *policy.RULE, *METRICS, *REASONS, *policy.RUNGS, *(outcome.value for outcome in Outcome)):
        assert f"`{word}`" in GATE, word


@pytest.mark.parametrize("system", pipelines())
def test_pipelines_use_commands_and_options_that_exist(system: str) -> None:
    shown = CliRunner().invoke(cli, ["init", "--ci", system])
    assert shown.exit_code == 0
    assert isinstance(yaml.parse(shown.output.encode(), system), yaml.Mapping)
    lines = re.findall(r"^[^#\n]*\bquantify ([a-z]+) (.*)", shown.output, re.M)
    assert {command for command, _ in lines} == {"count", "gate"}
    for command, rest in lines:
        assert set(re.findall(r"--[a-z-]+", rest)) <= options_of(command)
    assert f"quantify init --ci {system}" in GATE


def test_the_plan_of_a_batch_is_described() -> None:
    text = (ROOT / "docs/evidence.md").read_text(encoding="utf-8")
    for word in plan.TOP:
        assert re.search(rf"^{word}:|`{word}`", text, re.M), word


def test_the_table_of_engines_is_complete() -> None:
    rows = re.findall(r"^\| `([a-z]+)` \| .* \| (?:exact|sampled|prob-exact).* \|$", README, re.M)
    assert set(rows) == {*engines.discover(), "sample", "cnf"}


def test_every_example_is_named() -> None:
    text = "".join(path.read_text("utf-8") for path in DOCUMENTS)
    assert set(re.findall(r"quantify init --example ([a-z-]+)", text)) == set(examples())


def test_the_language_page_is_complete() -> None:
    for name in (*LIBRARY, *FUNCTIONS, *domain.type_names):
        assert re.search(rf"`{name}[`(]", PROPERTIES), name
    for name in (*domain.FEATURE_KEYS, *(key for keys in properties.source.KEYS.values() for key in keys)):
        assert f"`{name}`" in PROPERTIES, name


@pytest.mark.parametrize(("info", "block"), BLOCKS)
def test_property_files_can_be_read(tmp_path: Path, info: str, block: str) -> None:
    path = tmp_path / "property.yaml"
    path.write_text(block, encoding="utf-8")
    if info == "policy":
        assert policy.load(path).rules
        return
    if info == "plan":
        node = yaml.parse(path.read_bytes(), str(path))
        assert isinstance(node, yaml.Mapping)
        assert {key.text for key, _ in node.items} <= set(plan.TOP)
        return
    if info == "seeds":
        assert seeds.load(path).checkpoints
        return
    if info != "fragment":
        assert properties.load(path).kind
        return
    node = yaml.parse(path.read_bytes(), str(path))
    assert isinstance(node, yaml.Mapping)
    ((key, section),) = node.items
    assert key.text == "domain"
    assert domain.build(section, hand_model(4), tmp_path).domain.size > 1
