"""Errors: in Honcho's format, with the location of every fault; missing features are reported."""

from honcho import HonchoError, UnprocessableEntityError
from honcho.api_types import SessionConfiguration, SummaryConfiguration

from both import client, messages, raw, refused, run, same, told


async def faults_are_told_with_their_place(do, honcho):
    at = f"/{honcho.workspace_id}"
    await told(do, honcho, "s", 1)
    one = {"peer_id": "ann", "content": "x"}
    long, other = {"peer_id": "ann", "content": "y" * 25_001}, {"peer_id": "ann", "content": 7}
    batches = (
        ({"messages": []}, "too_short", []),
        ({"messages": [one] * 101}, "too_long", []),
        ({}, "missing", []),
        ({"messages": "x"}, "list_type", []),
        ({"messages": [one, {"content": "x"}]}, "missing", [1, "peer_id"]),
        ({"messages": [one, long]}, "string_too_long", [1, "content"]),
        ({"messages": [other]}, "string_type", [0, "content"]),
    )
    for method, path, body, kind, loc in (
        *(("POST", "/sessions/s/messages", body, kind, ["body", "messages", *loc]) for body, kind, loc in batches),
        ("POST", "/sessions", {"id": "bad name!"}, "string_pattern_mismatch", ["body", "id"]),
        ("POST", "/peers", {"id": ""}, "string_too_short", ["body", "id"]),
        ("POST", "/peers", {"id": "x" * 513}, "string_too_long", ["body", "id"]),
        ("POST", "/sessions", {"id": "s", "metadata": []}, "dict_type", ["body", "metadata"]),
        ("POST", "/sessions/s/messages/list?size=101", None, "less_than_equal", ["query", "size"]),
        ("POST", "/sessions/s/messages/list?page=0", None, "greater_than_equal", ["query", "page"]),
        ("GET", "/sessions/s/context?tokens=100001", None, "less_than_equal", ["query", "tokens"]),
        ("GET", "/sessions/s/context?tokens=many", None, "int_parsing", ["query", "tokens"]),
    ):
        answer = raw(method, at + path, json=body)
        same((path, answer.status_code), (path, 422))
        detail = answer.json()["detail"]
        assert (kind, loc) in [(fault["type"], fault["loc"]) for fault in detail], (path, str(detail)[:500])
        assert all(isinstance(fault["msg"], str) for fault in detail)
        assert len(answer.content) < 20_000, "nobody's words are sent back by the megabyte"
    same(len(await messages(do, await do(honcho).session("s"))), 1)


async def bad_bodies_are_refused(do, honcho):
    path = f"/{honcho.workspace_id}/sessions/s/messages"
    for content in (b"", b"{", b"[]", b"\xff", b'{"messages": [', b"null"):
        answer = raw("POST", path, content=content, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422) and answer.json()["detail"], (content, answer.text)


async def the_client_gets_an_error_of_its_own_kind(do, honcho):
    await refused(UnprocessableEntityError, do(client("bad name!")).session("s"), "string_pattern_mismatch")
    await refused(UnprocessableEntityError, do(honcho).session("no/such name"), "pattern")
    await refused(UnprocessableEntityError, do(honcho).peer("ünï"), "pattern")
    for short, long in ((5, None), (None, 10), (30, 30), (40, 20)):
        summary = SummaryConfiguration(messages_per_short_summary=short, messages_per_long_summary=long)
        wrong = SessionConfiguration(summary=summary)
        await refused(UnprocessableEntityError, do(honcho).session("s", configuration=wrong), "messages_per_")
    session = await told(do, honcho, "s", 1)
    await refused(UnprocessableEntityError, do(session).messages(filters={"colour": "red"}), "colour")
    await refused(UnprocessableEntityError, do(session).messages(filters={"AND": "x"}), "AND")
    await refused(UnprocessableEntityError, do(session).messages(filters={"created_at": {"gt": "soon"}}))
    deep = {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}
    await refused(UnprocessableEntityError, do(session).set_metadata(deep))
    await refused(UnprocessableEntityError, do(session).set_metadata({str(at): at for at in range(101)}))
    same(await do(session).get_metadata(), {})


async def a_perspective_wants_a_target(do, honcho):
    answer = raw("GET", f"/{honcho.workspace_id}/sessions/s/context", params={"peer_perspective": "ann"})
    same(answer.status_code, 422)
    same(answer.json(), {"detail": "peer_target must be provided if peer_perspective is provided"})


async def what_is_not_offered_says_so(do, honcho):
    session = await told(do, honcho, "s", 2)
    ann = await do(honcho).peer("ann")
    for call in (
        do(ann).chat("What does Ann like?"),
        do(ann).chat("What does Ann like?", session=session),
        do(honcho).chat("What do they like?"),
        do(ann).representation(),
        do(ann).representation(session, target="bot"),
        do(session).representation("ann"),
        do(ann.conclusions).list(),
        do(ann.conclusions).query("parcels"),
        do(ann.conclusions).create([{"content": "Ann likes parcels.", "session_id": "s"}]),
        do(ann.conclusions_of("bot")).list(),
        do(honcho.conclusions).list(),
    ):
        error = await refused(HonchoError, call, "not offered")
        assert 400 <= error.status < 600, repr(error)


run(
    faults_are_told_with_their_place,
    bad_bodies_are_refused,
    the_client_gets_an_error_of_its_own_kind,
    a_perspective_wants_a_target,
    what_is_not_offered_says_so,
)
