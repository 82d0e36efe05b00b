"""Summaries: both are written at the messages at which they are due."""

from datetime import datetime

from honcho.api_types import SessionConfiguration, SummaryConfiguration, WorkspaceConfiguration

from both import UTC, idle, messages, moment, run, same, summed_up, tell, told, until, whole


def every(short, long):
    return SummaryConfiguration(messages_per_short_summary=short, messages_per_long_summary=long)


async def both_are_there_after_sixty(do, honcho):
    session = await told(do, honcho, "s", 19)
    await idle(do, honcho)
    none = await do(session).summaries()
    same((none.id, none.short_summary, none.long_summary), ("s", None, None))
    await tell(do, session, 20, 60)
    found = await summed_up(do, session, 60, 60)
    for kind, summary in (("short", found.short_summary), ("long", found.long_summary)):
        same(summary.summary_type, f"honcho_chat_summary_{kind}")
        assert summary.content.strip() and summary.token_count > 0, summary
        assert abs((datetime.now(UTC) - moment(summary.created_at)).total_seconds()) < 3600, summary
    same((await do(session).get_message(found.short_summary.message_id)).session_id, "s")


async def a_batch_of_a_hundred_gives_what_a_hundred_messages_give(do, honcho):
    session = await told(do, honcho, "s", 100)
    await summed_up(do, session, 100, 60)
    await tell(do, session, 101, 125)
    await summed_up(do, session, 120, 120)
    whole(await do(session).context(), await messages(do, session))


async def each_stands_for_all_that_came_before(do, honcho):
    session = await do(honcho).session("s")
    for last in range(20, 141, 20):
        await tell(do, session, last - 19, last)
        await summed_up(do, session, last, last // 60 * 60)


async def a_session_says_how_often(do, honcho):
    wanted = SessionConfiguration(summary=every(10, 20))
    session = await do(honcho).session("s", configuration=wanted)
    for last, short, long in ((9, 0, 0), (10, 10, 0), (19, 10, 0), (20, 20, 20), (31, 30, 20), (45, 40, 40)):
        have = (await do(session).messages(size=1)).total
        await tell(do, session, have + 1, last)
        await summed_up(do, session, short, long)
    whole(await do(session).context(), await messages(do, session))


async def a_workspace_says_it_for_all_of_its_sessions(do, honcho):
    await do(honcho).set_configuration(WorkspaceConfiguration(summary=every(10, 20)))
    session = await told(do, honcho, "s", 22)
    await summed_up(do, session, 20, 20)
    own = await do(honcho).session("own", configuration=SessionConfiguration(summary=every(12, 24)))
    await tell(do, own, 1, 25)
    await summed_up(do, own, 24, 24)


async def a_session_that_wants_none_gets_none(do, honcho):
    off = SessionConfiguration(summary=SummaryConfiguration(enabled=False))
    session = await do(honcho).session("s", configuration=off)
    await tell(do, session, 1, 65)
    await idle(do, honcho)
    found = await do(session).summaries()
    same((found.short_summary, found.long_summary), (None, None))
    context = await do(session).context()
    same((context.summary, len(context.messages)), (None, 65))
    # Once summaries are enabled, the next one covers all earlier messages too.
    on = SessionConfiguration(summary=SummaryConfiguration(enabled=True))
    await do(session).set_configuration(on)
    await tell(do, session, 66, 105)
    await until(do(session).summaries, lambda found: found.short_summary, "a summary is there")
    await idle(do, honcho)
    whole(await do(session).context(), await messages(do, session))


async def a_workspace_that_wants_none_gets_none(do, honcho):
    off = WorkspaceConfiguration(summary=SummaryConfiguration(enabled=False))
    await do(honcho).set_configuration(off)
    session = await told(do, honcho, "s", 65)
    on = SessionConfiguration(summary=SummaryConfiguration(enabled=True))
    other = await do(honcho).session("other", configuration=on)
    await tell(do, other, 1, 65)
    await summed_up(do, other, 60, 60)
    await idle(do, honcho)
    found = await do(session).summaries()
    same((found.short_summary, found.long_summary), (None, None))


async def the_queue_tells_what_is_left(do, honcho):
    nothing = await do(honcho).queue_status()
    same((nothing.total_work_units, nothing.pending_work_units, nothing.in_progress_work_units), (0, 0, 0))
    session = await told(do, honcho, "s", 70)
    await summed_up(do, session, 60, 60)
    await idle(do, honcho)
    for status in (
        await do(session).queue_status(),
        await do(honcho).queue_status(session=session),
        await do(honcho).queue_status(session="s", observer="ann", sender="bot"),
    ):
        same((status.pending_work_units, status.in_progress_work_units, status.sessions), (0, 0, None))
        counted(status)
    status = await do(honcho).queue_status()
    counted(status)
    for one in (status.sessions or {}).values():
        counted(one)
    unknown = await do(honcho).queue_status(session="nobody")
    same(unknown.total_work_units, 0)


def counted(status):
    parts = status.completed_work_units + status.in_progress_work_units + status.pending_work_units
    same(status.total_work_units, parts)


run(
    both_are_there_after_sixty,
    a_batch_of_a_hundred_gives_what_a_hundred_messages_give,
    each_stands_for_all_that_came_before,
    a_session_says_how_often,
    a_workspace_says_it_for_all_of_its_sessions,
    a_session_that_wants_none_gets_none,
    a_workspace_that_wants_none_gets_none,
    the_queue_tells_what_is_left,
)
