"""Best fit, first fit and the Falkenauer metric against packings by hand and by brute force; sets of instances."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quantify.dataset import packing
from quantify.dataset.packing import Packing
from quantify.errors import InputError


def bins_by_definition(items: list[int], capacity: int, solver: str) -> list[list[int]]:
    """Bins with what is in them: each item into the fullest, or the first, of all bins that it fits into."""
    bins: list[list[int]] = []
    for item in items:
        feasible = [one for one in bins if sum(one) + item <= capacity]
        if not feasible:
            bins.append([item])
        elif solver == "first_fit":
            feasible[0].append(item)
        else:
            max(feasible, key=sum).append(item)
    return bins


def falkenauer(items: list[int], capacity: int, solver: str) -> Fraction:
    bins = bins_by_definition(items, capacity, solver)
    return sum((Fraction(sum(one), capacity) ** 2 for one in bins), Fraction(0)) / len(bins)


def test_a_packing_by_hand() -> None:
    # Best fit: [90, 60] [100, 50]; first fit puts 50 into the first bin, and 60 into a new one.
    items = np.array([[90, 100, 50, 60]])
    assert bins_by_definition(items[0].tolist(), 150, "first_fit") == [[90, 50], [100], [60]]
    best, first = packing.pack(items, 150, "best_fit"), packing.pack(items, 150, "first_fit")
    assert (best.squares.tolist(), best.bins.tolist()) == ([150**2 + 150**2], [2])
    assert (first.squares.tolist(), first.bins.tolist()) == ([140**2 + 100**2 + 60**2], [3])
    assert Packing().winners(items).tolist() == [0]
    assert Packing(("first_fit", "best_fit")).winners(items).tolist() == [1]
    assert Packing().winners(np.array([[50, 50, 50]])).tolist() == [-1]


def test_equal_fractions_with_other_bins_are_a_tie() -> None:
    # 4/1 and 8/2: only cross products see that these are equal, and that 2^59+1 over 3 is not 2^59 over 3.
    def compared(squares0: int, bins0: int, squares1: int, bins1: int) -> int:
        winners = np.empty(1, np.int8)
        arrays = [np.array([v], t) for v, t in zip((squares0, bins0, squares1, bins1), ("i8", "i4") * 2, strict=True)]
        kinds = ("int64_t", "int32_t") * 2
        pointers = [packing.pointer(kind, array) for kind, array in zip(kinds, arrays, strict=True)]
        packing.lib().packing_compare(*pointers, 1, packing.pointer("int8_t", winners))
        return int(winners[0])

    assert compared(4, 1, 8, 2) == -1
    assert compared(2**59 + 1, 3, 2**59, 3) == 0
    assert compared(2**59, 2**20 - 1, 2**59 + 1, 2**20 - 1) == 1


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_packings_against_brute_force(data: st.DataObject) -> None:
    capacity = data.draw(st.sampled_from([1, 2, 7, 63, 64, 65, 150, 1000]))
    count, length = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 70))
    largest = data.draw(st.integers(1, capacity))
    rows = data.draw(st.lists(st.lists(st.integers(1, largest), min_size=length, max_size=length), min_size=count,
                              max_size=count))  # fmt: skip
    instances = np.array(rows, dtype=np.int64)
    for solver in packing.SOLVERS:
        told = packing.pack(instances, capacity, solver)
        for items, squares, bins in zip(rows, told.squares.tolist(), told.bins.tolist(), strict=True):
            packed = bins_by_definition(items, capacity, solver)
            assert (squares, bins) == (sum(sum(one) ** 2 for one in packed), len(packed))
    domain = Packing(capacity=capacity, low=1, high=capacity)
    expected = []
    for items in rows:
        best, first = (falkenauer(items, capacity, solver) for solver in packing.SOLVERS)
        expected.append(0 if best > first else 1 if first > best else -1)
    assert domain.winners(instances).tolist() == expected
    assert domain.recheck(instances).tolist() == expected


@pytest.mark.parametrize("balance", ["rejection", "search"])
@pytest.mark.parametrize(("items", "count"), [(120, 41), (250, 12)])
def test_sets_are_balanced_and_in_range(balance: packing.Balance, items: int, count: int) -> None:
    domain = Packing()
    instances, winners = packing.generate(count, items, 3, balance=balance, steps=300)
    assert (instances.shape, instances.dtype) == ((count, items), np.int64)
    assert ((instances >= 20) & (instances <= 100)).all()
    assert np.bincount(winners).tolist() == [(count + 1) // 2, count // 2]
    for row, winner in zip(instances.tolist(), winners.tolist(), strict=True):
        best, first = (falkenauer(row, 150, solver) for solver in domain.solvers)
        assert winner == (0 if best > first else 1)
        assert best != first
    # N(60, 20) clipped to 20…100 has mean 60 and standard deviation 19.2; searching moves neither far.
    assert abs(instances.mean() - 60) < 1.5
    assert abs(instances.std() - 19.2) < 1.5
    again, _ = packing.generate(count, items, 3, balance=balance, steps=300)
    other, _ = packing.generate(count, items, 4, balance=balance, steps=300)
    assert (again == instances).all()
    assert (other != instances).any()
    # The winners come in no order that would tell them.
    assert np.flatnonzero(np.diff(winners)).size > 1
    assert winners[: (count + 1) // 2].any()


def test_search_leads_by_the_margin_and_rejection_does_not() -> None:
    domain = Packing()
    searched, winners = packing.generate(20, 120, 1, balance="search", margin=0.02)
    leads = []
    for row, winner in zip(searched.tolist(), winners.tolist(), strict=True):
        best, first = (falkenauer(row, 150, solver) for solver in domain.solvers)
        leads.append(best - first if winner == 0 else first - best)
    assert min(leads) >= Fraction(2, 100)


def test_masks_are_clipped() -> None:
    domain = Packing(low=20, high=100)
    instance = np.array([20, 21, 60, 99, 100])
    masks = np.array([[-1] * 5, [1] * 5, [-3, 0, 3, 3, 0]], dtype=np.int8)
    assert domain.perturb(instance, masks).tolist() == [
        [20, 20, 59, 98, 99],
        [21, 22, 61, 100, 100],
        [20, 21, 63, 100, 100],
    ]
    assert instance.tolist() == [20, 21, 60, 99, 100]


def test_bad_domains_and_instances() -> None:
    with pytest.raises(InputError, match="worst_fit"):
        Packing(("best_fit", "worst_fit"))
    with pytest.raises(InputError, match="sizes from 20 to 200 in bins of 150"):
        Packing(high=200)
    with pytest.raises(InputError, match="sizes from 0"):
        Packing(low=0)
    with pytest.raises(InputError, match="row 1, item 2: a size of 101 is outside 20 to 100"):
        Packing().check(np.array([[20, 100, 50], [20, 30, 101]]))
    Packing().check(np.array([[20, 100]]))
    with pytest.raises(ValueError, match="sizes outside"):
        packing.pack(np.array([[0, 5]]), 10, "best_fit")
    assert pickle.loads(pickle.dumps(Packing(capacity=200))) == Packing(capacity=200)
