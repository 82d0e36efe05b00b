"""Workspaces: their metadata, listing, and deletion."""

from honcho import ConflictError
from honcho.api_types import (
    ReasoningConfiguration,
    SummaryConfiguration,
    WorkspaceConfiguration,
)

from both import all_of, client, raw, refused, run, same


async def metadata_is_kept(do, honcho):
    same(await do(honcho).get_metadata(), {})
    wanted = {"kind": "shop", "deep": {"list": [1, 2.5, None, True], "text": "ünï ✓"}}
    await do(honcho).set_metadata(wanted)
    same(await do(client(honcho.workspace_id)).get_metadata(), wanted)
    await do(honcho).set_metadata({"only": 1})
    same(await do(honcho).get_metadata(), {"only": 1})
    await do(honcho).set_metadata({})
    same(await do(honcho).get_metadata(), {})


async def configuration_is_kept_beside_it(do, honcho):
    same((await do(honcho).get_configuration()).model_dump(exclude_none=True), {})
    await do(honcho).set_metadata({"a": 1})
    wanted = WorkspaceConfiguration(
        summary=SummaryConfiguration(enabled=True, messages_per_short_summary=10, messages_per_long_summary=20),
        reasoning=ReasoningConfiguration(enabled=False),
    )
    await do(honcho).set_configuration(wanted)
    other = client(honcho.workspace_id)
    there = (await do(other).get_configuration()).model_dump(exclude_none=True)
    same(there, wanted.model_dump(exclude_none=True))
    same(await do(other).get_metadata(), {"a": 1})


async def a_workspace_that_is_there_is_found_not_made_again(do, honcho):
    name = honcho.workspace_id
    first = raw("POST", "", json={"id": name, "metadata": {"a": 1}})
    again = raw("POST", "", json={"id": name})
    same((first.status_code, again.status_code), (201, 200))
    same(again.json(), first.json())


async def workspaces_are_listed_page_by_page(do, honcho):
    names = [f"{honcho.workspace_id}-{at}" for at in range(5)]
    for at, name in enumerate(names):
        await do(client(name)).set_metadata({"of": honcho.workspace_id, "at": at})
    ours = {"metadata": {"of": honcho.workspace_id}}
    first = await do(honcho).workspaces(ours, size=2)
    same((first.total, first.page, first.size, first.pages, len(first)), (5, 1, 2, 3, 2))
    same(await all_of(first), names)
    same(await all_of(await do(honcho).workspaces(ours, size=2, reverse=True)), names[::-1])
    late = {"metadata": {"of": honcho.workspace_id, "at": {"gte": 3}}}
    same(await all_of(await do(honcho).workspaces(late)), names[3:])
    same(await all_of(await do(honcho).workspaces({"metadata": {"of": "nobody"}})), [])
    assert set(names) <= set(await all_of(await do(honcho).workspaces(size=3)))


async def a_workspace_goes_once_its_sessions_are_gone(do, honcho):
    name = honcho.workspace_id
    session = await do(honcho).session("s")
    await do(session).add_messages((await do(honcho).peer("ann")).message("Hello."))
    await refused(ConflictError, do(honcho).delete_workspace(name), "session")
    same(len(await do(session).messages()), 1)
    await do(session).delete()
    await do(honcho).delete_workspace(name)
    assert name not in await all_of(await do(honcho).workspaces())


async def a_workspace_without_sessions_goes_at_once(do, honcho):
    await do(honcho).peer("ann")
    await do(honcho).delete_workspace(honcho.workspace_id)
    assert honcho.workspace_id not in await all_of(await do(honcho).workspaces())


run(
    metadata_is_kept,
    configuration_is_kept_beside_it,
    a_workspace_that_is_there_is_found_not_made_again,
    workspaces_are_listed_page_by_page,
    a_workspace_goes_once_its_sessions_are_gone,
    a_workspace_without_sessions_goes_at_once,
)
