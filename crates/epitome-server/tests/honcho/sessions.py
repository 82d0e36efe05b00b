"""Sessions: their metadata, their members, and deletion."""

from honcho import Session, UnprocessableEntityError
from honcho.api_types import (
    ReasoningConfiguration,
    SessionConfiguration,
    SessionPeerConfig,
    SummaryConfiguration,
)

from both import all_of, client, contents, ids, messages, raw, refused, run, same, tell, told


def kept(configuration):
    return configuration.model_dump(exclude_none=True)


async def a_session_is_kept_as_it_was_made(do, honcho):
    wanted = SessionConfiguration(summary=SummaryConfiguration(enabled=False))
    made = await do(honcho).session("s", metadata={"topic": "x"}, configuration=wanted, peers=["ann", "bob"])
    same((made.metadata, kept(made.configuration), made.is_active), ({"topic": "x"}, kept(wanted), True))
    again = await do(client(honcho.workspace_id)).session("s")
    same((again.metadata, kept(again.configuration), again.is_active), ({"topic": "x"}, kept(wanted), True))
    same(again.created_at, made.created_at)
    same(ids(await do(again).peers()), ["ann", "bob"])


async def metadata_is_replaced_and_configuration_joined(do, honcho):
    session = await do(honcho).session("s", metadata={"a": 1})
    await do(session).set_metadata({"b": {"c": [1, "2", None]}})
    same(await do(session).get_metadata(), {"b": {"c": [1, "2", None]}})
    summary = SummaryConfiguration(messages_per_short_summary=10, messages_per_long_summary=20)
    await do(session).set_configuration(SessionConfiguration(summary=summary))
    same(kept(await do(session).get_configuration()), {"summary": kept(summary)})
    reasoning = SessionConfiguration(reasoning=ReasoningConfiguration(enabled=False))
    joined = await do(honcho).session("s", configuration=reasoning)
    same(kept(joined.configuration), {"summary": kept(summary), "reasoning": {"enabled": False}})
    same(joined.metadata, {"b": {"c": [1, "2", None]}})
    await do(session).refresh()
    same((session.metadata, kept(session.configuration)), (joined.metadata, kept(joined.configuration)))
    # A table sent as null is removed; a field that is null has no effect.
    sent = {"configuration": {"summary": None, "reasoning": {"enabled": True, "custom_instructions": None}}}
    same(raw("PUT", f"/{honcho.workspace_id}/sessions/s", json=sent).json()["configuration"], {"reasoning": {"enabled": True}})
    same(kept(await do(session).get_configuration()), {"reasoning": {"enabled": True}})


async def peers_come_and_go(do, honcho):
    ann, bob = await do(honcho).peer("ann"), await do(honcho).peer("bob")
    session = await do(honcho).session("s")
    same(await do(session).peers(), [])
    await do(session).add_peers(ann)
    await do(session).add_peers([bob, "cat", ("dog", SessionPeerConfig(observe_me=False))])
    same(ids(await do(session).peers()), ["ann", "bob", "cat", "dog"])
    await do(session).remove_peers([ann, "cat"])
    same(ids(await do(session).peers()), ["bob", "dog"])
    await do(session).set_peers(["eve", (bob, SessionPeerConfig(observe_others=True))])
    same(sorted(ids(await do(session).peers())), ["bob", "eve"])
    await do(session).remove_peers("eve")
    same(ids(await do(session).peers()), ["bob"])
    await do(session).add_messages(ann.message("I am back."))
    same(sorted(ids(await do(session).peers())), ["ann", "bob"])
    same(len(await all_of(await do(honcho).peers())), 5)


async def a_peer_has_a_configuration_in_each_session(do, honcho):
    first = await do(honcho).session("one", peers=[("ann", SessionPeerConfig(observe_me=False, observe_others=True))])
    second = await do(honcho).session("two", peers=["ann"])
    there = await do(first).get_peer_configuration("ann")
    same((there.observe_me, there.observe_others), (False, True))
    await do(first).set_peer_configuration("ann", SessionPeerConfig(observe_me=True, observe_others=False))
    there = await do(first).get_peer_configuration(await do(honcho).peer("ann"))
    same((there.observe_me, there.observe_others), (True, False))
    there = await do(second).get_peer_configuration("ann")
    assert there.observe_me is not True or there.observe_others is not False, f"{there} is the other session's"


async def sessions_are_listed_page_by_page(do, honcho):
    names = [f"s{at}" for at in range(7)]
    for at, name in enumerate(names):
        await do(honcho).session(name, metadata={"at": at, "tags": ["all", "even" if at % 2 == 0 else "odd"]})
    first = await do(honcho).sessions(size=3)
    same((first.total, first.page, first.size, first.pages, len(first)), (7, 1, 3, 3, 3))
    found = await all_of(first)
    same((ids(found), found[4].metadata["at"]), (names, 4))
    same(ids(await all_of(await do(honcho).sessions(size=3, reverse=True))), names[::-1])
    same(ids((await do(honcho).sessions(size=3, page=3)).items), ["s6"])
    same(len(await do(honcho).sessions(size=3, page=9)), 0)

    async def those(filters):
        return ids(await all_of(await do(honcho).sessions(filters, size=2)))

    same(await those({"metadata": {"at": 3}}), ["s3"])
    same(await those({"metadata": {"tags": ["even"]}}), ["s0", "s2", "s4", "s6"])
    same(await those({"metadata": {"at": {"gte": 2, "lt": 5}}}), ["s2", "s3", "s4"])
    same(await those({"OR": [{"id": "s1"}, {"metadata": {"at": {"in": [4, 5]}}}]}), ["s1", "s4", "s5"])
    same(await those({"NOT": [{"metadata": {"at": {"gt": 0}}}]}), ["s0"])
    same(await those({"is_active": True}), names)


