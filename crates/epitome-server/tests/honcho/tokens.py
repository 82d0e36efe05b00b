"""Tokens: with the same secret, a token signed by Honcho allows the same here.

Told after the address: the secret.
"""

import base64
import hashlib
import hmac
import json
import sys

import httpx
from honcho import AuthenticationError, Honcho, Session

from both import BASE, PATIENCE, all_of, contents, ids, line, messages, refused, run, same, tell

SECRET = sys.argv[2]


def encoded(part):
    return base64.urlsafe_b64encode(part).rstrip(b"=")


def signed(claims, secret=SECRET, alg="HS256"):
    head = encoded(json.dumps({"alg": alg, "typ": "JWT"}).encode())
    body = head + b"." + encoded(json.dumps(claims).encode())
    return (body + b"." + encoded(hmac.new(secret.encode(), body, hashlib.sha256).digest())).decode()


def holding(claims, workspace, **more):
    token = signed({"t": "2026-01-01T00:00:00Z", **claims}, **more)
    return Honcho(base_url=BASE, workspace_id=workspace, api_key=token)


async def made(do, name):
    """Creates a workspace with two sessions: `one` of ann and bot, `two` of eve."""
    admin = holding({"ad": True}, name)
    await tell(do, await do(admin).session("one"), 1, 3)
    await do(await do(admin).session("two")).add_messages(line(1, "eve"))
    return admin


async def an_admin_may_everything(do, honcho):
    admin = await made(do, honcho.workspace_id)
    assert honcho.workspace_id in await all_of(await do(admin).workspaces())
    same(ids(await all_of(await do(admin).sessions())), ["one", "two"])


async def a_workspace_token_opens_its_workspace(do, honcho):
    name = honcho.workspace_id
    await made(do, name)
    own = holding({"w": name}, name)
    same(ids(await all_of(await do(own).sessions())), ["one", "two"])
    await tell(do, await do(own).session("new"), 1, 2)
    same(await all_of(await do(own).workspaces()), [name])
    await refused(AuthenticationError, do(holding({"w": name}, f"{name}-other")).session("s"))


async def a_session_token_opens_its_session(do, honcho):
    name = honcho.workspace_id
    await made(do, name)
    own = holding({"w": name, "s": "one"}, name)
    session = await do(own).session("one")
    await tell(do, session, 4, 5)
    same((len(await messages(do, session)), len((await do(session).context()).messages)), (5, 5))
    await refused(AuthenticationError, do(own).session("two"))
    two = Session("two", own)
    for call in (do(two).context(), do(two).messages(), do(own).sessions(), do(own).workspaces()):
        await refused(AuthenticationError, call)


async def a_peer_token_reads_where_the_peer_takes_part(do, honcho):
    name = honcho.workspace_id
    await made(do, name)
    own = holding({"w": name, "p": "ann"}, name)
    one, two = Session("one", own), Session("two", own)
    same(len(await messages(do, one)), 3)
    same((len((await do(one).context()).messages), (await do(one).summaries()).short_summary), (3, None))
    same(len(await do(one).search("parcel")), 3)
    await refused(AuthenticationError, tell(do, one, 4, 4))
    await refused(AuthenticationError, do(two).context())
    await refused(AuthenticationError, do(own).sessions())
    await refused(AuthenticationError, do(own).workspaces())


async def what_is_signed_otherwise_opens_nothing(do, honcho):
    name = honcho.workspace_id
    await made(do, name)
    past, future = "2020-01-01T00:00:00Z", "2999-01-01T00:00:00+00:00"
    same(len(await all_of(await do(holding({"w": name, "exp": future}, name)).sessions())), 2)
    for closed in (
        holding({"w": name, "exp": past}, name),
        holding({"w": name}, name, secret="another"),
        holding({"w": name}, name, alg="none"),
        holding({}, name),
        holding({"p": "ann"}, name),
        Honcho(base_url=BASE, workspace_id=name),
        Honcho(base_url=BASE, workspace_id=name, api_key="x.y.z"),
    ):
        await refused(AuthenticationError, do(closed).sessions())


async def a_token_is_made_on_request(do, honcho):
    name = honcho.workspace_id
    await made(do, name)
    head = {"authorization": f"Bearer {signed({'ad': True})}"}
    answer = httpx.post(
        f"{BASE}/v3/keys", params={"workspace_id": name, "session_id": "two"}, headers=head, timeout=PATIENCE
    )
    same(answer.status_code, 200)
    own = Honcho(base_url=BASE, workspace_id=name, api_key=answer.json()["key"])
    same(contents(await messages(do, Session("two", own))), [line(1).content])
    await refused(AuthenticationError, do(Session("one", own)).messages())
    head = {"authorization": f"Bearer {signed({'w': name})}"}
    same(httpx.post(f"{BASE}/v3/keys", params={"workspace_id": name}, headers=head).status_code, 401)


run(
    an_admin_may_everything,
    a_workspace_token_opens_its_workspace,
    a_session_token_opens_its_session,
    a_peer_token_reads_where_the_peer_takes_part,
    what_is_signed_otherwise_opens_nothing,
    a_token_is_made_on_request,
)
