"""Peers: their metadata, their messages and their sessions."""

from datetime import datetime

from honcho.api_types import PeerConfig

from both import UTC, all_of, client, contents, ids, run, same


async def a_peer_is_kept_as_it_was_made(do, honcho):
    ann = await do(honcho).peer("ann", metadata={"age": 7}, configuration=PeerConfig(observe_me=False))
    same((ann.metadata, ann.configuration.observe_me), ({"age": 7}, False))
    assert ann.created_at.tzinfo and abs((datetime.now(UTC) - ann.created_at).total_seconds()) < 3600
    again = await do(client(honcho.workspace_id)).peer("ann")
    same((again.metadata, again.configuration.observe_me), ({"age": 7}, False))
    same(again.created_at, ann.created_at)


async def what_is_set_is_there_when_it_is_asked_for(do, honcho):
    ann = await do(honcho).peer("ann")
    same((await do(ann).get_metadata(), (await do(ann).get_configuration()).observe_me), ({}, None))
    await do(ann).set_metadata({"a": {"b": [1]}})
    await do(ann).set_configuration(PeerConfig(observe_me=True))
    other = await do(client(honcho.workspace_id)).peer("ann")
    same(await do(other).get_metadata(), {"a": {"b": [1]}})
    same((await do(other).get_configuration()).observe_me, True)
    await do(ann).set_metadata({"c": 1})
    await do(other).refresh()
    same((other.metadata, other.configuration.observe_me), ({"c": 1}, True))


async def peers_are_listed_page_by_page(do, honcho):
    names = [f"p{at}" for at in range(5)]
    for at, name in enumerate(names):
        await do(honcho).peer(name, metadata={"at": at, "even": at % 2 == 0})
    first = await do(honcho).peers(size=2)
    same((first.total, first.page, first.size, first.pages, len(first)), (5, 1, 2, 3, 2))
    same(ids(await all_of(first)), names)
    same(ids(await all_of(await do(honcho).peers(size=2, reverse=True))), names[::-1])
    same(ids(await all_of(await do(honcho).peers({"metadata": {"even": True}}, size=1))), ["p0", "p2", "p4"])
    same(ids(await all_of(await do(honcho).peers({"id": {"in": ["p1", "p3", "nobody"]}}))), ["p1", "p3"])


async def whoever_writes_is_a_peer(do, honcho):
    session = await do(honcho).session("s")
    made = (await do(honcho).peer("ann")).message("Hello.")
    made.peer_id = "stranger"
    await do(session).add_messages(made)
    same(ids(await all_of(await do(honcho).peers())), ["ann", "stranger"])
    same(ids(await do(session).peers()), ["stranger"])


async def a_peer_knows_its_sessions(do, honcho):
    ann, bob = await do(honcho).peer("ann"), await do(honcho).peer("bob")
    for at in range(5):
        session = await do(honcho).session(f"s{at}", metadata={"at": at}, peers=[ann] if at < 3 else [bob])
        if at == 4:
            await do(session).add_messages(ann.message("I write, so I take part."))
    same(ids(await all_of(await do(ann).sessions(size=2))), ["s0", "s1", "s2", "s4"])
    same(ids(await all_of(await do(ann).sessions(reverse=True))), ["s4", "s2", "s1", "s0"])
    same(ids(await all_of(await do(ann).sessions({"metadata": {"at": {"gt": 1}}}))), ["s2", "s4"])
    same(ids(await all_of(await do(bob).sessions())), ["s3", "s4"])


async def a_peer_finds_its_own_words_only(do, honcho):
    ann, bob = await do(honcho).peer("ann"), await do(honcho).peer("bob")
    for name in ("s1", "s2"):
        session = await do(honcho).session(name)
        await do(session).add_messages([ann.message(f"My walrus is in {name}."), bob.message("What walrus?")])
    found = await do(ann).search("walrus")
    same(sorted(contents(found)), ["My walrus is in s1.", "My walrus is in s2."])
    same({message.peer_id for message in found}, {"ann"})
    same(len(await do(ann).search("walrus", limit=1)), 1)
    same(contents(await do(ann).search("walrus", filters={"session_id": "s2"})), ["My walrus is in s2."])
    same(await do(ann).search("zebra"), [])


async def a_message_of_a_peer_carries_what_was_said_of_it(do, honcho):
    ann = await do(honcho).peer("ann")
    session = await do(honcho).session("s")
    at = datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC)
    made = ann.message(
        "Hello.", metadata={"a": 1}, created_at=at, configuration={"reasoning": {"enabled": False}}
    )
    (message,) = await do(session).add_messages(made)
    same((message.peer_id, message.session_id, message.workspace_id), ("ann", "s", honcho.workspace_id))
    same((message.content, message.metadata, message.created_at), ("Hello.", {"a": 1}, at))


run(
    a_peer_is_kept_as_it_was_made,
    what_is_set_is_there_when_it_is_asked_for,
    peers_are_listed_page_by_page,
    whoever_writes_is_a_peer,
    a_peer_knows_its_sessions,
    a_peer_finds_its_own_words_only,
    a_message_of_a_peer_carries_what_was_said_of_it,
)
