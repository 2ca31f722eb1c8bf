"""The JSON of slices, which is filled in as text: whatever columns and cells are called, it says what was found."""

import csv
import json
import math
import random

import pytest

from quantify.dataset import columns, slices
from quantify.ir.slices import MEET
from quantify.report import slices as report
from quantify.resources import Limits, Progress

AWKWARD = ('say "hi"', "100 %s", "back\\slash", "a,b", "∩ null", "tab\there", "Ω]}", "x")


def found_in(folder, seed, **asked):
    """Slices of a table whose cells are awkward, and whose column `twin` is `odd` again."""
    draw = random.Random(seed)
    header = ["label", 'od"d', "twin%d", "pred", "loss"]
    rows = []
    for _ in range(120):
        odd = draw.choice(AWKWARD)
        loss = "" if odd == "x" else draw.choice(["0.1", "1e-300", "3"])
        rows.append([draw.choice("pn"), odd, odd, draw.choice(["p", "n", ""]), loss])
    with (folder / "awkward.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    table = columns.read(folder / "awkward.csv")
    plan = slices.Plan(**{"label": "label", "attributes": tuple(header[1:3]), "least": 1, **asked})
    given = slices.of_column(table, "pred") if plan.metric == "accuracy" else None
    return slices.look(table, plan, given, Limits(jobs=1), Progress())


def number(value):
    return None if math.isnan(value) else float(value)


@pytest.mark.parametrize("piece", [3, 4096])
@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"incon_of": "base", "depth": 3},
        {"metric": "loss", "column": "loss"},
        {"metric": "loss", "column": "loss", "value_range": (0.0, 5.0)},
        {"unions": 2, "depth": 1, "attributes": ('od"d',)},
    ],
)
def test_every_set_is_written_as_it_was_found(tmp_path, monkeypatch, asked, piece):
    monkeypatch.setattr(report, "PIECE", piece)
    found = found_in(tmp_path, 1, **asked)
    text = "".join(report.pieces(found))
    answer = json.loads(text)
    sets = found.sets
    assert len(answer["sets"]) == len(sets) > 10
    for place, one in enumerate(answer["sets"]):
        wanted = {
            "name": MEET.join(
                f"({name})" if member >= found.names.bare and (sets.members[place] >= 0).sum() > 1 else name
                for member in sets.members[place]
                if member >= 0
                for name in [found.names.generators[member]]
            ),
            "size": int(sets.size[place]),
            **{
                name: number(getattr(sets, name)[place])
                for name in ("value", "lower", "upper", "corrected_lower", "corrected_upper")
            },
            "samples": int(sets.samples[place]),
        }
        if found.metric != "loss":
            wanted["hits"] = int(sets.hits[place])
        if (found.equal_to == place).any():
            wanted["equal"] = found.equal_names(place)
        assert one == wanted
    assert len({one["name"] for one in answer["sets"]}) == len(sets)
    if "attributes" not in asked:
        assert any("equal" in one for one in answer["sets"])
    by_name = {found.set_name(place): place for place in range(len(sets))}
    for one in answer["inconsistency"]:
        place = by_name[one["name"]]
        if math.isnan(sets.incon[place]):
            assert (one["value"], one["attained_at"], one["change"]) == (None, None, None)
        else:
            inside = by_name[one["attained_at"]]
            assert (one["value"], inside) == (sets.incon[place], sets.attained[place])
            assert one["change"] == sets.value[place] - sets.value[inside]
    if found.metric == "loss":
        assert any(one["value"] is None for one in answer["inconsistency"])
    lines = text.splitlines()
    assert sum(line.startswith('    {"name":') for line in lines) == len(sets) + len(answer["inconsistency"])


def test_what_is_kept_of_an_answer_is_part_of_it(tmp_path):
    found = found_in(tmp_path, 2)
    kept, answer = report.brief(found), json.loads("".join(report.pieces(found)))
    assert kept["sets"] == [one for one in answer["sets"] if one["name"] in {some["name"] for some in kept["sets"]}]
    assert kept["left_out"] == len(answer["sets"]) - len(kept["sets"]) > 0
    assert kept["inconsistency"] == answer["inconsistency"][: len(kept["inconsistency"])] != []
