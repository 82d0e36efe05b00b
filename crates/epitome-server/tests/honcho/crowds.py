"""Crowds: sixteen writers on one session, and twenty sessions at once. No message is lost or duplicated."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from honcho import MessageCreateParams

from both import Plain, client, ids, messages, run, same, summed_up, tell, whole

WRITERS, BATCHES, BATCH = 16, 12, 5


def batch(writer, number):
    said = "parcel {} of writer {} went from Oslo to Bergen, and was signed for at the door".format
    first = number * BATCH
    return [
        MessageCreateParams(peer_id=f"w{writer}", content=said(at, writer), metadata={"at": at})
        for at in range(first, first + BATCH)
    ]


def plain_writer(workspace, writer):
    """Runs a thread with its own client."""
    session = client(workspace).session("s")
    return [session.add_messages(batch(writer, number)) for number in range(BATCHES)]


async def aio_writer(workspace, writer):
    session = await client(workspace).aio.session("s")
    return [await session.aio.add_messages(batch(writer, number)) for number in range(BATCHES)]


async def sixteen_writers_share_one_session(do, honcho):
    name = honcho.workspace_id
    if do is Plain:
        with ThreadPoolExecutor(WRITERS) as pool:
            answers = list(pool.map(lambda writer: plain_writer(name, writer), range(WRITERS)))
    else:
        answers = await asyncio.gather(*(aio_writer(name, writer) for writer in range(WRITERS)))
    session = await do(honcho).session("s")
    total = WRITERS * BATCHES * BATCH
    everything = await messages(do, session)
    same(((await do(session).messages()).total, len(everything), len(set(ids(everything)))), (total, total, total))
    for writer in range(WRITERS):
        own = [one.metadata["at"] for one in everything if one.peer_id == f"w{writer}"]
        same(own, list(range(BATCHES * BATCH)))
    # The stored messages are those in the answers, and no batch is interrupted by another.
    place = {id: at for at, id in enumerate(ids(everything))}
    for written in answers:
        for added in written:
            first = place[added[0].id]
            same([place[one.id] for one in added], list(range(first, first + BATCH)))
    found = await summed_up(do, session, total // 20 * 20, total // 60 * 60)
    same(found.short_summary.message_id, everything[-1].id)
    await tell(do, session, 1, 7)
    everything = await messages(do, session)
    whole(await do(session).context(tokens=3000), everything, 3000)


async def twenty_sessions_are_written_at_once(do, honcho):
    names = [f"s{at}" for at in range(20)]
    workspace = honcho.workspace_id

    async def one(name, honcho):
        session = await do(honcho).session(name)
        await tell(do, session, 1, 65)
        return session

    if do is Plain:
        with ThreadPoolExecutor(20) as pool:
            list(pool.map(lambda name: asyncio.run(one(name, client(workspace))), names))
    else:
        await asyncio.gather(*(one(name, honcho) for name in names))
    for name in names:
        session = await do(honcho).session(name)
        await summed_up(do, session, 60, 60)
        everything = await messages(do, session)
        same([int(each.content.split("number ")[1].split(":")[0]) for each in everything], list(range(1, 66)))
        whole(await do(session).context(tokens=4000), everything, 4000)
        same((await do(session).context()).summary.message_id, everything[59].id)


run(sixteen_writers_share_one_session, twenty_sessions_are_written_at_once)
