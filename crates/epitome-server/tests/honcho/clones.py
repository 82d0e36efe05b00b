"""Clones: all of a session or its beginning, with its counts, in its own workspace."""

from honcho import NotFoundError
from honcho.api_types import SessionConfiguration, SummaryConfiguration

from both import all_of, client, contents, ids, line, messages, raw, refused, run, same, summed_up, tell, told
from both import whole, within


def shapes(found):
    """Returns what a clone must have too."""
    return [(one.content, one.peer_id, one.metadata, one.created_at, one.token_count) for one in found]


async def a_clone_has_all_of_it(do, honcho):
    often = SummaryConfiguration(messages_per_short_summary=10, messages_per_long_summary=20)
    wanted = SessionConfiguration(summary=often)
    session = await do(honcho).session("s", metadata={"topic": "x"}, configuration=wanted, peers=["ann", "eve"])
    await tell(do, session, 1, 24)
    await do(session).add_messages(line(25, metadata={"a": 1}))
    copy = await do(session).clone()
    assert copy.id != "s" and copy.is_active, repr(copy)
    same((copy.workspace_id, copy.metadata), (honcho.workspace_id, {"topic": "x"}))
    same(copy.configuration.model_dump(exclude_none=True), wanted.model_dump(exclude_none=True))
    there, here = await messages(do, session), await messages(do, copy)
    same(shapes(here), shapes(there))
    same({one.session_id for one in here}, {copy.id})
    assert not set(ids(here)) & set(ids(there)), "a message is one session's"
    same(sorted(ids(await do(copy).peers())), sorted(ids(await do(session).peers())))
    same(ids(await all_of(await do(honcho).sessions())), ["s", copy.id])


async def a_clone_keeps_to_a_budget(do, honcho):
    session = await told(do, honcho, "s", 70)
    await summed_up(do, session, 60, 60)
    copy = await do(session).clone()
    everything = await messages(do, copy)
    for tokens in (50, 200, 1000):
        context = await do(copy).context(tokens=tokens)
        within(context, tokens)
        within(await do(copy).context(tokens=tokens, summary=False), tokens)
    await tell(do, copy, 71, 125)
    await summed_up(do, copy, 120, 120)
    whole(await do(copy).context(), await messages(do, copy))
    same(len(everything), 70)


async def a_clone_may_end_at_a_message(do, honcho):
    session = await told(do, honcho, "s", 50)
    everything = await messages(do, session)
    copy = await do(session).clone(message_id=everything[29].id)
    same(shapes(await messages(do, copy)), shapes(everything[:30]))
    same(ids((await do(copy).context(summary=False)).messages), ids(await messages(do, copy)))
    first = await do(session).clone(message_id=everything[0].id)
    same(contents(await messages(do, first)), contents(everything[:1]))
    await summed_up(do, copy, 20, 0)
    whole(await do(copy).context(), await messages(do, copy))


async def a_clone_goes_its_own_way(do, honcho):
    session = await told(do, honcho, "s", 5)
    copy = await do(session).clone()
    await tell(do, copy, 6, 8)
    await do(copy).set_metadata({"mine": True})
    same((len(await messages(do, session)), len(await messages(do, copy))), (5, 8))
    same((await do(honcho).session("s")).metadata, {})
    await do(session).delete()
    same(len(await messages(do, copy)), 8)


async def the_same_name_elsewhere_is_not_cloned_along(do, honcho):
    other = client(f"{honcho.workspace_id}-other")
    await told(do, other, "s", 9)
    session = await told(do, honcho, "s", 4)
    copy = await do(session).clone()
    same((len(await messages(do, copy)), copy.workspace_id), (4, honcho.workspace_id))
    same(ids(await all_of(await do(other).sessions())), ["s"])


async def what_is_not_there_is_not_cloned(do, honcho):
    session, other = await told(do, honcho, "s", 2), await told(do, honcho, "t", 2)
    foreign = (await messages(do, other))[0].id
    for asked in ("zzz", foreign):
        await refused(NotFoundError, do(session).clone(message_id=asked), "not found")
    answer = raw("POST", f"/{honcho.workspace_id}/sessions/nobody/clone")
    same((answer.status_code, type(answer.json()["detail"])), (404, str))
    same(ids(await all_of(await do(honcho).sessions())), ["s", "t"])


run(
    a_clone_has_all_of_it,
    a_clone_keeps_to_a_budget,
    a_clone_may_end_at_a_message,
    a_clone_goes_its_own_way,
    the_same_name_elsewhere_is_not_cloned_along,
    what_is_not_there_is_not_cloned,
)
