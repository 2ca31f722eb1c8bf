"""Certificate files: written and read back whole, and whatever else is in them is bad input or refuted."""

import gzip
import hashlib
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from certificate_trees import exactly, node_places, of_every_kind, proven
from random_networks import int_layer, network_problem

from quantify.errors import InputError, UndecidedError
from quantify.evidence.certificates.check import RefutedError, check
from quantify.evidence.certificates.file import CaseHead, Head, Reader, Writer, case_line, head_line
from quantify.evidence.certificates.verify import verify
from quantify.ir.domain import Measure
from quantify.ir.network import IntNetwork
from quantify.ir.predicate import HasLabel
from quantify.ir.problem import Box
from quantify.resources import Limits, Progress

HEAD = Head("0" * 64, "model.onnx", "1" * 64, "p.yaml", "property: safety\n")


@pytest.fixture(scope="module")
def example():
    return of_every_kind(24, (8, 8, 8), 8)


def sealed(problem, stream, counts, head=HEAD, digest=None):
    """The content of a certificate."""
    name = digest or problem.digest(problem.cases[0])
    text = head_line(head) + case_line(CaseHead(0, name, counts, len(stream))) + stream
    return text + json.dumps({"sha256": hashlib.sha256(text).hexdigest()}).encode() + b"\n"


def verdicts(path, problem):
    with Reader(path) as reader:
        return verify(reader, problem, Limits(), Progress())


def test_a_certificate_is_written_read_and_verified(tmp_path, example):
    problem, stream, counts = example
    path = tmp_path / "c.cert"
    with Writer(path, HEAD) as writer:
        writer.add(CaseHead(0, problem.digest(problem.cases[0]), counts, len(stream)), stream)
    assert writer.size == path.stat().st_size
    assert gzip.decompress(path.read_bytes()).startswith(b'{"format":"quantify-certificate","version":1,')
    assert list(tmp_path.iterdir()) == [path]
    with Reader(path) as reader:
        assert reader.head == HEAD
        (verdict,) = verify(reader, problem, Limits(), Progress())
    assert verdict.refuted == ""
    assert verdict.counts == counts
    assert sum(verdict.leaves.values()) == sum(kind >= 0x40 for _, kind in node_places(stream, problem))


def test_nothing_is_left_of_a_run_that_fails(tmp_path):
    path = tmp_path / "c.cert"
    path.write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), Writer(path, HEAD):
        raise ZeroDivisionError
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(InputError, match="cannot be written"), Writer(tmp_path / "no" / "c.cert", HEAD):
        pass


def test_claims_that_the_leaves_do_not_support_are_refuted(tmp_path, example):
    problem, stream, counts = example
    path = tmp_path / "c.cert"
    for name, (low, high) in counts.items():
        for ends in ((low + 1, high + 1), (low, high + 1), (low - 1, high)):
            path.write_bytes(gzip.compress(sealed(problem, stream, {**counts, name: ends} if ends[0] >= 0 else {})))
            if ends[0] < 0:
                continue
            (verdict,) = verdicts(path, problem)
            assert "add up to" in verdict.refuted
    path.write_bytes(gzip.compress(sealed(problem, stream, dict(itertools.islice(counts.items(), 2)))))
    with pytest.raises(InputError, match="another problem"):
        verdicts(path, problem)
    path.write_bytes(gzip.compress(sealed(problem, stream, counts, digest="0" * 64)))
    with pytest.raises(InputError, match="another problem"):
        verdicts(path, problem)


def test_a_certificate_says_of_every_query_what_its_leaves_prove_and_of_nothing_else(tmp_path, example):
    problem, stream, counts = example
    case = problem.cases[0]
    path = tmp_path / "c.cert"
    # Signed by somebody who knows how, with the digest of the case that is left.
    left = replace(case, queries=case.queries[1:])
    some = {query.name: counts[query.name] for query in left.queries}
    path.write_bytes(gzip.compress(sealed(problem, stream, some, digest=problem.digest(left))))
    with pytest.raises(InputError, match="another problem"):
        verdicts(path, problem)
    path.write_bytes(gzip.compress(sealed(problem, stream, {**counts, "robust": (1, 1)})))
    with pytest.raises(InputError, match="another problem"):
        verdicts(path, problem)


