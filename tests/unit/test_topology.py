"""Extents, points and regions, held against a model that lists every rank."""

import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from danaus.errors import ConfigError
from danaus.topology import Extent, Point, Region

few = settings(max_examples=25, deadline=None)

NODE = Extent({"hosts": 2, "gpus": 4})


@dataclass(frozen=True)
class Model:
    """Axes, sizes and every rank in order."""

    axes: tuple[str, ...]
    sizes: tuple[int, ...]
    ranks: tuple[int, ...]

    def pick(self, choice: dict[str, int | Sequence[int]]) -> "Model":
        """The same selection as `Region.slice`, with indexes already in range."""
        kept = [axis for axis in self.axes if not isinstance(choice.get(axis), int)]
        wanted = [choice.get(axis, range(size)) for axis, size in zip(self.axes, self.sizes, strict=True)]
        lists = [[want] if isinstance(want, int) else list(want) for want in wanted]
        sizes = [len(picks) for axis, picks in zip(self.axes, lists, strict=True) if axis in kept]
        return Model(tuple(kept), tuple(sizes), tuple(self.ranks[self.flat(at)] for at in product(*lists)))

    def flat(self, at: Sequence[int]) -> int:
        index = 0
        for coordinate, size in zip(at, self.sizes, strict=True):
            index = index * size + coordinate
        return index


def assert_same(region: Region, model: Model) -> None:
    assert (region.extent.axes, region.extent.sizes) == (model.axes, model.sizes)
    assert tuple(region.ranks()) == model.ranks


names = st.lists(st.sampled_from(["hosts", "gpus", "dp", "tp"]), unique=True, max_size=3)
extents = names.flatmap(lambda axes: st.fixed_dictionaries({axis: st.integers(1, 4) for axis in axes})).map(Extent)


@st.composite
def selectors(draw: st.DrawFn, size: int) -> tuple[int | slice | list[int], int | list[int]]:
    """A selector and the indexes in range that it stands for."""
    kind = draw(st.sampled_from(["index", "slice", "list"]))
    if kind == "index":
        index = draw(st.integers(-size, size - 1))
        return index, index % size
    if kind == "slice":
        part = draw(st.slices(size))
        assume(range(size)[part])
        return part, list(range(size)[part])
    places = draw(st.lists(st.integers(0, size - 1), unique=True, min_size=1, max_size=size))
    return [place - draw(st.sampled_from([0, size])) for place in places], places


@st.composite
def selections(draw: st.DrawFn, extent: Extent) -> tuple[dict, dict]:
    pairs = {axis: draw(selectors(size)) for axis, size in extent.items() if draw(st.booleans())}
    return {axis: given for axis, (given, _) in pairs.items()}, {axis: picks for axis, (_, picks) in pairs.items()}


@st.composite
def regions(draw: st.DrawFn) -> tuple[Region, Model]:
    """A region after a few slices and flattenings, with its model: whole, strided, reversed or irregular."""
    extent = draw(extents)
    region, model = extent.region, Model(extent.axes, extent.sizes, tuple(range(extent.num_points)))
    for step in draw(st.lists(st.sampled_from(["slice", "flatten"]), max_size=3)):
        if step == "slice":
            chosen, picks = draw(selections(region.extent))
            region, model = region.slice(**chosen), model.pick(picks)
        else:
            region, model = region.flatten("flat"), Model(("flat",), (len(model.ranks),), model.ranks)
    return region, model


def through_msgpack(wire: object) -> object:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(wire))


def offset_and_stride_only(region: Region) -> bool:
    return region.to_wire()[2] == "strided"


@few
@given(extents)
def test_rank_of_a_points_coordinates_is_its_rank(extent: Extent) -> None:
    assert [extent.rank_of(**point) for point in extent.points()] == list(range(extent.num_points))


@few
@given(extents)
def test_points_of_an_extent_are_in_row_major_order(extent: Extent) -> None:
    assert [tuple(point.values()) for point in extent.points()] == list(product(*map(range, extent.sizes)))


@few
@given(extents)
def test_extent_and_its_points_survive_pickle_and_wire(extent: Extent) -> None:
    last = extent.point(extent.num_points - 1)
    assert pickle.loads(pickle.dumps((extent, last))) == (extent, last)
    assert Extent.from_wire(through_msgpack(extent.to_wire())) == extent


@few
@given(extents)
def test_equal_extents_and_points_have_equal_hashes(extent: Extent) -> None:
    twin = Extent(dict(extent))
    assert {extent: 1, extent.point(0): 2} == {twin: 1, twin.point(0): 2}


