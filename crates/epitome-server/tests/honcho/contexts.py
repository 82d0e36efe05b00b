"""Contexts: a whole session within a budget, in the formats that agents send to providers."""

from both import ids, line, messages, raw, run, same, summed_up, tell, told, whole, within


async def a_short_session_is_given_whole(do, honcho):
    session = await told(do, honcho, "s", 7)
    context = await do(session).context()
    same((context.session_id, context.summary, len(context)), ("s", None, 7))
    whole(context, await messages(do, session))
    first = context.messages[0]
    same(context.to_openai(assistant="bot")[0], {"role": "user", "name": "ann", "content": first.content})
    roles = [message["role"] for message in context.to_openai(assistant=await do(honcho).peer("bot"))]
    same(roles, ["user", "assistant"] * 3 + ["user"])
    same(context.to_anthropic(assistant="bot")[0], {"role": "user", "content": f"ann: {first.content}"})
    same(context.to_anthropic(assistant="ann")[0], {"role": "assistant", "content": first.content})


async def a_long_one_is_a_summary_and_what_came_after(do, honcho):
    session = await told(do, honcho, "s", 70)
    await summed_up(do, session, 60, 60)
    everything = await messages(do, session)
    context = await do(session).context()
    whole(context, everything)
    same((context.summary.message_id, len(context)), (everything[59].id, 11))
    text = context.summary.content
    openai, anthropic = context.to_openai(assistant="bot"), context.to_anthropic(assistant="bot")
    same(openai[0], {"role": "system", "content": f"<summary>{text}</summary>"})
    same(anthropic[0], {"role": "user", "content": f"<summary>{text}</summary>"})
    same((len(openai), len(anthropic)), (11, 11))
    without = await do(session).context(summary=False)
    same((without.summary, ids(without.messages)), (None, ids(everything)))


async def no_budget_is_overdrawn_and_no_message_left_out_between(do, honcho):
    session = await told(do, honcho, "s", 110)
    await summed_up(do, session, 100, 60)
    everything = await messages(do, session)
    for tokens in (1, 3, 20, 50, 100, 200, 400, 800, 1600, 3200, 6400, 100_000):
        for summary in (True, False):
            context = await do(session).context(tokens=tokens, summary=summary)
            within(context, tokens)
            given = ids(context.messages)
            same(given, ids(everything)[len(everything) - len(given) :])
            if context.summary:
                assert summary, "none was wanted"
                whole(context, everything, tokens)
    # Ten messages fit, and a summary of the rest, however old the longer summary is.
    context = await do(session).context(tokens=1000)
    whole(context, everything, 1000)
    same(context.summary.message_id, everything[99].id)


async def a_message_is_never_both_summed_up_and_given(do, honcho):
    session = await told(do, honcho, "s", 20)
    await summed_up(do, session, 20, 0)
    for at in range(21, 41):
        await do(session).add_messages(line(at))
        whole(await do(session).context(), await messages(do, session))
    await summed_up(do, session, 40, 0)


async def a_peer_has_an_empty_representation(do, honcho):
    session = await told(do, honcho, "s", 25)
    await summed_up(do, session, 20, 0)
    everything = await messages(do, session)
    for asked in (
        {"peer_target": "ann"},
        {"peer_target": "ann", "peer_perspective": "bot"},
        {"peer_target": "ann", "search_query": "parcels", "search_top_k": 3, "search_max_distance": 0.5},
        {"peer_target": "ann", "search_query": everything[0], "include_most_frequent": True, "max_conclusions": 7},
        {"peer_target": "ann", "limit_to_session": True},
        {"peer_target": "ann", "sessions": ["s"]},
    ):
        context = await do(session).context(tokens=2000, **asked)
        same((context.peer_representation, context.peer_card or []), (None, []))
        whole(context, everything, 2000)
        same([one["role"] for one in context.to_openai(assistant="bot")].count("system"), 1)
    wire = raw("GET", f"/{honcho.workspace_id}/sessions/s/context", params={"peer_target": "ann"}).json()
    same(wire["peer_representation"], "")


async def a_budget_of_nothing_gives_nothing(do, honcho):
    await told(do, honcho, "s", 5)
    for tokens in (0, -5):
        wire = raw("GET", f"/{honcho.workspace_id}/sessions/s/context", params={"tokens": tokens})
        empty = {"id": "s", "messages": [], "summary": None, "peer_representation": None, "peer_card": None}
        same((wire.status_code, wire.json()), (200, empty))
    wire = raw("GET", f"/{honcho.workspace_id}/sessions/s/context", params={"tokens": 100_000})
    same((wire.status_code, len(wire.json()["messages"])), (200, 5))


async def a_message_over_the_budget_does_not_overdraw_it(do, honcho):
    session = await told(do, honcho, "s", 3)
    long = line(4)
    long.content = "word " * 3000
    await do(session).add_messages(long)
    within(await do(session).context(tokens=100), 100)
    await tell(do, session, 5, 6)
    context = await do(session).context(tokens=200)
    within(context, 200)
    same(ids(context.messages)[-2:], ids(await messages(do, session))[-2:])


run(
    a_short_session_is_given_whole,
    a_long_one_is_a_summary_and_what_came_after,
    no_budget_is_overdrawn_and_no_message_left_out_between,
    a_message_is_never_both_summed_up_and_given,
    a_peer_has_an_empty_representation,
    a_budget_of_nothing_gives_nothing,
    a_message_over_the_budget_does_not_overdraw_it,
)