def test_files_that_are_no_certificates_are_bad_input(tmp_path, example):
    problem, stream, counts = example
    good = sealed(problem, stream, counts)
    path = tmp_path / "c.cert"
    cases = {
        "no certificate": [gzip.compress(b"{}\n"), gzip.compress(b"hello\n"), gzip.compress(b"[]\n")],
        "damaged|no certificate": [
            b"", b"PK\x03\x04", gzip.compress(b"hello"),
            gzip.compress(good)[:-20], gzip.compress(good[:-90]), gzip.compress(good[:200]),
            gzip.compress(good + b"x"), gzip.compress(good) + b"x", gzip.compress(good.replace(b"\x41", b"\x43", 1)),
        ],
        "version": [gzip.compress(good.replace(b'"version":1', b'"version":' + v, 1)) for v in (b"2", b"true", b'"1"')],
    }  # fmt: skip
    for match, contents in cases.items():
        for content in contents:
            path.write_bytes(content)
            with pytest.raises(InputError, match=match):
                verdicts(path, problem)
    with pytest.raises(InputError, match="cannot be read"):
        Reader(tmp_path / "none")


def test_what_is_never_complete_is_given_up(example):
    # A step that goes on for ever, after a leaf's labels and one step announced.
    blocks = itertools.chain(
        [b"\x40" + bytes([0xFF] * example[0].labels) + b"\x01"], itertools.repeat(b"\x80" * 50, 20)
    )
    problem = example[0]
    with pytest.raises(RefutedError, match="too long"):
        check(problem, problem.cases[0], blocks, 1, Limits(), Progress())
    assert len(list(blocks)) > 10


def test_a_small_file_that_holds_too_much_stops_in_time(tmp_path, example):
    problem, _, counts = example
    path = tmp_path / "c.cert"
    path.write_bytes(gzip.compress(sealed(problem, bytes(1 << 20), counts)))
    assert path.stat().st_size < 4000
    calls = []

    def go_on():
        calls.append(1)
        if len(calls) > 3:
            raise UndecidedError("the time was up")

    with pytest.raises(UndecidedError):
        Reader(path, go_on)
    (verdict,) = verdicts(path, problem)
    assert "outside its box" in verdict.refuted


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../p.yaml", "/etc/p.yaml", "a\0b", "a\x1b[2Jb", "p\n.yaml", "x" * 300]
)
def test_names_that_lead_elsewhere_are_refused(tmp_path, example, name):
    problem, stream, counts = example
    path = tmp_path / "c.cert"
    for head in (replace(HEAD, property=name), replace(HEAD, model=name)):
        path.write_bytes(gzip.compress(sealed(problem, stream, counts, head)))
        with pytest.raises(InputError, match="names no files"):
            Reader(path)


def test_text_that_cannot_be_written_is_refused(tmp_path, example):
    problem, stream, counts = example
    path = tmp_path / "c.cert"
    path.write_bytes(gzip.compress(sealed(problem, stream, counts).replace(b"property: safety", b"\\ud800", 1)))
    with pytest.raises(InputError, match="no text"):
        Reader(path)


@pytest.mark.parametrize(
    "change",
    [
        {"case": True}, {"case": "0"}, {"case": 0.0}, {"bytes": -1}, {"bytes": "5"}, {"bytes": True}, {"bytes": None},
        {"counts": []}, {"counts": {"0": ["1"]}}, {"counts": {"0": [1, 1]}}, {"counts": {"0": ["-1", "1"]}},
        {"counts": {"0": ["1e3", "1"]}}, {"counts": {"0": ["9" * 65, "1"]}}, {"counts": {"0": ["\u0661", "1"]}},
    ],
)  # fmt: skip
def test_lines_that_are_not_what_they_must_be_are_refused(tmp_path, example, change):
    _, stream, counts = example
    line = {**json.loads(case_line(CaseHead(0, "d", counts, len(stream)))), **change}
    text = head_line(HEAD) + json.dumps(line).encode() + b"\n" + stream
    path = tmp_path / "c.cert"
    path.write_bytes(gzip.compress(text + json.dumps({"sha256": hashlib.sha256(text).hexdigest()}).encode() + b"\n"))
    with pytest.raises(InputError, match="damaged"):
        Reader(path)


def test_names_that_come_twice_are_refused(tmp_path, example):
    problem, stream, counts = example
    line = case_line(CaseHead(0, problem.digest(problem.cases[0]), counts, len(stream)))
    path = tmp_path / "c.cert"
    for one, two in (
        (b'"0":', b'"0":["0","0"],"0":'),
        (b'"counts":', b'"counts":{},"counts":'),
        (b'"case":0', b'"case":1,"case":0'),
        (b'"format":', b'"format":"x","format":'),
    ):
        text = (head_line(HEAD) + line).replace(one, two, 1) + stream
        assert two in text
        seal = json.dumps({"sha256": hashlib.sha256(text).hexdigest()}).encode() + b"\n"
        path.write_bytes(gzip.compress(text + seal))
        with pytest.raises(InputError, match=r"damaged|no certificate"):
            Reader(path)


def of_cases(path, problem, numbers, counts, streams):
    text = head_line(HEAD)
    for number, ends, stream in zip(numbers, counts, streams, strict=True):
        digest = problem.digest(problem.cases[number]) if 0 <= number < len(problem.cases) else "d"
        text += case_line(CaseHead(number, digest, ends, len(stream))) + stream
    path.write_bytes(gzip.compress(text + json.dumps({"sha256": hashlib.sha256(text).hexdigest()}).encode() + b"\n"))
    return path


