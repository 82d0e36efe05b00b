"""Keys: the client sends Epitome keys as bearer tokens; each is for one workspace.

Told after the address: a key that writes to the workspace `w`, one that only reads it, and one to everything.
"""

import sys

from honcho import APIError, AuthenticationError, Honcho

from both import BASE, all_of, contents, messages, refused, run, same

WRITES, READS, ADMIN = sys.argv[2:]


def keyed(key, workspace="w"):
    return Honcho(base_url=BASE, workspace_id=workspace, api_key=key)


def closed(error):
    assert error.status in (401, 403), repr(error)


async def a_key_opens_its_workspace(do, _):
    name = f"s-{do.__name__}"
    session = await do(keyed(WRITES)).session(name, metadata={"a": 1})
    await do(session).add_messages((await do(keyed(WRITES)).peer("ann")).message("Hello."))
    same(contents(await messages(do, session)), ["Hello."])
    session = await do(keyed(READS)).session(name)
    same((session.metadata, contents((await do(session).context()).messages)), ({"a": 1}, ["Hello."]))
    ann = await do(keyed(ADMIN)).peer("ann")
    assert name in [one.id for one in await all_of(await do(ann).sessions())]


async def a_key_that_reads_does_not_write(do, _):
    await do(keyed(WRITES)).session("kept")
    session = await do(keyed(READS)).session("kept")
    ann = await do(keyed(WRITES)).peer("ann")
    for call in (
        do(session).add_messages(ann.message("Hello.")),
        do(session).set_metadata({"b": 2}),
        do(session).delete(),
        do(session).clone(),
        do(keyed(READS)).session(f"new-{do.__name__}"),
    ):
        closed(await refused(APIError, call))
    same((await messages(do, session), await do(session).get_metadata()), ([], {}))


async def a_key_opens_no_other_workspace(do, _):
    for key in (WRITES, READS):
        closed(await refused(APIError, do(keyed(key, "other")).session("s")))
    assert "other" not in await all_of(await do(keyed(ADMIN)).workspaces())


async def without_a_key_nothing_is_told(do, _):
    for key in (None, "nonsense", WRITES[:-1] + "x"):
        await refused(AuthenticationError, do(keyed(key)).session("s"))
        await refused(AuthenticationError, do(keyed(key)).workspaces())


run(
    a_key_opens_its_workspace,
    a_key_that_reads_does_not_write,
    a_key_opens_no_other_workspace,
    without_a_key_nothing_is_told,
)
