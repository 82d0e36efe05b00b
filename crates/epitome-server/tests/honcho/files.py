"""Files: their whole text becomes messages."""

import io
import pathlib
import tempfile
from datetime import datetime

from honcho import APIError

from both import UTC, contents, messages, refused, run, same

NOTE = "Parcels of May\n\n1. Oslo, signed by Ann.\n2. Bergen, ünï ✓ 日本.\n"


async def every_form_of_a_file_is_taken(do, honcho):
    session, ann = await do(honcho).session("s"), await do(honcho).peer("ann")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "may.txt"
        path.write_text(NOTE, encoding="utf-8")
        named = io.BytesIO(NOTE.encode())
        named.name = "may.md"
        with path.open("rb") as opened, path.open("rb") as told:
            for file in (
                ("may.txt", NOTE.encode(), "text/plain"),
                ("may.txt", told, "text/plain; charset=utf-8"),
                opened,
                named,
            ):
                (one,) = await do(session).upload_file(file, ann)
                same((one.content.strip(), one.peer_id, one.session_id), (NOTE.strip(), "ann", "s"))
    same(len(await messages(do, session)), 4)


async def what_is_said_of_a_file_is_kept_with_it(do, honcho):
    session = await do(honcho).session("s")
    at = datetime(2024, 3, 4, 5, 6, 7, 891011, tzinfo=UTC)
    (one,) = await do(session).upload_file(
        ("may.txt", NOTE.encode(), "text/plain"),
        "bob",
        metadata={"month": 5, "deep": {"a": [1]}},
        configuration={"reasoning": {"enabled": False}},
        created_at=at,
    )
    same((one.peer_id, one.created_at), ("bob", at))
    same((one.metadata["month"], one.metadata["deep"]), (5, {"a": [1]}))
    (two,) = await do(session).upload_file(
        ("may.txt", b"later", "text/plain"), "bob", created_at="2024-03-05T00:00:00Z"
    )
    same(two.created_at, datetime(2024, 3, 5, tzinfo=UTC))
    same([found.id for found in await do(session).search("Bergen")], [one.id])


async def a_long_file_is_many_messages_and_loses_nothing(do, honcho):
    session = await do(honcho).session("s")
    text = "".join(f"Line {at}: parcel P-{at} went from Oslo to Bergen, ünï ✓.\n" for at in range(1500))
    made = await do(session).upload_file(("long.txt", text.encode(), "text/plain"), "ann", metadata={"a": 1})
    assert len(made) > 3 and all(len(one.content) <= 25_000 for one in made), [len(one.content) for one in made]
    same("".join(contents(made)).split(), text.split())
    same(contents(await messages(do, session)), contents(made))
    assert all(one.metadata["a"] == 1 and one.peer_id == "ann" for one in made)
    unbroken = "x" * 60_000
    made = await do(session).upload_file(("unbroken.txt", unbroken.encode(), "text/plain"), "ann")
    same("".join(contents(made)), unbroken)


async def a_text_in_another_encoding_is_the_same_text(do, honcho):
    session = await do(honcho).session("s")
    for written in (NOTE.encode("utf-16"), b"\xfe\xff" + NOTE.encode("utf-16-be"), NOTE.encode("utf-8-sig")):
        (one,) = await do(session).upload_file(("may.txt", written, "text/plain"), "ann")
        same(one.content.strip(), NOTE.strip())
    (one,) = await do(session).upload_file(("may.txt", "Grüße aus Malmö".encode("latin-1"), "text/plain"), "ann")
    same(one.content, "Grüße aus Malmö")


async def what_is_no_text_is_refused(do, honcho):
    session = await do(honcho).session("s")
    for file in (
        ("a.png", b"\x89PNG\r\n\x1a\n\x00\x00", "image/png"),
        ("a.bin", bytes(range(256)), "application/octet-stream"),
        ("a.txt", b"\xff\xfe\xfd not UTF-8 \x80", "text/plain"),
    ):
        error = await refused(APIError, do(session).upload_file(file, "ann"))
        assert error.status in (400, 415, 422) and isinstance(error.message, str), repr(error)
    same(await messages(do, session), [])


run(
    every_form_of_a_file_is_taken,
    what_is_said_of_a_file_is_kept_with_it,
    a_long_file_is_many_messages_and_loses_nothing,
    a_text_in_another_encoding_is_the_same_text,
    what_is_no_text_is_refused,
)