def test_extent_is_a_mapping_in_the_order_given() -> None:
    assert list(NODE.items()) == [("hosts", 2), ("gpus", 4)]
    assert (NODE.axes, NODE.sizes, NODE.num_points) == (("hosts", "gpus"), (2, 4), 8)


def test_order_of_axes_counts_between_extents_but_not_against_a_dict() -> None:
    assert Extent({"gpus": 4, "hosts": 2}) != NODE
    assert NODE == {"gpus": 4, "hosts": 2}


def test_extent_without_axes_has_one_point_without_coordinates() -> None:
    (point,) = Extent({}).points()
    assert (dict(point), point.rank, str(point)) == ({}, 0, "")


def test_concat_of_extents_puts_the_axes_of_the_second_last() -> None:
    assert Extent({"hosts": 2}).concat(Extent({"gpus": 4})) == NODE


def test_concat_of_extents_names_the_axes_that_clash() -> None:
    with pytest.raises(ConfigError, match="both extents have the axes gpus"):
        NODE.concat(Extent({"gpus": 1}))


@pytest.mark.parametrize(
    ("axes", "text"),
    [
        ({"gpus": 0}, "axis 'gpus' has size 0; every axis needs at least 1"),
        ({"gpus": -1}, "axis 'gpus' has size -1"),
        ({"gpus": 2.0}, "axis 'gpus' has size 2.0; every axis needs an int"),
        ({"gpus": True}, "axis 'gpus' has size True; every axis needs an int"),
        ({"": 1}, "axis name '' is not an identifier"),
        ({"a b": 1}, "axis name 'a b' is not an identifier"),
        ({3: 1}, "axis name 3 is not an identifier"),
        ({"a": 2**20, "b": 2**20}, "at most 4294967296 points"),
        (4, "made of a mapping"),
    ],
)
def test_unusable_extent_says_what_would_be_right(axes: object, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Extent(axes)


def test_point_reads_by_axis_and_prints_in_axis_order() -> None:
    point = NODE.point(5)
    assert (point["hosts"], point["gpus"], point.size("gpus")) == (1, 1, 4)
    assert (str(point), repr(point)) == ("hosts=1, gpus=1", "Point(hosts=1/2, gpus=1/4)")
    assert point == {"hosts": 1, "gpus": 1}


def test_points_of_different_extents_differ_even_at_equal_coordinates() -> None:
    assert Extent({"gpus": 2}).point(1) != Extent({"gpus": 4}).point(1)


def test_missing_axis_of_a_point_is_a_key_error_that_lists_the_axes() -> None:
    point = NODE.point(0)
    with pytest.raises(KeyError, match="no axis 'tp'; the axes are hosts, gpus"):
        point["tp"]
    assert "tp" not in point
    assert point.get("tp") is None


def test_rank_outside_the_extent_is_an_index_error() -> None:
    for rank in (-1, 8):
        with pytest.raises(IndexError, match="out of range for an extent of 8 points"):
            NODE.point(rank)


def test_rank_of_needs_one_index_for_each_axis() -> None:
    assert NODE.rank_of(hosts=-1, gpus=-1) == 7
    with pytest.raises(ConfigError, match="no index for gpus"):
        NODE.rank_of(hosts=0)
    with pytest.raises(IndexError, match="index 4 is out of range for axis 'gpus' of size 4"):
        NODE.rank_of(hosts=0, gpus=4)


@pytest.mark.parametrize(
    ("value", "name"), [(NODE, "axes"), (NODE, "sizes"), (NODE.point(1), "rank"), (NODE.region, "extent")]
)
def test_nothing_can_be_set_on_a_value(value: object, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(value, name, ())


@few
@given(regions())
def test_slices_select_what_the_model_selects(pair: tuple[Region, Model]) -> None:
    assert_same(*pair)


@few
@given(regions())
def test_rank_at_and_index_of_are_inverse(pair: tuple[Region, Model]) -> None:
    region, model = pair
    assert [region.rank_at(index) for index in range(len(region))] == list(model.ranks)
    assert [region.index_of(rank) for rank in model.ranks] == list(range(len(region)))


@few
@given(regions())
def test_a_region_contains_its_ranks_and_no_others(pair: tuple[Region, Model]) -> None:
    region, model = pair
    everywhere = range(-3, region.base.num_points + 3)
    assert [rank for rank in everywhere if rank in region] == sorted(model.ranks)


@few
@given(regions())
def test_region_survives_wire_and_pickle(pair: tuple[Region, Model]) -> None:
    region, _ = pair
    assert Region.from_wire(through_msgpack(region.to_wire())) == region
    assert pickle.loads(pickle.dumps(region)) == region


@few
@given(regions())
def test_evenly_spaced_ranks_in_one_axis_are_always_regular(pair: tuple[Region, Model]) -> None:
    flat = pair[0].flatten("flat")
    gaps = {after - before for before, after in zip(flat.ranks(), flat.ranks()[1:], strict=False)}
    assert offset_and_stride_only(flat) == isinstance(flat.ranks(), range) == (len(gaps) <= 1)


@few
@given(regions(), st.data())
def test_equal_selections_are_equal_however_they_were_made(pair: tuple[Region, Model], data: st.DataObject) -> None:
    region, _ = pair
    _, picks = data.draw(selections(region.extent))
    one_by_one = region
    for axis, picked in picks.items():
        one_by_one = one_by_one.slice(**{axis: picked})
    assert one_by_one == region.slice(**picks)
    assert hash(one_by_one) == hash(region.slice(**picks))


@few
@given(extents, st.data())
def test_indexes_and_python_slices_keep_a_regular_region_regular(extent: Extent, data: st.DataObject) -> None:
    chosen, picks = data.draw(selections(extent))
    assume(not any(isinstance(selector, list) for selector in chosen.values()))
    assert offset_and_stride_only(extent.region.slice(**chosen))
    assert offset_and_stride_only(extent.region.slice(**picks))


@few
@given(regions())
def test_iteration_gives_each_point_as_a_region_without_axes(pair: tuple[Region, Model]) -> None:
    region, model = pair
    parts = list(region)
    assert [part.ranks()[0] for part in parts] == list(model.ranks)
    assert all(part.extent == {} and len(part) == 1 for part in parts)
    assert parts == [region.at(**point) for point in region.points()]


@few
@given(regions(), st.integers(1, 3), st.integers(1, 3))
def test_split_undoes_flatten_and_flatten_undoes_split(pair: tuple[Region, Model], a: int, b: int) -> None:
    region, _ = pair
    flat = region.flatten("flat")
    if region.extent.axes and "flat" not in region.extent:
        assert flat.split(flat=region.sizes) == region
    size = len(flat)
    assume(size % (a * b) == 0)
    assert flat.split(flat=("x", "y", "z"), x=a, z=b) == flat.split(flat={"x": a, "y": size // (a * b), "z": b})
    assert flat.split(flat=("x", "y", "z"), x=a, z=b).flatten("flat") == flat


@few
@given(regions())
def test_rename_changes_names_only(pair: tuple[Region, Model]) -> None:
    region, model = pair
    renamed = region.rename(**{axis: f"{axis}_new" for axis in region.extent})
    assert_same(renamed, Model(tuple(f"{axis}_new" for axis in model.axes), model.sizes, model.ranks))


@few
@given(regions(), st.data())
def test_concat_of_the_two_parts_of_an_axis_gives_the_region_back(
    pair: tuple[Region, Model], data: st.DataObject
) -> None:
    region, _ = pair
    wide = [axis for axis, size in region.sizes.items() if size > 1]
    assume(wide)
    axis = data.draw(st.sampled_from(wide))
    cut = data.draw(st.integers(1, region.size(axis) - 1))
    left, right = region.slice(**{axis: slice(cut)}), region.slice(**{axis: slice(cut, None)})
    assert left.concat(right, axis=axis) == region


@few
@given(regions())
def test_sizes_multiply_to_the_number_of_points(pair: tuple[Region, Model]) -> None:
    region, model = pair
    assert region.size() == len(region) == len(model.ranks) == math.prod(region.sizes.values())
    assert region.size(list(model.axes)) == len(model.ranks)
    assert [region.size(axis) for axis in model.axes] == list(model.sizes)


@few
@given(regions())
def test_whole_means_every_rank_in_order_in_any_shape(pair: tuple[Region, Model]) -> None:
    region, model = pair
    assert region.is_whole == (model.ranks == tuple(range(region.base.num_points)))


def test_ranks_of_a_regular_slice_are_a_range_whatever_the_size() -> None:
    region = Extent({"hosts": 2**20, "gpus": 8}).region
    assert region.ranks() == range(2**23)
    assert region.slice(gpus=-1).ranks() == range(7, 2**23, 8)
    assert region.slice(hosts=slice(None, None, -1), gpus=0).ranks() == range(2**23 - 8, -8, -8)


def test_a_list_in_even_steps_is_as_regular_as_a_slice() -> None:
    assert NODE.region.slice(gpus=[3, 1]) == NODE.region.slice(gpus=slice(3, 0, -2))


def test_split_can_cut_several_axes_at_once_and_reuse_a_name() -> None:
    region = NODE.region.split(hosts=("hosts", "socket"), socket=2, gpus={"dp": 2, "tp": 2})
    assert region.sizes == {"hosts": 1, "socket": 2, "dp": 2, "tp": 2}
    assert region.is_whole


def test_rename_can_swap_two_names() -> None:
    assert NODE.region.rename(hosts="gpus", gpus="hosts").sizes == {"gpus": 2, "hosts": 4}


@pytest.mark.parametrize(
    ("act", "error", "text"),
    [
        (lambda r: r.slice(tp=0), ConfigError, "no axis 'tp'; the axes are hosts, gpus"),
        (lambda r: r.slice(gpus=4), IndexError, "index 4 is out of range for axis 'gpus' of size 4"),
        (lambda r: r.slice(gpus=[0, -5]), IndexError, "index -5 is out of range for axis 'gpus' of size 4"),
        (lambda r: r.slice(gpus=[]), ConfigError, r"\[\] selects nothing of axis 'gpus'"),
        (lambda r: r.slice(gpus=slice(4, None)), ConfigError, "selects nothing of axis 'gpus' of size 4"),
        (lambda r: r.slice(gpus=slice(0, 4, 0)), ConfigError, "axis 'gpus' cannot be sliced"),
        (lambda r: r.slice(gpus=[1, -3]), ConfigError, "names a place of axis 'gpus' twice"),
        (lambda r: r.slice(gpus=True), ConfigError, "cannot be indexed by True"),
        (lambda r: r.slice(gpus="0"), ConfigError, "cannot be indexed by '0'"),
        (lambda r: r.slice(gpus=None), ConfigError, "cannot be indexed by None"),
        (lambda r: r.slice(gpus=1.0), ConfigError, "use an int, a slice or a list"),
        (lambda r: r.at(gpus=1), ConfigError, "no index for hosts"),
        (lambda r: r.at(gpus=1, hosts=slice(0, 1)), ConfigError, "cannot be indexed by slice"),
        (lambda r: r.size("tp"), ConfigError, "no axis 'tp'"),
        (lambda r: r.split(tp={"a": 1}), ConfigError, "no axis 'tp'"),
        (lambda r: r.split(gpus={"a": 3, "b": 2}), ConfigError, "size 4 cannot be split into .*, which makes 6"),
        (lambda r: r.split(gpus=("a", "b"), a=3), ConfigError, "size 4 cannot be split into {'a': 3}"),
        (lambda r: r.split(gpus=("a", "b")), ConfigError, "a, b of unknown size; give all sizes but one"),
        (lambda r: r.split(gpus=("a", "b"), a=0), ConfigError, "axis 'a' has size 0"),
        (lambda r: r.split(gpus=("a", "a"), a=2), ConfigError, "more than one axis would be called a"),
        (lambda r: r.split(gpus=("hosts", "b"), b=2), ConfigError, "more than one axis would be called hosts"),
        (lambda r: r.split(gpus={"a": 4}, a=4), ConfigError, "sizes given for a, but no axis is split into that"),
        (lambda r: r.split(tp=2), ConfigError, "sizes given for tp"),
        (lambda r: r.split(gpus="ab"), ConfigError, "name the new axes as in"),
        (lambda r: r.split(gpus=()), ConfigError, "name the new axes as in"),
        (lambda r: r.split(gpus=1.5), ConfigError, "name the new axes as in"),
        (lambda r: r.flatten("a b"), ConfigError, "not an identifier"),
        (lambda r: r.rename(tp="x"), ConfigError, "no axis 'tp'"),
        (lambda r: r.rename(hosts="gpus"), ConfigError, "more than one axis would be called gpus"),
        (lambda r: r.rename(hosts=3), ConfigError, "axis name 3 is not an identifier"),
        (lambda r: r.concat(r, axis="tp"), ConfigError, "no axis 'tp'"),
        (lambda r: r.concat(r, axis="gpus"), ConfigError, "share 8 ranks, such as 0"),
        (lambda r: r.concat(r.slice(hosts=0), axis="gpus"), ConfigError, "all else must be equal"),
        (lambda r: r.slice(gpus=[0]).concat(r.slice(hosts=[0]), axis="gpus"), ConfigError, "all else must be equal"),
        (lambda r: r.concat(Extent({"gpus": 4}).region, axis="gpus"), ConfigError, "regions of two bases"),
        (lambda r: r.rank_at(8), IndexError, "index 8 is out of range for a region of 8 points"),
        (lambda r: r.rank_at(-1), IndexError, "out of range"),
        (lambda r: r.slice(hosts=0).index_of(4), ConfigError, "rank 4 is not in Region"),
        (lambda r: r.slice(hosts=0, gpus=0).slice(gpus=0), ConfigError, "there are no axes"),
    ],
)
def test_misuse_says_what_and_where(act: Callable[[Region], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        act(NODE.region)


def test_a_regular_region_of_8192_points_takes_less_than_200_bytes() -> None:
    region = Extent({"hosts": 1024, "gpus": 16}).region.slice(gpus=slice(0, None, 2))
    assert len(region) == 8192
    assert len(msgspec.msgpack.encode(region.to_wire())) < 100
    assert len(pickle.dumps(region)) < 200


def test_irregular_ranks_in_ascending_order_take_a_bit_each_of_the_base() -> None:
    region = Extent({"gpus": 4096}).region.slice(gpus=[rank for rank in range(4096) if rank % 3])
    assert len(msgspec.msgpack.encode(region.to_wire())) <= 4096 // 8 + 64


def test_few_irregular_ranks_or_ranks_out_of_order_take_four_bytes_each() -> None:
    whole = Extent({"gpus": 4096}).region
    for picks in ([0, 1, 4095], [7, *range(1000, 100, -1)]):
        assert len(msgspec.msgpack.encode(whole.slice(gpus=picks).to_wire())) <= 4 * len(picks) + 64


_GPUS = ("gpus", 8)


@pytest.mark.parametrize(
    "wire",
    [
        None,
        b"",
        (),
        (_GPUS, _GPUS),
        (_GPUS, _GPUS, "other", 0, 1),
        (_GPUS, _GPUS, "strided"),
        (_GPUS, _GPUS, "strided", 0),
        (_GPUS, _GPUS, "strided", 0, 1, 1),
        (_GPUS, _GPUS, "strided", 0, 1.0),
        (_GPUS, _GPUS, "strided", False, 1),
        (_GPUS, _GPUS, "strided", 1, 1),
        (_GPUS, _GPUS, "strided", 0, -1),
        (_GPUS, _GPUS, "strided", 0, 0),
        (_GPUS, ("a", 2, "b", 3), "strided", 0, 2, 1),
        (_GPUS, ("gpus", 0), "strided", 0, 1),
        (_GPUS, ("gpus",), "strided", 0, 1),
        (_GPUS, "gpus", "strided", 0, 1),
        (_GPUS, ("a", 2, "a", 2), "strided", 0, 2, 1),
        (_GPUS, ([], 2), "strided", 0, 2),
        (_GPUS, ("gpus", 3), "bitmap", b"\x03"),
        (_GPUS, ("gpus", 3), "bitmap", b"\x03\x01"),
        (_GPUS, ("gpus", 3), "bitmap", "abc"),
        (_GPUS, ("gpus", 1), "ranks", b""),
        (_GPUS, ("gpus", 1), "ranks", b"\0\0\0\0\0"),
        (_GPUS, ("gpus", 1), "ranks", b"\x08\0\0\0"),
        (_GPUS, ("gpus", 2), "ranks", b"\0\0\0\0" * 2),
    ],
)
def test_malformed_wire_is_refused(wire: object) -> None:
    with pytest.raises(ConfigError):
        Region.from_wire(wire)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 9) | st.sampled_from(["a", "strided", "bitmap", "ranks"]) | st.binary(),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)
shapes = extents.map(lambda extent: list(extent.to_wire())) | json_like


@few
@given(st.tuples(shapes, shapes, st.sampled_from(["strided", "bitmap", "ranks"]), json_like, json_like) | json_like)
def test_whatever_arrives_is_a_sound_region_or_a_config_error(wire: object) -> None:
    for sent in (wire, wire[:-1] if isinstance(wire, tuple) else wire):
        try:
            region = Region.from_wire(sent)
        except ConfigError:
            continue
        assert len(set(region.ranks())) == len(region)
        assert set(region.ranks()) <= set(range(region.base.num_points))
        assert all(region.rank_at(region.index_of(rank)) == rank for rank in region.ranks())


def test_a_point_of_a_slice_counts_within_the_slice() -> None:
    region = NODE.region.slice(gpus=slice(2, 4))
    points: list[Point] = list(region.points())
    assert [region.rank_at(point.rank) for point in points] == [2, 3, 6, 7]
    assert points[3] == {"hosts": 1, "gpus": 1}
