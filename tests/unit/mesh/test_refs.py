"""Meshes as they travel."""

import msgspec
import pytest

from danaus.mesh.refs import ActorsRef, HostsRef, ProcsRef, decode_procs, encode_ref, new_id
from danaus.protocol.message import proc_id, split_proc_id
from danaus.protocol.routing import AgentRef
from danaus.runtime.regions import region_bytes, region_of
from danaus.topology import Extent

AGENTS = [AgentRef("h1", "unix:/one"), AgentRef("h2", "unix:/a directory/two")]
NODE = Extent({"hosts": 2, "gpus": 3})


def procs(*agents: AgentRef, per_host: int = 3) -> ProcsRef:
    texts = tuple(agent.to_text() for agent in agents)
    return ProcsRef("p1", "trainers", texts, per_host, region_bytes(NODE.region), b"hosts")


def test_ids_are_new_each_time_and_fit_into_proc_ids_and_file_names() -> None:
    ids = {new_id("p") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(each.startswith("p") and each.isalnum() and len(each) < 20 for each in ids)
    each = ids.pop()
    assert split_proc_id(proc_id(each, 3)) == (each, 3)


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_is_the_same_after_it_travelled_as_text(agent: AgentRef) -> None:
    assert AgentRef.from_text(agent.to_text()) == agent


def test_a_host_has_the_agent_of_its_rank() -> None:
    hosts = HostsRef("hosts", tuple(agent.to_text() for agent in AGENTS))
    assert [hosts.agent_of(0), hosts.agent_of(1)] == AGENTS


def test_procs_have_the_agent_of_the_host_they_were_spawned_on() -> None:
    agent_of = procs(*AGENTS).agent_finder()
    assert [agent_of(rank) for rank in range(6)] == [AGENTS[0]] * 3 + [AGENTS[1]] * 3


def test_all_procs_of_one_host_have_its_agent() -> None:
    agent_of = procs(AGENTS[1], per_host=6).agent_finder()
    assert {agent_of(rank) for rank in range(6)} == {AGENTS[1]}


def test_a_slice_names_the_same_procs_over_another_region() -> None:
    whole = procs(*AGENTS)
    half = whole.with_region(NODE.region.slice(hosts=1))
    assert half.whole_region() == NODE.region.slice(hosts=1)
    assert half.whole_region().ranks() == range(3, 6)
    assert half.with_region(NODE.region) == whole
    assert half.agent_finder()(4) == AGENTS[1]


def test_what_travelled_is_the_same() -> None:
    ref = procs(*AGENTS)
    assert decode_procs(encode_ref(ref)) == ref
    actors = ActorsRef("a1", "trainer", "Trainer", ref, ref.region, ref.region)
    arrived = msgspec.msgpack.decode(encode_ref(actors), type=ActorsRef)
    assert arrived == actors
    assert region_of(arrived.spawned) == NODE.region


def test_a_reference_can_be_a_key() -> None:
    assert len({procs(*AGENTS), procs(*AGENTS), procs(AGENTS[0])}) == 2