def test_every_case_is_checked_against_its_own_region(tmp_path):
    network = IntNetwork(1, (int_layer([[1], [0]], [0, 3]),), 2)  # 0 from 3 on
    cases = [network_problem(network, (9,), region=Box((a,), (b,))).cases[0] for a, b in ((0, 9), (0, 5), (4, 9))]
    problem = replace(network_problem(network, (9,)), cases=tuple(cases))
    counts = [exactly({"0": 6, "1": 3}), exactly({"0": 2, "1": 3}), exactly({"0": 5, "1": 0})]
    path = tmp_path / "c.cert"
    found = verdicts(of_cases(path, problem, [0, 1, 2], counts, [b"\x41"] * 3), problem)
    assert [case.refuted for case in found] == [""] * 3
    assert len(verdicts(of_cases(path, problem, [0, 2], counts[::2], [b"\x41"] * 2), problem)) == 2
    # One case for another; the cases after it are not looked at.
    found = verdicts(of_cases(path, problem, [0, 1, 2], [counts[0], counts[2], counts[2]], [b"\x41"] * 3), problem)
    assert [bool(case.refuted) for case in found] == [False, True]
    for numbers, what in (([0, 0], "order"), ([1, 0], "order"), ([-1], "another"), ([3], "another"), ([], "no case")):
        given = [counts[0] if number == 0 else counts[1] for number in numbers]
        with pytest.raises(InputError, match=what):
            verdicts(of_cases(path, problem, numbers, given, [b"\x41"] * len(numbers)), problem)


def test_weighted_inputs_are_not_counted_as_points(tmp_path, example):
    problem, stream, counts = example
    weights = tuple((1,) * size for size in problem.sizes)
    weighted = replace(problem, measure=Measure("product", weights))
    path = tmp_path / "c.cert"
    path.write_bytes(gzip.compress(sealed(weighted, stream, counts)))
    with pytest.raises(InputError, match="weighs inputs"):
        verdicts(path, weighted)


def test_a_region_without_points_has_no_tree(tmp_path):
    problem = network_problem(IntNetwork(1, (int_layer([[1], [1]], [0, 0]),), 2), (9,), region=Box((4,), (4,)))
    assert proven(problem, b"").counts == {"0": (0, 0), "1": (0, 0)}
    for stream in (b"\x41", b"\x43"):
        with pytest.raises(RefutedError, match="empty region"):
            proven(problem, stream)


def test_another_network_grid_or_query_is_another_problem(tmp_path, example):
    problem, stream, counts = example
    path = tmp_path / "c.cert"
    path.write_bytes(gzip.compress(sealed(problem, stream, counts)))
    layers = problem.network.layers
    last = replace(layers[-1], bias=layers[-1].bias + np.eye(problem.labels, dtype=np.int64)[0])
    case = problem.cases[0]
    named = tuple(replace(q, predicate=HasLabel((0,))) for q in case.queries)
    for other in (
        replace(problem, structure=IntNetwork(3, (*layers[:-1], last), problem.labels)),
        replace(problem, sizes=(8, 8, 9)),
        replace(problem, cases=(replace(case, region=Box((0, 0, 0), (8, 8, 7))),)),
        replace(problem, cases=(replace(case, queries=named),)),
        replace(problem, cases=(replace(case, queries=case.queries[::-1]),)),
    ):
        with pytest.raises(InputError, match="another problem"):
            verdicts(path, other)


def test_no_change_of_a_byte_makes_another_count_true(tmp_path):
    problem, stream, counts = of_every_kind(27, (5, 5), 2)
    content = sealed(problem, stream, counts)
    seal = content.rindex(b'{"sha256"')
    path = tmp_path / "c.cert"
    verified = refuted = bad = 0
    for at, byte in enumerate(content):
        for other in {byte ^ 1, byte ^ 0x80, (byte + 1) % 256} - {byte}:
            text = content[:at] + bytes([other]) + content[at + 1 :]
            if at < seal:  # signed again, as somebody who means it would
                body = text[:seal]
                text = body + json.dumps({"sha256": hashlib.sha256(body).hexdigest()}).encode() + b"\n"
            path.write_bytes(gzip.compress(text, 1))
            try:
                (verdict,) = verdicts(path, problem)
            except InputError:
                bad += 1
                continue
            if verdict.refuted:
                refuted += 1
            else:
                verified += 1
                truth = {name: verdict.counts[name][0] for name in counts}
                assert truth == {name: low for name, (low, _) in counts.items()}
                assert all(low == high for low, high in verdict.counts.values())
    assert min(verified, refuted, bad) > 20
