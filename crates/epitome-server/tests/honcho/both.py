"""Shared by all programs here: both forms of Honcho's client, and helpers.

A check is written once, with `await`, and runs twice: with the client's plain methods and with those under `.aio`, each
time in a workspace of its own. `do(thing).method(...)` is one call in the form that is being checked.
"""

import asyncio
import sys
import time
import traceback
from datetime import datetime, timezone

import honcho
import httpx

BASE = sys.argv[1]

UTC = timezone.utc

# Timeout of waiting, in seconds; only for checks that would hang otherwise.
PATIENCE = 60


class Plain:
    """Wraps plain methods, so that they can be awaited like the asynchronous ones."""

    def __init__(self, thing):
        self.thing = thing

    def __getattr__(self, name):
        method = getattr(self.thing, name)

        async def call(*args, **kwargs):
            return method(*args, **kwargs)

        return call


def aio(thing):
    return thing.aio


def run(*checks):
    """Runs every check in both forms, and exits with 0 if all of them passed."""
    failed = []
    for form, do in (("sync", Plain), ("async", aio)):
        for check in checks:
            name = f"{check.__name__}-{form}"
            try:
                asyncio.run(check(do, client(name)))
                print(f"held    {name}")
            except Exception:
                failed.append(name)
                print(f"FAILED  {name}\n{traceback.format_exc()}")
    sys.exit(f"{len(failed)} failed: {', '.join(failed)}" if failed else 0)


def client(workspace):
    return honcho.Honcho(base_url=BASE, workspace_id=workspace)


def same(got, wanted):
    assert got == wanted, f"\n     got {got!r}\n  wanted {wanted!r}"


async def all_of(page):
    """Returns all items of a list, from all its pages."""
    if hasattr(page, "__aiter__"):
        return [item async for item in page]
    return list(page)


async def messages(do, session, **asked):
    """Returns all messages of a session."""
    return await all_of(await do(session).messages(size=100, **asked))


def contents(found):
    return [message.content for message in found]


def moment(text):
    """Formats a time as in the API."""
    assert text.endswith("Z"), text
    return datetime.fromisoformat(text[:-1] + "+00:00")


def ids(found):
    return [item.id for item in found]


async def refused(kind, call, *words):
    """Requires that the call fails with this error and these words."""
    try:
        answer = await call
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return error
    raise AssertionError(f"{kind.__name__} was wanted, and there came {answer!r}")


def line(at, peer=None, **more):
    """Returns a message of a long conversation; each number gives a different text."""
    said = (
        f"This is what was said in message number {at}: parcel P-{at} went from Oslo to Bergen on day {at}, and Ann "
        "wants to know who signed for it at the door."
    )
    peer = peer or ("ann" if at % 2 == 1 else "bot")
    return honcho.MessageCreateParams(peer_id=peer, content=said, **more)


def talk(first, last):
    return [line(at) for at in range(first, last + 1)]


async def tell(do, session, first, last):
    """Adds these messages of the conversation, a hundred at a time."""
    for start in range(first, last + 1, 100):
        await do(session).add_messages(talk(start, min(start + 99, last)))


async def told(do, client, name, count):
    """Creates a session with this many messages."""
    session = await do(client).session(name)
    await tell(do, session, 1, count)
    return session


async def until(look, done, what):
    """Polls until the condition holds."""
    start = time.monotonic()
    while True:
        found = await look()
        if done(found):
            return found
        assert time.monotonic() - start < PATIENCE, f"waited in vain until {what}; last seen: {found!r}"
        await asyncio.sleep(0.02)


async def summed_up(do, session, short, long):
    """Waits until the two summaries cover exactly this many messages each; 0 means that there is none."""
    places = [None, *ids(await messages(do, session))]
    wanted = (places[short], places[long])

    def reached(found):
        both = (found.short_summary, found.long_summary)
        return tuple(summary and summary.message_id for summary in both) == wanted

    return await until(do(session).summaries, reached, f"short covers {short} and long {long}")


async def idle(do, client):
    """Waits until no work is pending in the workspace."""

    def over(status):
        return status.pending_work_units == 0 and status.in_progress_work_units == 0

    return await until(do(client).queue_status, over, "nothing is queued")


def whole(context, everything, tokens=None):
    """Requires that a context is complete: a summary, and every message after it, once, within its budget.

    A summary that covers the newest message too may have it beside it, so that there is something to answer.
    """
    given, after = ids(context.messages), 0
    if context.summary:
        after = ids(everything).index(context.summary.message_id) + 1
    if after == len(everything):
        assert given in ([], ids(everything)[-1:]), given
    else:
        same(given, ids(everything)[after:])
    within(context, tokens)


def within(context, tokens):
    """Requires that a context is within its budget, everything counted."""
    spent = sum(message.token_count for message in context.messages)
    spent += context.summary.token_count if context.summary else 0
    assert tokens is None or spent <= tokens, f"{spent} tokens, {tokens} were allowed"


def raw(method, path, **more):
    """Sends a request without the client."""
    return httpx.request(method, f"{BASE}/v3/workspaces{path}", timeout=PATIENCE, **more)