async def sessions_are_found_by_one_of_their_peers(do, honcho):
    ann, bob = await do(honcho).peer("ann"), await do(honcho).peer("bob")
    for name, peers in (("a", [ann]), ("b", [bob]), ("ab", [ann, bob])):
        await do(await do(honcho).session(name)).add_peers(peers)

    async def those(filters):
        return ids(await all_of(await do(honcho).sessions(filters)))

    same(await those({"peer_id": "ann"}), ["a", "ab"])
    same(await those({"peer_id": "bob", "NOT": [{"id": "b"}]}), ["ab"])
    same(await those({"peer_id": {"in": ["bob"]}}), ["b", "ab"])
    same(await those({"peer_id": "*"}), ["a", "b", "ab"])
    same(await those({"peer_id": "nobody"}), [])
    # Filters that would need all peers of a session are refused.
    for filters in (
        {"peer_id": {"in": ["ann", "bob"]}},
        {"peer_id": {"ne": "ann"}},
        {"peer_id": {"contains": "an"}},
        {"NOT": [{"peer_id": "ann"}]},
        {"OR": [{"peer_id": "ann"}, {"peer_id": "bob"}]},
        {"AND": [{"peer_id": "ann"}, {"peer_id": "bob"}]},
        {"peer_id": "ann", "NOT": [{"peer_id": "bob"}]},
    ):
        error = await refused(UnprocessableEntityError, do(honcho).sessions(filters))
        assert "peer_id" in error.message, error.message
    same(ids(await all_of(await do(ann).sessions({"peer_id": "ann"}))), ["a", "ab"])
    await refused(UnprocessableEntityError, do(ann).sessions({"peer_id": "bob"}))


async def a_session_that_is_not_there_is_empty(do, honcho):
    nobody = Session("nobody", honcho)
    context, summaries = await do(nobody).context(), await do(nobody).summaries()
    same((context.messages, context.summary), ([], None))
    same((summaries.short_summary, summaries.long_summary), (None, None))
    page = await do(nobody).messages()
    same((page.total, len(page)), (0, 0))
    same(await do(nobody).search("anything"), [])
    same(ids(await all_of(await do(honcho).sessions())), [])


async def whatever_is_written_to_first_is_made(do, honcho):
    new = Session("new", honcho)
    await tell(do, new, 1, 2)
    same(ids(await all_of(await do(honcho).sessions())), ["new"])
    same(ids(await do(new).peers()), ["ann", "bot"])
    put = raw("PUT", f"/{honcho.workspace_id}/sessions/put", json={"metadata": {"a": 1}})
    same((put.status_code, put.json()["metadata"]), (200, {"a": 1}))
    same(ids(await all_of(await do(honcho).sessions())), ["new", "put"])


async def a_deleted_session_is_gone_at_once(do, honcho):
    session, other = await told(do, honcho, "gone", 30), await told(do, honcho, "kept", 3)
    (first, *_) = await messages(do, session)
    await do(session).delete()
    same(ids(await all_of(await do(honcho).sessions())), ["kept"])
    context, summaries = await do(session).context(), await do(session).summaries()
    same((context.messages, context.summary), ([], None))
    same((summaries.short_summary, summaries.long_summary), (None, None))
    same(await messages(do, session), [])
    same({found.session_id for found in await do(honcho).search("parcel", limit=100)}, {"kept"})
    same(len(await messages(do, other)), 3)
    for method, path in (("GET", f"/messages/{first.id}"), ("DELETE", "")):
        answer = raw(method, f"/{honcho.workspace_id}/sessions/gone{path}")
        same((answer.status_code, type(answer.json()["detail"])), (404, str))
    # The name is free: a new session starts empty, and ids of old messages are not valid in it.
    await do(session).add_messages((await do(honcho).peer("ann")).message("A new start."))
    same(contents(await messages(do, session)), ["A new start."])
    same(raw("GET", f"/{honcho.workspace_id}/sessions/gone/messages/{first.id}").status_code, 404)


async def the_same_name_in_two_workspaces_is_two_sessions(do, honcho):
    other = client(f"{honcho.workspace_id}-other")
    ours, theirs = await told(do, honcho, "s", 3), await do(other).session("s")
    same((len(await messages(do, ours)), len(await messages(do, theirs))), (3, 0))
    await tell(do, theirs, 1, 2)
    same((len(await messages(do, ours)), len(await messages(do, theirs))), (3, 2))
    await do(ours).add_messages((await do(honcho).peer("ann")).message("There is a walrus here."))
    same((len(await do(honcho).search("walrus")), await do(other).search("walrus")), (1, []))
    await do(theirs).delete()
    same(len(await messages(do, ours)), 4)


run(
    a_session_is_kept_as_it_was_made,
    metadata_is_replaced_and_configuration_joined,
    peers_come_and_go,
    a_peer_has_a_configuration_in_each_session,
    sessions_are_listed_page_by_page,
    sessions_are_found_by_one_of_their_peers,
    a_session_that_is_not_there_is_empty,
    whatever_is_written_to_first_is_made,
    a_deleted_session_is_gone_at_once,
    the_same_name_in_two_workspaces_is_two_sessions,
)
